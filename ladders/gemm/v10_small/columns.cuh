// Part of kernel.cu: the product of a vector and a matrix whose lines are columns.

// Adjacent lines, k after k. A cluster has STRIP lines, and its blocks share k. In a block, a row of STRIP / PIECE
// threads has PIECE lines per thread, and such rows share the block's k. In the end, the other blocks send their sums
// to block 0, which needs no fence. Four blocks fit on a multiprocessor. Without this bound, ptxas saves registers: it
// has only two loads in flight, and multiplies before it starts the next one.
extern "C" __global__ void __launch_bounds__(COPIERS, 4)
    sum_columns(const In* __restrict__ x, const In* v, const Out* c0, Out* c, int lines, int k, int pitch, int v_step,
                int c_step, long long x_entry, long long v_entry, long long c_entry, float alpha, float beta) {
  constexpr int ROW = STRIP / PIECE, THREAD_ROWS = COPIERS / ROW;
  __shared__ __align__(16) float of_rows[THREAD_ROWS][STRIP];
  __shared__ float4 of_blocks[PARTS_OF_K][STRIP / 4];  // in block 0: sums of the others
  __shared__ ptx::mbarrier landed;
  const int part = threadIdx.x % ROW, thread_row = threadIdx.x / ROW, rank = blockIdx.x % PARTS_OF_K;
  const int first = blockIdx.x / PARTS_OF_K * STRIP, line = first + PIECE * part, entry = blockIdx.y;
  const int share = (k + PARTS_OF_K - 1) / PARTS_OF_K, from = rank * share, to = min(k, from + share);
  if (PARTS_OF_K > 1) {
    if (threadIdx.x == 0) {
      ptx::mbarrier_init(&landed, 1);
      ptx::mbarrier_arrive_expect_tx(&landed, (PARTS_OF_K - 1) * STRIP * 4);
      ptx::fence_mbarrier_init();
    }
    __syncwarp();
    ptx::cluster_arrive_relaxed();
  }
  ptx::grid_wait();
  const Vector vector{v + entry * v_entry, c0 + entry * c_entry, c + entry * c_entry, v_step, c_step, alpha, beta};
  const In* const columns = x + entry * x_entry + line;
  float sum[PIECE] = {};
  int at = from + thread_row;
  // Loads MANY rows, and then adds them. Or FEW, of which some may be beyond k. Or FEW, element by element.
  constexpr int MANY = 8, FEW = 4;
  enum Manner { ALL, GUARDED, ELEMENTS };
  auto add = [&](auto which) {
    constexpr int manner = decltype(which)::value, rows = manner == ALL ? MANY : FEW;
    Piece found[rows];
    In factor[rows];
#pragma unroll
    for (int i = 0; i < rows; i++) {
      const int row = at + i * THREAD_ROWS;
      const bool there = manner == ALL || row < to;
      const In* const piece = columns + (long long)row * pitch;
      if constexpr (manner == ELEMENTS) {
#pragma unroll
        for (int j = 0; j < PIECE; j++) found[i].part[j] = there && line + j < lines ? piece[j] : In();
      } else {
        found[i] = there ? *reinterpret_cast<const Piece*>(piece) : Piece();
      }
      factor[i] = there ? vector.v[(long long)row * v_step] : In();
    }
#pragma unroll
    for (int i = 0; i < rows; i++)
#pragma unroll
      for (int j = 0; j < PIECE; j++) sum[j] += float(found[i].part[j]) * float(factor[i]);
    at += rows * THREAD_ROWS;
  };
  if (X_PIECES && line + PIECE <= lines) {
#pragma unroll 1
    while (at + (MANY - 1) * THREAD_ROWS < to) add(std::integral_constant<int, ALL>());
#pragma unroll 1
    while (at < to) add(std::integral_constant<int, GUARDED>());
  } else {
#pragma unroll 1
    while (line < lines && at < to) add(std::integral_constant<int, ELEMENTS>());
  }
#pragma unroll
  for (int i = 0; i < PIECE; i++) of_rows[thread_row][PIECE * part + i] = sum[i];
  __syncthreads();
  const bool adds = threadIdx.x < STRIP / 4;  // four lines
  float4 all = {};
  auto add_four = [&](const float4& four) { all.x += four.x, all.y += four.y, all.z += four.z, all.w += four.w; };
  for (int i = 0; adds && i < THREAD_ROWS; i++) add_four(reinterpret_cast<const float4*>(of_rows[i])[threadIdx.x]);
  if (PARTS_OF_K > 1) {
    ptx::cluster_wait();  // block 0 has started, and its mbarrier is initialised
    if (rank > 0) {
      float4* const to = ptx::cluster_shared(of_blocks[rank] + threadIdx.x, 0);
      if (adds) ptx::store_async(&to->x, all, ptx::cluster_shared(&landed, 0));
      return;
    }
    ptx::mbarrier_wait(&landed, 0);
  }
  for (int block = 1; adds && block < PARTS_OF_K; block++) add_four(of_blocks[block][threadIdx.x]);
  const float four[4] = {all.x, all.y, all.z, all.w};
#pragma unroll
  for (int i = 0; i < 4; i++)
    if (adds && first + 4 * threadIdx.x + i < lines) vector.put(first + 4 * threadIdx.x + i, four[i]);
}
