// Part of kernel.cu: columns of b that are split while tiles are multiplied.

// The columns of b. A strip is 64 columns.
struct Strips {
  static constexpr int DEEP = 6;  // pieces of 8 elements that a thread loads at once
  static constexpr int HEIGHT = THREADS / 8;  // rows of a strip that a block loads at once
  const float* x;
  uint4* boxes;
  float* factors;
  int* ranges;
  int columns, k, pitch, chunks, wide_tiles;

  // Loads pieces of rows at, at + HEIGHT, ...; zeros beyond b.
  __device__ __forceinline__ void load(int first, int at, float (&values)[DEEP][8]) const {
    const int column = first + threadIdx.x % 8 * 8;
#pragma unroll
    for (int i = 0; i < DEEP; i++, at += HEIGHT)
      read(x + (long long)at * pitch + column, at < k ? columns - column : 0, pitch % 4 == 0, values[i]);
  }

  // A block splits a strip. It reads it twice, and finds it in L2 the second time.
  __device__ __forceinline__ void split(int strip) const {
    __shared__ Range of_warps[THREADS / 32][64];
    __shared__ float of_columns[64];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, piece = threadIdx.x % 8, row = threadIdx.x / 8;
    const int first = strip * 64;
    float values[DEEP][8], factor[8];
    Range of_thread[8];
#pragma unroll 1
    for (int at = row; at < k; at += DEEP * HEIGHT) {
      load(first, at, values);
#pragma unroll
      for (int i = 0; i < DEEP * 8; i++) of_thread[i % 8].add(values[i / 8][i % 8]);
    }
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
#pragma unroll 1
    for (int at = row; at < chunks * CHUNK; at += DEEP * HEIGHT) {
      load(first, at, values);
#pragma unroll
      for (int i = 0; i < DEEP; i++) {
        const int term = at + i * HEIGHT;
        if (term >= chunks * CHUNK) break;
        uint4* const to = boxes + place(strip, term / CHUNK, chunks, wide_tiles) * (BOX_BYTES / 16) +
                          term % CHUNK * 8 + (piece ^ (term % 8));
        ::split(values[i], factor, to[0], to[BOX_BYTES / 32]);
      }
    }
  }
};
