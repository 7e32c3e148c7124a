// The operations on a warp's sums (norm, bias, GELU, residual, moments), and their stores. kernel.cu has the rest.
//
// Fragments are those of mini_dnn/sums.cuh: lane 4 g + t has columns 8 i + 2 t and 8 i + 2 t + 1 of rows g and g + 8.
#pragma once
#include <mini_dnn/sums.cuh>

#if OUT_HALF
typedef half Out;
#else
typedef float Out;
#endif

// tanh, computed by the special function unit ("tanh.approx"). Its relative error is at most 2^-11, like that of
// rounding to half.
__device__ __forceinline__ float fast_tanh(float x) {
#ifdef MINI_DNN_EMULATOR
  return tanhf(x);
#else
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#endif
}

// The sum over the four lanes that share a row.
__device__ __forceinline__ float sum_of_row(float value) {
  value += __shfl_xor_sync(~0u, value, 1);
  return value + __shfl_xor_sync(~0u, value, 2);
}

constexpr float PART_OF_SUM = GELU ? 0.5f : 1.0f;  // the argument of `finish` is this part of the sum

// Factors of the sums in a lane's two rows: 1 / the deviation of the row of x.
struct Factors {
  float of_row[2] = {PART_OF_SUM, PART_OF_SUM};
};

// Computes the factors from the moments of each 64 elements of a row: their mean, and the sum of their squared
// distances from it. A lane reads X_MOMENTS of them.
__device__ __forceinline__ Factors find_factors(const float2* moments, int row, int m, int k) {
  const int lane = threadIdx.x % 32, groups = (k + 63) / 64;
  const float each = 1.0f / k;
  Factors found;
  float2 of_group[2][X_MOMENTS];
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const float2* const of_row = moments + (long long)min(row + lane / 4 + 8 * h, m - 1) * groups;
#pragma unroll
    for (int i = 0; i < X_MOMENTS; i++) {
      const int g = lane % 4 + 4 * i;
      of_group[h][i] = g < groups ? of_row[g] : make_float2(0.0f, 0.0f);
    }
  }
#pragma unroll
  for (int h = 0; h < 2; h++) {
    float sum = 0.0f, squares = 0.0f;
#pragma unroll
    for (int i = 0; i < X_MOMENTS; i++) sum += of_group[h][i].x * max(0, min(64, k - 64 * (lane % 4 + 4 * i)));
    const float mean = sum_of_row(sum) * each;
#pragma unroll
    for (int i = 0; i < X_MOMENTS; i++) {
      const float distance = of_group[h][i].x - mean;
      squares += of_group[h][i].y + max(0, min(64, k - 64 * (lane % 4 + 4 * i))) * distance * distance;
    }
    found.of_row[h] = PART_OF_SUM * rsqrtf(sum_of_row(squares) * each + 1e-6f);
  }
  return found;
}

template <int groups>
struct Epilogue {
  const float* bias;
  const half* residual;
  Out* y;
  float2* y_moments;
  int m, n;
  long long r_pitch;
  int r_lines, row, column;  // the warp's first

  __device__ __forceinline__ void operator()(const float (&d)[groups][4], const Factors& factors,
                                             const ptx::TensorMap& y_map, char* staged) const {
    if (column + 8 * groups <= n)  // the same for all threads of a block
      all_parts<true>(d, factors, y_map, staged);
    else
      all_parts<false>(d, factors, y_map, staged);
  }

 private:
  // Two neighbours in an array of n numbers; 0 beyond its end.
  template <bool whole>
  __device__ __forceinline__ float2 two(const float* from, int at) const {
    if (whole) return *reinterpret_cast<const float2*>(from + at);
    return make_float2(at < n ? from[at] : 0.0f, at + 1 < n ? from[at + 1] : 0.0f);
  }

  // Fetches a lane's 8 pairs of the residual in each of its two rows, from column `first` on; zeros beyond y.
  template <bool whole>
  __device__ __forceinline__ void fetch(unsigned (&pairs)[8][2], const half* const (&of_rows)[2], int first) const {
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
      for (int i = 0; i < 8; i++) {
        const bool there = of_rows[h] && (whole || first + 8 * i < n);  // n is a multiple of 8
        pairs[i][h] = there ? *reinterpret_cast<const unsigned*>(of_rows[h] + first + 8 * i) : 0u;
      }
  }

  // Processes parts of 64 columns. The residual of the next part is fetched before this part is stored.
  template <bool whole>
  __device__ __forceinline__ void all_parts(const float (&d)[groups][4], const Factors& factors,
                                            const ptx::TensorMap& y_map, char* staged) const {
    const int lane = threadIdx.x % 32;
    const half* of_rows[2] = {};  // null beyond the last line: the residual may be y, where another warp writes
    unsigned added[8][2];
    if (RESIDUAL) {
      for (int h = 0; h < 2; h++) {
        const int line = row + lane / 4 + 8 * h;
        if (line < m) of_rows[h] = residual + line % r_lines * r_pitch + lane % 4 * 2;
      }
      fetch<whole>(added, of_rows, column);
    }
#pragma unroll
    for (int part = 0; part < groups / 8; part++) {
      const int first = column + 64 * part;
      if (!whole && first >= n) break;
      unsigned pairs[8][2];  // of halves
      float sum[2] = {}, squares[2] = {};
#pragma unroll
      for (int i = 0; i < 8; i++) {
        const int at = first + 8 * i + lane % 4 * 2;
        float2 b = two<whole>(bias, at);
        b.x *= PART_OF_SUM, b.y *= PART_OF_SUM;
#pragma unroll
        for (int h = 0; h < 2; h++) {
          float low = finish(d[8 * part + i][2 * h], factors.of_row[h], b.x);
          float high = finish(d[8 * part + i][2 * h + 1], factors.of_row[h], b.y);
          if (RESIDUAL) {
            const float2 r = ptx::unpack_halves(added[i][h]);
            low += r.x, high += r.y;
          }
          if (MOMENTS && (whole || first + 8 * i < n)) {
            sum[h] += low + high;
            squares[h] += low * low + high * high;
          }
          if constexpr (OUT_HALF)
            pairs[i][h] = ptx::pack_halves(low, high);
          else
            store(low, high, row + lane / 4 + 8 * h, at);
        }
      }
      if (RESIDUAL && part + 1 < groups / 8) fetch<whole>(added, of_rows, first + 64);
      if constexpr (OUT_HALF) send(pairs, first, y_map, staged);
      if (MOMENTS) put_moments(sum, squares, first, whole ? 64 : min(64, n - first));
    }
  }

  // Adds the bias, and applies GELU if needed. With h = x / 2, x (1 + tanh(...)) / 2 is h + h tanh(...); factor and b
  // are already halved for this.
  __device__ __forceinline__ float finish(float sum, float factor, float b) const {
    const float h = NORM || GELU ? fmaf(sum, factor, b) : sum + b;
    return GELU ? fmaf(h, fast_tanh(h * fmaf(0.2854192651f, h * h, 1.5957691216f)), h) : h;
  }

  __device__ __forceinline__ void store(float low, float high, int line, int at) const {
    if (line >= m) return;
    if (at < n) y[(long long)line * n + at] = Out(low);
    if (at + 1 < n) y[(long long)line * n + at + 1] = Out(high);
  }

  // Stores rows of 64 columns through shared memory.
  __device__ __forceinline__ void send(const unsigned (&pairs)[8][2], int first, const ptx::TensorMap& y_map,
                                       char* staged) const {
    const int lane = threadIdx.x % 32;
    if (lane == 0) ptx::bulk_wait_read<0>();  // the previous contents have been read
    __syncwarp();                             // all lanes know
#pragma unroll
    for (int i = 0; i < 8; i += 2) {
      const unsigned both[4] = {pairs[i][0], pairs[i][1], pairs[i + 1][0], pairs[i + 1][1]};
      ptx::stmatrix(staged + lane % 16 * 128 + ((i + lane / 16) ^ lane % 8) * 16, both);
    }
    ptx::fence_proxy_async();
    __syncwarp();  // all 16 rows are complete
    if (lane == 0) {
      ptx::tensor_store(y_map, first, row, staged);
      ptx::bulk_commit();
    }
  }

  // Stores the moments of `count` elements. The subtraction of squares loses no more than rounding y to halves: its
  // error is 2^-24 of the mean's square, and that of an element is 2^-11 of the mean.
  __device__ __forceinline__ void put_moments(const float (&sum)[2], const float (&squares)[2], int first,
                                              int count) const {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const float all = sum_of_row(sum[h]), mean = all / count, distance = sum_of_row(squares[h]) - all * mean;
      const int line = row + lane / 4 + 8 * h;
      if (lane % 4 == 0 && line < m)
        y_moments[(long long)line * ((n + 63) / 64) + first / 64] = {mean, fmaxf(distance, 0.0f)};
    }
  }
};
