// Part of kernel.cu: a matrix whose lines are rows, times a vector.

// Lines of k elements, one after the other. A warp has one line.
extern "C" __global__ void __launch_bounds__(COPIERS)
    sum_rows(const In* __restrict__ x, const In* v, const Out* c0, Out* c, int lines, int k, int pitch, int v_step,
             int c_step, long long x_entry, long long v_entry, long long c_entry, float alpha, float beta) {
  const int line = blockIdx.x * (COPIERS / 32) + threadIdx.x / 32, lane = threadIdx.x % 32, entry = blockIdx.y;
  ptx::grid_wait();
  if (line >= lines) return;
  const Vector vector{v + entry * v_entry, c0 + entry * c_entry, c + entry * c_entry, v_step, c_step, alpha, beta};
  const In* const row = x + entry * x_entry + (long long)line * pitch;
  float sum = 0.0f;
  if (X_EIGHTS) {
#pragma unroll 8
    for (int at = 8 * lane; at < k; at += 8 * 32) {
      if (at + 8 <= k) {
        const Eight eight = *reinterpret_cast<const Eight*>(row + at);
        Eight factors;
        if (V_EIGHTS) {
          factors = *reinterpret_cast<const Eight*>(vector.v + at);
        } else {
#pragma unroll
          for (int i = 0; i < 8; i++) factors.part[i] = vector.v[(long long)(at + i) * v_step];
        }
#pragma unroll
        for (int i = 0; i < 8; i++) sum += float(eight.part[i]) * float(factors.part[i]);
      } else {
        for (int i = at; i < k; i++) sum += float(row[i]) * float(vector.v[(long long)i * v_step]);
      }
    }
  } else {
#pragma unroll 4
    for (int at = lane; at < k; at += 32) sum += float(row[at]) * float(vector.v[(long long)at * v_step]);
  }
  for (int i = 16; i > 0; i /= 2) sum += __shfl_xor_sync(~0u, sum, i);
  if (lane == 0) vector.put(line, sum);
}
