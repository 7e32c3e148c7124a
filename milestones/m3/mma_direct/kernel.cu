// m3/mma_direct: nothing is unrolled; tensor-core fragments are read from the image itself (mma.sync, bulk copies).
//
// Idea      A course layer has so few channels that a product's fragments can be the image as it is. Four values at
//           neighbouring places (4 pixels of 1 channel, 2 of 2, or 1 pixel of 4) are a quad, both B registers of a
//           lane. A quad's pixels must stand in one column of the product for each output pixel that needs them, so a
//           row of A is a filter row moved by 0 ... SHIFTS - 1 pixels, with zeros around it (a Toeplitz matrix): one
//           product gives SHIFTS pixels for each group. Weights stay in registers for the whole launch, an input row is
//           read from shared memory once for all R output rows that it serves, and no thread computes an address of
//           global memory: the copy engine brings bands of the image and takes bands of the result.
// Layout    x (N,C,H,W), w (M,C,R,S), y (N,M,P,Q), fp32, C order. Shared memory: OUTPUTS slabs [TILE_M][out_pitch] of
//           results, INPUTS buffers [C][BAND + R - 1][W] as in x; next[m tile] counts the units handed out.
// Mapping   a unit of work = BAND output rows of an image, TILE_M channels. Blocks stay and take units from a counter,
//           in order, so that what is at work lies close together in memory. A warp does columns of 4 SHIFTS pixels
//           in 2 ROWS rows of the band, one of its PARTS. mma m16n8k16: row = channel SHIFTS + shift; column = group 2
//           + strip, 4 groups of SHIFTS pixels in the upper and the lower half of these rows (strips); k = quad t of
//           step s: slots 2t, 2t + 1, 2t + 8, 2t + 9, so that lane (g, t) needs quad t of group g / 2.
// Roofline  bytes 4 (N C H W + M K + N M P Q): 0.31 + 0.23 ms at 4.3 TB/s for the course's layers, N = 10,000. Halo
//           rows are read again (1.3 and 1.4 times the input), from L2. Products 1,400 + 2,268 an image, padding
//           included: 0.06 + 0.09 ms at 990 TFLOP/s, about twice that at the rate of mma.sync.
// Gain      over layers/custom: no copies into shared memory by instructions, no WMMA alignment, loads and stores under
//           way while a block computes: 0.35 + 0.29 ms expected, 2 to 4 times; where not, too few bytes are under way.
// Limits    C up to 4, filters up to 64 registers, a band within 64 KB; other shapes take conv_direct, which is slow.
//           Operands are rounded to FP16: beyond 65,504 infinite. An infinity or NaN also reaches outputs next to its
//           own (zeros of A times infinity). Bulk copies where rows are multiples of 16 bytes, else element by element.
// Hazards   reset runs before each conv, on its stream, and nothing outlives a launch: one that was killed leaves no
//           state, and two at once have a counter each. Two barriers a unit; what each waits for stands beside it.
// Source    PTX ISA: mma.m16n8k16, cp.async.bulk, mbarrier. CUDA C++ Programming Guide, asynchronous data copies.
#include <mini_dnn/ptx.cuh>

constexpr int BAND = 2 * ROWS * PARTS, THREADS = 32 * WARPS, TILE_M = 16 / SHIFTS;
constexpr int STEPS = ((S + SHIFTS - 1) * (4 / SHIFTS) + 15) / 16;  // of 16 values along a filter row
constexpr int OVERRUN = 4 * SHIFTS * (STEPS + 1);                   // floats by which a window may pass a row's end

struct Unit {
  int n, p0, rows;  // image, first output row, output rows
};

// Weights of rows m SHIFTS + shift and the eighth one after it; zero where the filter is not.
__device__ float weight(const float* w, int m, int c, int r, int s) {
  return m < M && c < C && s >= 0 && s < S ? w[((m * C + c) * R + r) * S + s] : 0.0f;
}
__device__ void load_weights(unsigned (&a)[R][STEPS][4], const float* w, int m0) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int r = 0; r < R; r++)
#pragma unroll
    for (int step = 0; step < STEPS; step++)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int row = g + i % 2 * 8, m = m0 + row / SHIFTS, shift = row % SHIFTS, e = i / 2 * 2;  // of the quad
        const int pixel = SHIFTS * (t + 4 * step) - shift;
        const float low = weight(w, m, e / SHIFTS, r, pixel + e % SHIFTS);
        const float high = weight(w, m, (e + 1) / SHIFTS, r, pixel + (e + 1) % SHIFTS);
        a[r][step][i] = ptx::pack_halves(low, high);
      }
}

// The quads of one input row: SHIFTS pixels each of 4 / SHIFTS channels; the last channel again for those past C.
__device__ __forceinline__ void load_quads(float (&v)[STEPS][4], const float* pixel, int plane) {
#pragma unroll
  for (int step = 0; step < STEPS; step++, pixel += 4 * SHIFTS)
#pragma unroll
    for (int e = 0; e < 4; e += 2) {
      const float* low = pixel + min(e / SHIFTS, C - 1) * plane + e % SHIFTS;
      if constexpr (PAIRS) {
        *reinterpret_cast<float2*>(&v[step][e]) = *reinterpret_cast<const float2*>(low);
      } else {
        v[step][e] = *low;
        v[step][e + 1] = pixel[min((e + 1) / SHIFTS, C - 1) * plane + (e + 1) % SHIFTS];
      }
    }
}

// 2 ROWS rows of 4 SHIFTS columns from column q0 on: input rows one after the other, each to all output rows that it
// serves.
__device__ __forceinline__ void multiply(const unsigned (&a)[R][STEPS][4], const float* __restrict__ in,
                                         float* __restrict__ slab, int q0, int W, int Q, int out_pitch) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, q = q0 + SHIFTS * t + g % SHIFTS, plane = (BAND + R - 1) * W;
  const float* pixel = in + g % 2 * ROWS * W + q0 + SHIFTS * (g / 2 + t);
  float* out = slab + g / SHIFTS * out_pitch + q;  // of row g of the product
  const int strip = ROWS * Q, below = 8 / SHIFTS * out_pitch;
  alignas(8) float v[STEPS][4];
  load_quads(v, pixel, plane);
  float acc[ROWS][4] = {};
#pragma unroll
  for (int h = 0; h < ROWS + R - 1; h++) {
    unsigned b[STEPS][2];
#pragma unroll
    for (int step = 0; step < STEPS; step++)
#pragma unroll
      for (int i = 0; i < 2; i++) b[step][i] = ptx::pack_halves(v[step][2 * i], v[step][2 * i + 1]);
    if (h + 1 < ROWS + R - 1) load_quads(v, pixel += W, plane);  // on their way during these products
#pragma unroll
    for (int r = R - 1; r >= 0; r--)
#pragma unroll
      for (int step = 0; step < STEPS; step++)
        if (h - r >= 0 && h - r < ROWS) ptx::mma_m16n8k16(acc[h - r], a[r][step], b[step]);
    if (h < R - 1) continue;
    const float (&done)[4] = acc[h - (R - 1)];
    if (q < Q) out[0] = done[0], out[strip] = done[1], out[below] = done[2], out[below + strip] = done[3];
    out += Q;
  }
}

// Starts the copies of a unit's input rows. Where the buffer goes on behind them, zeros: windows reach into those.
__device__ void start_load(float* in, const float* x, Unit u, int H, int W, bool by16, ptx::mbarrier* full) {
  const int rows = u.rows + R - 1, plane = (BAND + R - 1) * W, rest = min(OVERRUN, plane - rows * W);
  const float* from = x + (long long)u.n * C * H * W + (long long)u.p0 * W;
  for (int c = 0; c < C; c++)
    for (int i = threadIdx.x; i < rest; i += THREADS) in[c * plane + rows * W + i] = 0.0f;
#ifdef PTX_BULK
  if (by16) {
    if (threadIdx.x > 0) return;
    ptx::mbarrier_arrive_expect_tx(full, 4 * C * rows * W);
    for (int c = 0; c < C; c++) ptx::bulk_load(in + c * plane, from + (long long)c * H * W, 4 * rows * W, full);
    return;
  }
#endif
  for (int c = 0; c < C; c++, from += (long long)H * W, in += plane) {
    for (int i = 4 * threadIdx.x; by16 && i < rows * W; i += 4 * THREADS) ptx::cp_async<16>(in + i, from + i);
    for (int i = threadIdx.x; !by16 && i < rows * W; i += THREADS) ptx::cp_async<4>(in + i, from + i);
  }
}

// Starts the copies of a slab's channels to y.
__device__ void start_store(float* y, const float* slab, Unit u, int m0, int P, int Q, int out_pitch, bool by16) {
  const int channels = min(TILE_M, M - m0), count = u.rows * Q;
  float* to = y + ((long long)u.n * M + m0) * P * Q + (long long)u.p0 * Q;
#ifdef PTX_BULK
  if (by16) {
    const int m = threadIdx.x;
    if (m < channels) ptx::bulk_store(to + (long long)m * P * Q, slab + m * out_pitch, 4 * count);
    ptx::bulk_commit();
    return;
  }
#endif
  for (int m = 0; m < channels; m++, to += (long long)P * Q, slab += out_pitch)
    for (int i = threadIdx.x; i < count; i += THREADS) to[i] = slab[i];
}

extern "C" __global__ void reset(unsigned* next) { next[threadIdx.x] = 0; }

// Bytes of shared memory: 4 (OUTPUTS TILE_M out_pitch + INPUTS in_pitch).
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    conv(const float* __restrict__ x, const float* __restrict__ w, float* __restrict__ y, unsigned* next, int N, int H,
         int W, int in_pitch, int out_pitch) {
  extern __shared__ __align__(128) float memory[];
  __shared__ int ids[INPUTS];  // of the units in the buffers
  __shared__ ptx::mbarrier full[INPUTS];
  float* const inputs = memory + OUTPUTS * TILE_M * out_pitch;
  const int P = H - R + 1, Q = W - S + 1, bands = (P + BAND - 1) / BAND, units = N * bands, m0 = blockIdx.y * TILE_M;
  const bool in16 = BAND * W % 4 == 0 && (R - 1) * W % 4 == 0 && H * W % 4 == 0;  // rows in units of 16 bytes
  const bool out16 = BAND * Q % 4 == 0 && P * Q % 4 == 0;
  auto unit = [&](int id) { return Unit{id / bands, id % bands * BAND, min(BAND, P - id % bands * BAND)}; };

  int ahead = 0;  // thread 0: the unit that is loaded next
  if (threadIdx.x == 0) {
    const int first = atomicAdd(&next[blockIdx.y], INPUTS);
    ahead = atomicAdd(&next[blockIdx.y], 1);
    for (int i = 0; i < INPUTS; i++) ids[i] = first + i;
#ifdef PTX_BULK
    for (int i = 0; i < INPUTS; i++) ptx::mbarrier_init(&full[i], 1);
#endif
  }
  for (int i = threadIdx.x; i < INPUTS * in_pitch; i += THREADS) inputs[i] = 0.0f;  // finite, also where no copy goes
  ptx::fence_proxy_async();
  __syncthreads();  // units are taken, mbarriers and zeros are there
  for (int i = 0; i < INPUTS; i++) {
    if (ids[i] < units) start_load(inputs + i * in_pitch, x, unit(ids[i]), H, W, in16, full + i);
    ptx::cp_async_commit();
  }
  if (ids[0] >= units) return;
  unsigned a[R][STEPS][4];
  load_weights(a, w, m0);

  for (int k = 0; ids[k % INPUTS] < units; k++) {
    const int buffer = k % INPUTS;
    const Unit u = unit(ids[buffer]);
    float* const in = inputs + buffer * in_pitch;
    float* const slab = memory + k % OUTPUTS * TILE_M * out_pitch;
#ifdef PTX_BULK
    if (in16) ptx::mbarrier_wait(&full[buffer], k / INPUTS & 1);
    ptx::bulk_wait_read<OUTPUTS - 1>();
#endif
    ptx::cp_async_wait<INPUTS - 1>();
    __syncthreads();  // the input has landed for all, and the slab's last results have left
    for (int job = threadIdx.x / 32; job < PARTS * ((Q - 1) / (4 * SHIFTS) + 1); job += WARPS) {
      const int first = job % PARTS * 2 * ROWS;  // row of the band
      multiply(a, in + first * W, slab + first * Q, job / PARTS * 4 * SHIFTS, W, Q, out_pitch);
    }
    if (threadIdx.x == 0) {
      ids[buffer] = ahead;
      ahead = atomicAdd(&next[blockIdx.y], 1);
    }
    ptx::fence_proxy_async();
    __syncthreads();  // the slab is complete, the input has been read, its next unit is known
    start_store(y, slab, u, m0, P, Q, out_pitch, out16);
    if (ids[buffer] < units) start_load(in, x, unit(ids[buffer]), H, W, in16, full + buffer);
    ptx::cp_async_commit();
  }
#ifdef PTX_BULK
  ptx::bulk_wait_read<0>();
#endif
}

// Any other shape: a thread for each output.
extern "C" __global__ void conv_direct(const float* x, const float* w, float* y, int H, int W) {
  const int P = H - R + 1, Q = W - S + 1, pixel = blockIdx.x * blockDim.x + threadIdx.x, n = blockIdx.z;
  if (pixel >= P * Q) return;
  for (int m = blockIdx.y; m < M; m += gridDim.y) {
    float acc = 0.0f;
    for (int c = 0; c < C; c++)
      for (int r = 0; r < R; r++)
        for (int s = 0; s < S; s++)
          acc += x[(((long long)n * C + c) * H + pixel / Q + r) * W + pixel % Q + s] * weight(w, m, c, r, s);
    y[((long long)n * M + m) * P * Q + pixel] = acc;
  }
}
