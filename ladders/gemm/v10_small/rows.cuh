// Part of kernel.cu: the product of a matrix whose lines are rows, and a vector.

// Lines of k elements, one after the other. A warp has one line. Four blocks per multiprocessor: see columns.cuh.
extern "C" __global__ void __launch_bounds__(COPIERS, 4)
    sum_rows(const In* __restrict__ x, const In* v, const Out* c0, Out* c, int lines, int k, int pitch, int v_step,
             int c_step, long long x_entry, long long v_entry, long long c_entry, float alpha, float beta) {
  constexpr int MANY = 4;  // pieces of 16 bytes that a lane loads before it adds any
  const int line = blockIdx.x * (COPIERS / 32) + threadIdx.x / 32, lane = threadIdx.x % 32, entry = blockIdx.y;
  ptx::grid_wait();
  if (line >= lines) return;
  const Vector vector{v + entry * v_entry, c0 + entry * c_entry, c + entry * c_entry, v_step, c_step, alpha, beta};
  const In* const row = x + entry * x_entry + (long long)line * pitch;
  const int pieces = k / PIECE;
  float sum = 0.0f;
#pragma unroll 1
  for (int first = lane; first < pieces; first += MANY * 32) {
    Piece found[MANY], factors[MANY];
#pragma unroll
    for (int i = 0; i < MANY; i++) {
      const int piece = first + 32 * i;
      if (piece >= pieces) {
        found[i] = factors[i] = Piece();
        continue;
      }
      if (X_PIECES) {
        found[i] = *reinterpret_cast<const Piece*>(row + PIECE * piece);
      } else {
#pragma unroll
        for (int j = 0; j < PIECE; j++) found[i].part[j] = row[PIECE * piece + j];
      }
      if (V_PIECES) {
        factors[i] = *reinterpret_cast<const Piece*>(vector.v + PIECE * piece);
      } else {
#pragma unroll
        for (int j = 0; j < PIECE; j++) factors[i].part[j] = vector.v[((long long)PIECE * piece + j) * v_step];
      }
    }
#pragma unroll
    for (int i = 0; i < MANY; i++)
#pragma unroll
      for (int j = 0; j < PIECE; j++) sum += float(found[i].part[j]) * float(factors[i].part[j]);
  }
  if (const int at = PIECE * pieces + lane; at < k) sum += float(row[at]) * float(vector.v[(long long)at * v_step]);
  for (int i = 16; i > 0; i /= 2) sum += __shfl_xor_sync(~0u, sum, i);
  if (lane == 0) vector.put(line, sum);
}
