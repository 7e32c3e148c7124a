// layers/custom: the final kernel: a convolution on quads or pairs and tensor cores, at the speed of memory.
//
// Idea      Nothing is unrolled or permuted: the image itself, as halves, is the operand of the tensor cores. mma.sync
//           uses quads (mini_dnn/quads.cuh), and wgmma of sm_90 uses pairs (mini_dnn/pairs.cuh), which it reads
//           directly from shared memory. Weights stay in registers for the whole launch. No thread computes an address
//           in global memory: the copy engine loads bands of the image and stores bands of the result, while other
//           blocks multiply.
// Layout    x (N,C,H,W), w (M,C,R,S), y (N,M,P,Q), fp32, C order. Shared memory: OUTPUTS slabs [TILE_M][out_pitch] of
//           results, INPUTS bands in the order of x [C][in_plane], and the quads or pairs of one band. With SPLIT,
//           those of the low halves follow. next[m tile] counts the assigned units.
// Mapping   a unit of work = BAND output rows of an image, TILE_M channels. Persistent blocks fetch units from a
//           counter, in order, so that units that run at the same time are close together in memory. by_warp.cuh: a
//           warp processes jobs of 8 columns of quads; by_warpgroup.cuh, with GROUPS on sm_90a: four warps process
//           tiles of 8 pairs of columns. out.cuh: writes the sums to the slab; with POOL it applies ReLU and a maximum
//           over windows, and y is the pooled output.
// Roofline  bytes 4 (N C H W + M K + N M P Q): 0.31 + 0.23 ms at 4.3 TB/s for the course's layers, N = 10,000.
//           Products, including padding: 800 of mma.sync per image in conv1, 0.06 ms at the 600 TFLOP/s that it reached
//           in a loop without other instructions; 64 + 16 of wgmma (n = 72, 24) in conv2, 0.11 ms at the 0.93 and 0.8
//           PFLOP/s of such a loop. With SPLIT three times as many.
// Gain      over m3/sliding_window: each value is packed once instead of copied 14 times, operands do not need the
//           alignment of WMMA, and loads and stores are in flight while a block computes: 0.33 + 0.26 ms expected
//           instead of 0.9 + 1.1.
// Limits    C up to 4, filters up to 64 registers; other shapes use conv_direct, which is slow. Values beyond 65,504
//           become infinite, and those below 2^-14 lose digits. An infinity or NaN also affects neighbouring outputs
//           (zeros of A times infinity). With SPLIT, these limits do not apply: see range.cuh. Bulk copies are used if
//           rows are multiples of 16 bytes; otherwise elements are copied one by one.
// Hazards   reset runs before each conv, on its stream, and no state outlives a launch: an aborted launch has no effect
//           on the next one, and two simultaneous launches have a counter each. There are two barriers per unit; a
//           comment at each says what it waits for.
// Source    PTX ISA: mma.m16n8k16, wgmma.mma_async, cp.async.bulk, mbarrier. CUDA C++ Programming Guide, asynchronous
//           data copies. On SPLIT: H. Ootomo, R. Yokota, "Recovering single precision accuracy from Tensor Cores",
//           arXiv:2203.03341.
#include <mini_dnn/ptx.cuh>

constexpr int WINDOW = POOL > 1 ? POOL : 1;  // of the pool

#ifndef DIRECT
constexpr int THREADS = 32 * WARPS;
constexpr int AHEAD = INPUTS > 0 ? INPUTS : 1;  // units that are fetched in advance

#if SPLIT
#include "range.cuh"
static_assert(!POOL, "sums of two halves are not pooled");
#else
struct Scale {  // without SPLIT: operands and sums are unchanged
  __device__ __forceinline__ void operator()(float (&)[4]) const {}
};
typedef Scale Undo;
#endif
#if GROUPS && defined(PTX_WGMMA)
#include "by_warpgroup.cuh"
#else
#include "by_warp.cuh"
#endif
constexpr int TILE_M = Filter::tile_m;

struct Unit {
  int n, p0, rows;  // image, first output row, output rows (0: no more work)
};
__device__ Unit unit(int id, int N, int P) {
  const int bands = (P + BAND - 1) / BAND, n = id / bands, p0 = (id - n * bands) * BAND;
  return {n, p0, n < N ? min(BAND, P - p0) : 0};
}

// Starts the copies of a unit's input rows to shared memory or, if INPUTS is 0, only to L2.
__device__ void start_load(float* in, const float* x, Unit u, int H, int W, int plane, bool by16, ptx::mbarrier* full) {
  const int rows = u.rows + R - 1;
  const float* from = x + (long long)u.n * C * H * W + (long long)u.p0 * W;
#ifdef PTX_BULK
  if (by16) {
    if (threadIdx.x > 0) return;
    if constexpr (INPUTS > 0) ptx::mbarrier_arrive_expect_tx(full, 4 * C * rows * W);
    for (int c = 0; c < C; c++, from += (long long)H * W)
      if constexpr (INPUTS > 0) {
        ptx::bulk_load(in + c * plane, from, 4 * rows * W, full);
      } else {
        ptx::bulk_prefetch(from, 4 * rows * W);
      }
    return;
  }
#endif
  for (int c = 0; c < C && INPUTS > 0; c++, from += (long long)H * W, in += plane) {
    for (int i = 4 * threadIdx.x; by16 && i < rows * W; i += 4 * THREADS) ptx::cp_async<16>(in + i, from + i);
    for (int i = threadIdx.x; !by16 && i < rows * W; i += THREADS) ptx::cp_async<4>(in + i, from + i);
  }
}

// Starts the copies of a slab to y, whose planes are P by Q: channel by channel, or in one copy if the slab has the
// layout of whole images of y.
__device__ void start_store(float* y, const float* slab, Unit u, int m0, int P, int Q, int out_pitch) {
  const int channels = min(TILE_M, M - m0), count = (u.rows + WINDOW - 1) / WINDOW * Q;
  const bool whole = WHOLE && out_pitch == P * Q;
  float* to = y + ((long long)u.n * M + m0) * P * Q + (long long)(u.p0 / WINDOW) * Q;
#ifdef PTX_BULK
  if (whole ? M * P * Q % 4 == 0 : BAND / WINDOW * Q % 4 == 0 && P * Q % 4 == 0) {  // in units of 16 bytes
    const int m = threadIdx.x;
    if (m < (whole ? 1 : channels))
      ptx::bulk_store(to + (long long)m * P * Q, slab + m * out_pitch, 4 * (whole ? channels * P * Q : count));
    ptx::bulk_commit();
    return;
  }
#endif
  for (int m = 0; m < channels; m++, to += (long long)P * Q, slab += out_pitch)
    for (int i = threadIdx.x; i < count; i += THREADS) to[i] = slab[i];
}

#if !SPLIT
extern "C" __global__ void reset(unsigned* next) { next[threadIdx.x] = 0; }
#endif

// With SPLIT, w has been scaled by `prepare`.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    conv(const float* __restrict__ x, const float* __restrict__ w, float* __restrict__ y, unsigned* next, int N, int H,
         int W, int in_plane, int out_pitch) {
  extern __shared__ __align__(128) float memory[];
  __shared__ Unit units[2 * AHEAD];  // those in the buffers, and the next ones
  __shared__ ptx::mbarrier full[AHEAD];
#if SPLIT
  __shared__ Range shared;  // of a band that does not fit
  __shared__ OfWeights of_weights;
#endif
  const int P = H - R + 1, Q = W - S + 1, m0 = blockIdx.y * TILE_M;
  const int PP = (P + WINDOW - 1) / WINDOW, PQ = (Q + WINDOW - 1) / WINDOW;       // pooled
  const bool by16 = BAND * W % 4 == 0 && (R - 1) * W % 4 == 0 && H * W % 4 == 0;  // rows in units of 16 bytes
  float* const inputs = memory + OUTPUTS * TILE_M * out_pitch;
  const int in_pitch = C * in_plane;
  Products products(inputs + INPUTS * in_pitch, Q);

  int ahead = 0;  // thread 0: the unit that is loaded next
  if (threadIdx.x == 0) {
    const int first = atomicAdd(&next[blockIdx.y], AHEAD);
    ahead = atomicAdd(&next[blockIdx.y], 1);
    for (int i = 0; i < AHEAD; i++) units[i] = unit(first + i, N, P);
#if SPLIT
    shared = Range{}, of_weights = {int(w[M * C * R * S]), w[M * C * R * S + 1] != 0.0f};
#endif
#ifdef PTX_BULK
    for (int i = 0; i < AHEAD; i++) ptx::mbarrier_init(&full[i], 1);
#endif
  }
  ptx::fence_proxy_async();
  __syncthreads();  // units are fetched, mbarriers are initialised
  if (!units[0].rows) return;
  for (int i = 0; i < AHEAD; i++) {
    if (units[i].rows) start_load(inputs + i * in_pitch, x, units[i], H, W, in_plane, by16, full + i);
    ptx::cp_async_commit();
  }
  products.high.load(w, m0);
  if constexpr (SPLIT) products.low.load(w, m0, true, quads::low_scale);

  for (int k = 0; units[k % (2 * AHEAD)].rows; k++) {
    const int buffer = k % AHEAD, following = (k + AHEAD) % (2 * AHEAD);
    const Unit u = units[k % (2 * AHEAD)];
    float* const in = inputs + buffer * in_pitch;
    float* const slab = memory + k % OUTPUTS * TILE_M * out_pitch;
    bool landed = INPUTS == 0;
#ifdef PTX_BULK
    if (by16 && !landed) ptx::mbarrier_wait(&full[buffer], k / AHEAD & 1), landed = true;
#endif
    if (!landed) {
      ptx::cp_async_wait<AHEAD - 1>();
      __syncthreads();  // the copies of all threads have arrived
    }
    auto pack = [&](Scale& scale) {
      if constexpr (INPUTS > 0) {
        products.pack(in, in_plane, u.rows + R - 1, W, scale);
      } else {
        products.pack(x + ((long long)u.n * C * H + u.p0) * W, H * W, u.rows + R - 1, W, scale);
      }
    };
    Scale scale;
    pack(scale);
#ifdef PTX_BULK
    ptx::bulk_wait_read<OUTPUTS - 1>();
#endif
    if (threadIdx.x == 0) {
      units[following] = unit(ahead, N, P);
      ahead = atomicAdd(&next[blockIdx.y], 1);
    }
    ptx::fence_proxy_async();
#if SPLIT
    int exponent = USUAL;
    bool wide = of_weights.wide;
    // operands are packed, the input has been read, the slab's previous results have been copied
    if (__syncthreads_or(!scale.range.fits(USUAL)) || abs(USUAL + of_weights.exponent) > MOST) {
      const Range range = range_of_block(scale.range, shared);
      exponent = beside(range, of_weights.exponent);
      wide = wide || exponent == NO_POWER || !range.fits(exponent);
      if (exponent != NO_POWER) {
        scale.factor = power_of_two(exponent);
        pack(scale);
      }
      ptx::fence_proxy_async();
      __syncthreads();  // operands are packed, the range has been read
      if (threadIdx.x == 0) shared = Range{};
    }
    const Undo undo{power_of_two(-exponent - of_weights.exponent)};
#else
    __syncthreads();  // operands are packed, the input has been read, the slab's previous results have been copied
    const Undo undo;
#endif
    if (units[following].rows) start_load(in, x, units[following], H, W, in_plane, by16, full + buffer);
    ptx::cp_async_commit();
    products.run({slab, out_pitch, PQ}, u.rows, Q, undo);
#if SPLIT
    if (wide) {
      __syncthreads();  // the slab is complete, except for sums that are computed again
      const float least = exponent == NO_POWER ? NAN : LEAST * undo.factor;
      const float as_was = of_weights.exponent == NO_POWER ? 1.0f : power_of_two(-of_weights.exponent);
      sum_plainly(x + ((long long)u.n * C * H + u.p0) * W, w + m0 * C * R * S, as_was, least, slab, out_pitch, u.rows,
                  min(TILE_M, M - m0), H, W);
    }
#endif
    ptx::fence_proxy_async();
    __syncthreads();  // the slab is complete, operands have been read
    start_store(y, slab, u, m0, PP, PQ, out_pitch);
  }
#ifdef PTX_BULK
  ptx::bulk_wait_read<0>();
#endif
}

#endif

// Any other shape: a thread for each output.
extern "C" __global__ void conv_direct(const float* x, const float* w, float* y, int H, int W) {
  const int P = H - R + 1, Q = W - S + 1, PP = (P + WINDOW - 1) / WINDOW, PQ = (Q + WINDOW - 1) / WINDOW;
  const int pixel = blockIdx.x * blockDim.x + threadIdx.x, n = blockIdx.z;
  if (pixel >= PP * PQ) return;
  const int p0 = pixel / PQ * WINDOW, q0 = pixel % PQ * WINDOW;
  for (int m = blockIdx.y; m < M; m += gridDim.y) {
    float result = 0.0f;
    for (int p = p0; p < min(p0 + WINDOW, P); p++)
      for (int q = q0; q < min(q0 + WINDOW, Q); q++) {
        float acc = 0.0f;
        for (int c = 0; c < C; c++)
          for (int r = 0; r < R; r++)
            for (int s = 0; s < S; s++)
              acc += x[(((long long)n * C + c) * H + p + r) * W + q + s] * w[((m * C + c) * R + r) * S + s];
        result = POOL ? ptx::max_nan(result, acc) : acc;
      }
    y[((long long)n * M + m) * PP * PQ + pixel] = result;
  }
}
