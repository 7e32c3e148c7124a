// The odd query of a head, computed by three warps that share the keys.
#pragma once
#include "odd_rows.cuh"

constexpr int STEP = 32;          // keys that a warp processes at a time
constexpr int RESULTS = 10;       // numbers of a thread that one warp hands to another
typedef float State[RESULTS][8];  // of the lanes with numbers that count
static_assert(BLOCK <= TAIL_WARPS * STEP, "a step of each warp is a block");

// Everything is transposed, as in v9_final/tail.cuh: lane 4 g + t has keys, or columns of values, g and g + 8. Queries
// are columns 2 t and 2 t + 1 of products. The odd query is column 0, so only lanes with t = 0 have numbers that count.
struct OddQuery {
  unsigned q[D / 16][2];
  float o[D / 16][4], reference, sum;

  static __device__ __forceinline__ bool has_query() { return threadIdx.x % 4 == 0; }

  // The reference is the odd key's score. Its power is 1, and `counts` in one of the warps.
  __device__ __forceinline__ void start(const char* token, bool counts, float scale) {
    const int lane = threadIdx.x % 32;
    const unsigned* const query = reinterpret_cast<const unsigned*>(token + ODD_QUERY);
    const half* const values = reinterpret_cast<const half*>(token + ODD_VALUE);
    const half *const key = values + (ODD_KEY - ODD_VALUE) / 2, *const own = values + (ODD_QUERY - ODD_VALUE) / 2;
#pragma unroll
    for (int i = 0; i < D / 16; i++)
#pragma unroll
      for (int r = 0; r < 2; r++) q[i][r] = lane < 4 ? query[8 * i + 4 * r + lane] : 0;
    float score = 0.0f;
#pragma unroll
    for (int i = 0; i < D / 32; i++)
      score = fmaf(__half2float(key[lane + 32 * i]), __half2float(own[lane + 32 * i]), score);
#pragma unroll
    for (int lanes = 1; lanes < 32; lanes *= 2) score += __shfl_xor_sync(~0u, score, lanes);
    reference = has_query() ? score * scale : INFINITY;  // so that all other powers are 0
    sum = counts && lane == 0 ? 1.0f : 0.0f;
    counts &= has_query();
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
      o[i][0] = counts ? __half2float(values[16 * i + lane / 4]) : 0.0f;
      o[i][2] = counts ? __half2float(values[16 * i + 8 + lane / 4]) : 0.0f;
      o[i][1] = o[i][3] = 0.0f;
    }
  }

  __device__ __forceinline__ void raise(float to) {
    const float factor = has_query() ? ptx::exp2_approx(reference - to) : 1.0f;
    reference = to;
    sum *= factor;
#pragma unroll
    for (int i = 0; i < D / 16; i++) o[i][0] *= factor, o[i][2] *= factor;
  }

  // Adds 16 values, times powers in the layout of a right operand.
  __device__ __forceinline__ void plus_values(const char* values, const unsigned (&powers)[2]) {
    const int lane = threadIdx.x % 32, row = lane % 8 + lane / 16 * 8;
    unsigned a[4];
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
      ptx::ldmatrix_trans(a, chunk_at(values, row, 2 * i + lane / 8 % 2));
      ptx::mma_m16n8k16(o[i], a, powers);
    }
  }

  // Processes the STEP keys and values from these addresses on.
  __device__ __forceinline__ void step(const char* keys, const char* values, float scale) {
    const int lane = threadIdx.x % 32;
    float s[2][4] = {}, x[2][2];
#pragma unroll
    for (int k = 0; k < D / 16; k++)
#pragma unroll
      for (int i = 0; i < 2; i++) {
        unsigned a[4];
        ptx::ldmatrix(a, chunk_at(keys + i * (16 * 128), lane % 16, 2 * k + lane / 16));
        ptx::mma_m16n8k16(s[i], a, q[k]);
      }
#pragma unroll
    for (int i = 0; i < 2; i++) x[i][0] = s[i][0] * scale, x[i][1] = s[i][2] * scale;
    float most = fmaxf(fmaxf(x[0][0], x[0][1]), fmaxf(x[1][0], x[1][1]));
    if (__any_sync(~0u, most > reference)) {
#pragma unroll
      for (int lanes = 4; lanes < 32; lanes *= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, lanes));
      raise(fmaxf(most, reference));
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
      unsigned powers[2];
#pragma unroll
      for (int r = 0; r < 2; r++) {
        const float power = ptx::exp2_approx(x[i][r] - reference);
        sum += power;
        powers[r] = ptx::transpose_8x8(ptx::pack_halves(power, 0.0f));
      }
      plus_values(values + i * (16 * 128), powers);
    }
  }

  // Hands results to another warp through shared memory, and takes those of another one.
  __device__ __forceinline__ void give(State& state) const {
    const int row = threadIdx.x % 32 / 4;
    if (!has_query()) return;
#pragma unroll
    for (int i = 0; i < 8; i++) state[i][row] = o[i / 2][i % 2 * 2];
    state[8][row] = sum, state[9][row] = reference;
  }
  __device__ __forceinline__ void take(const State& state) {
    const int row = threadIdx.x % 32 / 4;
    const float other = state[9][row];
    raise(fmaxf(reference, other));
    const float factor = has_query() ? ptx::exp2_approx(other - reference) : 0.0f;
    sum = fmaf(state[8][row], factor, sum);
#pragma unroll
    for (int i = 0; i < 8; i++) o[i / 2][i % 2 * 2] = fmaf(state[i][row], factor, o[i / 2][i % 2 * 2]);
  }

  // Writes the output to global memory.
  __device__ __forceinline__ void put(half* out) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int lanes = 4; lanes < 32; lanes *= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
    if (!has_query()) return;
    const float factor = __fdividef(1.0f, sum);
#pragma unroll
    for (int i = 0; i < 8; i++) out[8 * i + lane / 4] = __float2half(o[i / 2][i % 2 * 2] * factor);
  }
};
