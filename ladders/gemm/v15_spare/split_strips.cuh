// Part of kernel.cu: columns of b that are split while tiles are multiplied.

// The columns of b. A strip is 64 columns, which the copy engine loads as boxes of HEIGHT rows.
struct Strips {
  static constexpr int HEIGHT = 96, AT_ONCE = THREADS / 8, BOX = HEIGHT * 64 * 4, DEPTH = 8;  // boxes in flight
  const ptx::TensorMap& map;
  char* memory;
  ptx::mbarrier* ready;
  uint4* boxes;
  float* factors;
  int* ranges;
  int chunks, wide_tiles;
  int done = 0;  // boxes so far

  // Calls use(row, values) for 8 elements of each row, in some thread. Elements beyond b are zeros.
  template <class Use>
  __device__ __forceinline__ void sweep(int strip, Use use) {
    const int piece = threadIdx.x % 8, count = (chunks * CHUNK + HEIGHT - 1) / HEIGHT;
    auto load = [&](int i) {
      const int place = (done + i) % DEPTH;
      if (threadIdx.x != 0 || i >= count) return;
      ptx::mbarrier_arrive_expect_tx(ready + place, BOX);
      ptx::tensor_load(memory + place * BOX, map, strip * 64, i * HEIGHT, ready + place);
    };
    for (int i = 0; i < DEPTH; i++) load(i);
#pragma unroll 1
    for (int i = 0; i < count; i++) {
      const int place = (done + i) % DEPTH;
      ptx::mbarrier_wait(ready + place, (done + i) / DEPTH % 2);
#pragma unroll
      for (int row = threadIdx.x / 8; row < HEIGHT; row += AT_ONCE) {
        float values[8];
        read(reinterpret_cast<const float*>(memory + place * BOX) + row * 64 + piece * 8, 8, true, values);
        use(i * HEIGHT + row, values);
      }
      __syncthreads();
      load(i + DEPTH);
    }
    done += count;
  }

  // A block splits a strip. It loads it twice, and finds it in L2 the second time.
  __device__ __forceinline__ void split(int strip) {
    const auto of_warps = reinterpret_cast<Range(*)[64]>(memory + DEPTH * BOX);
    float* const of_columns = reinterpret_cast<float*>(of_warps + THREADS / 32);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, piece = threadIdx.x % 8, first = strip * 64;
    float factor[8];
    Range of_thread[8];
    sweep(strip, [&](int, const float (&values)[8]) {
#pragma unroll
      for (int i = 0; i < 8; i++) of_thread[i].add(values[i]);
    });
#pragma unroll
    for (int i = 0; i < 8; i++) {
      for (int mask = 8; mask < 32; mask *= 2) of_thread[i].add(of_thread[i].of_lane(mask));
      if (lane < 8) of_warps[warp][piece * 8 + i] = of_thread[i];
    }
    __syncthreads();
    if (threadIdx.x < 64) {
      Range range;
      for (int i = 0; i < THREADS / 32; i++) range.add(of_warps[i][threadIdx.x]);
      of_columns[threadIdx.x] = factor_of(range.largest);
      factors[first + threadIdx.x] = 1.0f / of_columns[threadIdx.x];
      ranges[first + threadIdx.x] = range.packed();
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 8; i++) factor[i] = of_columns[piece * 8 + i];
    sweep(strip, [&](int row, const float (&values)[8]) {
      if (row >= chunks * CHUNK) return;
      uint4* const to = boxes + place(strip, row / CHUNK, chunks, wide_tiles) * (BOX_BYTES / 16) + row % CHUNK * 8 +
                        (piece ^ (row % 8));
      ::split(values, factor, to[0], to[BOX_BYTES / 32]);
    });
  }
};
