// Part of kernel.cu: the product of a vector and a matrix whose lines are columns.

// Adjacent lines, k after k. A cluster has STRIP lines, and its blocks share k. In a block, a row of STRIP / 8 threads
// has 8 lines per thread, and such rows share the block's k. Four blocks fit on a multiprocessor. Without this bound,
// ptxas saves registers: it has only two loads in flight, and multiplies before it starts the next one.
extern "C" __global__ void __launch_bounds__(COPIERS, 4)
    sum_columns(const In* __restrict__ x, const In* v, const Out* c0, Out* c, int lines, int k, int pitch, int v_step,
                int c_step, long long x_entry, long long v_entry, long long c_entry, float alpha, float beta) {
  constexpr int ROW = STRIP / 8, THREAD_ROWS = COPIERS / ROW;
  static_assert(STRIP <= COPIERS, "in the end, a thread has a line");
  __shared__ float of_rows[THREAD_ROWS][STRIP], of_block[STRIP];
  const int part = threadIdx.x % ROW, thread_row = threadIdx.x / ROW, rank = blockIdx.x % PARTS_OF_K;
  const int first = blockIdx.x / PARTS_OF_K * STRIP, line = first + 8 * part, entry = blockIdx.y;
  const int share = (k + PARTS_OF_K - 1) / PARTS_OF_K, from = rank * share, to = min(k, from + share);
  ptx::grid_wait();
  const Vector vector{v + entry * v_entry, c0 + entry * c_entry, c + entry * c_entry, v_step, c_step, alpha, beta};
  const In* const columns = x + entry * x_entry + line;
  float sum[8] = {};
  int at = from + thread_row;
  // Loads MANY rows, and then adds them. Or FEW, of which some may be beyond k.
  constexpr int MANY = 8, FEW = 4;
  auto add = [&](auto which) {
    constexpr bool guarded = decltype(which)::value;
    constexpr int rows = guarded ? FEW : MANY;
    Eight found[rows];
    In factor[rows];
#pragma unroll
    for (int i = 0; i < rows; i++) {
      const int row = at + i * THREAD_ROWS;
      const bool there = !guarded || row < to;
      found[i] = there ? *reinterpret_cast<const Eight*>(columns + (long long)row * pitch) : Eight();
      factor[i] = there ? vector.v[(long long)row * v_step] : In();
    }
#pragma unroll
    for (int i = 0; i < rows; i++)
#pragma unroll
      for (int j = 0; j < 8; j++) sum[j] += float(found[i].part[j]) * float(factor[i]);
    at += rows * THREAD_ROWS;
  };
  if (line + 8 <= lines) {
#pragma unroll 1
    while (at + (MANY - 1) * THREAD_ROWS < to) add(std::false_type());
#pragma unroll 1
    while (at < to) add(std::true_type());
  }
#pragma unroll 4
  for (; line < lines && at < to; at += THREAD_ROWS) {  // the last lines, if they fill no piece of 8
    const float factor = float(vector.v[(long long)at * v_step]);
    const In* const eight = columns + (long long)at * pitch;
#pragma unroll
    for (int i = 0; i < 8; i++)
      if (line + i < lines) sum[i] += float(eight[i]) * factor;
  }
#pragma unroll
  for (int i = 0; i < 8; i++) of_rows[thread_row][8 * part + i] = sum[i];
  __syncthreads();
  float all = 0.0f;
  if (threadIdx.x < STRIP) {
    for (int i = 0; i < THREAD_ROWS; i++) all += of_rows[i][threadIdx.x];
    of_block[threadIdx.x] = all;
  }
  if (PARTS_OF_K > 1) ptx::cluster_sync();
  if (rank == 0 && threadIdx.x < STRIP && first + threadIdx.x < lines) {
    for (int block = 1; block < PARTS_OF_K; block++) all += ptx::cluster_shared(of_block, block)[threadIdx.x];
    vector.put(first + threadIdx.x, all);
  }
  if (PARTS_OF_K > 1) ptx::cluster_arrive_relaxed();
  if (PARTS_OF_K > 1) ptx::cluster_wait();  // block 0 has read the others
}
