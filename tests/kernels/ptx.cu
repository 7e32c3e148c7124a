// One wrapper of mini_dnn/ptx.cuh per kernel. A warp passes its registers unchanged: [register][lane].
#include <mini_dnn/ptx.cuh>

template <int count, class T>
__device__ void load_registers(T (&registers)[count], const T* memory) {
  for (int i = 0; i < count; i++) registers[i] = memory[32 * i + threadIdx.x];
}
template <int count, class T>
__device__ void store_registers(const T (&registers)[count], T* memory) {
  for (int i = 0; i < count; i++) memory[32 * i + threadIdx.x] = registers[i];
}

extern "C" __global__ void mma_k8(const unsigned* a, const unsigned* b, float* d) {
  unsigned ra[2], rb[1];
  float rd[4];
  load_registers(ra, a), load_registers(rb, b), load_registers(rd, d);
  ptx::mma_m16n8k8(rd, ra[0], ra[1], rb[0]);
  store_registers(rd, d);
}
extern "C" __global__ void mma_k16(const unsigned* a, const unsigned* b, float* d) {
  unsigned ra[4], rb[2];
  float rd[4];
  load_registers(ra, a), load_registers(rb, b), load_registers(rd, d);
  ptx::mma_m16n8k16(rd, ra, rb);
  store_registers(rd, d);
}
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
extern "C" __global__ void mma_bf16(const unsigned* a, const unsigned* b, float* d) {
  unsigned ra[4], rb[2];
  float rd[4];
  load_registers(ra, a), load_registers(rb, b), load_registers(rd, d);
  ptx::mma_m16n8k16_bf16(rd, ra, rb);
  store_registers(rd, d);
}
extern "C" __global__ void mma_tf32(const unsigned* a, const unsigned* b, float* d) {
  unsigned ra[4], rb[2];
  float rd[4];
  load_registers(ra, a), load_registers(rb, b), load_registers(rd, d);
  ptx::mma_m16n8k8_tf32(rd, ra, rb);
  store_registers(rd, d);
}
#endif

extern "C" __global__ void larger(const float* a, const float* b, float* d) {
  d[threadIdx.x] = ptx::max_nan(a[threadIdx.x], b[threadIdx.x]);
}

extern "C" __global__ void pack(const float* in, unsigned* packed, float* unpacked) {
  const int i = threadIdx.x;
  packed[i] = ptx::pack_halves(in[2 * i], in[2 * i + 1]);
  const float2 both = ptx::unpack_halves(packed[i]);
  unpacked[2 * i] = both.x, unpacked[2 * i + 1] = both.y;
}

extern "C" __global__ void pack_bfloats(const float* in, unsigned* packed, float* unpacked) {
  const int i = threadIdx.x;
  packed[i] = ptx::pack_bfloats(in[2 * i], in[2 * i + 1]);
  const float2 both = ptx::unpack_bfloats(packed[i]);
  unpacked[2 * i] = both.x, unpacked[2 * i + 1] = both.y;
}

// rows: for each lane the number of a row of 8 halves.
template <int count, bool transposed>
__device__ void load_matrices(const uint4* memory, const int* rows, unsigned* out) {
  __shared__ uint4 tile[64];
  for (int i = threadIdx.x; i < 64; i += 32) tile[i] = memory[i];
  __syncthreads();
  unsigned d[count];
  if (transposed)
    ptx::ldmatrix_trans(d, &tile[rows[threadIdx.x]]);
  else
    ptx::ldmatrix(d, &tile[rows[threadIdx.x]]);
  store_registers(d, out);
}
extern "C" __global__ void matrices(const uint4* memory, const int* rows, unsigned* out, int count, int transposed) {
  if (count == 1) transposed ? load_matrices<1, true>(memory, rows, out) : load_matrices<1, false>(memory, rows, out);
  if (count == 2) transposed ? load_matrices<2, true>(memory, rows, out) : load_matrices<2, false>(memory, rows, out);
  if (count == 4) transposed ? load_matrices<4, true>(memory, rows, out) : load_matrices<4, false>(memory, rows, out);
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
template <int count, bool transposed>
__device__ void store_matrices(const unsigned* in, const int* rows, uint4* memory) {
  __shared__ uint4 tile[64];
  for (int i = threadIdx.x; i < 64; i += 32) tile[i] = memory[i];
  __syncthreads();
  unsigned d[count];
  load_registers(d, in);
  if (transposed)
    ptx::stmatrix_trans(&tile[rows[threadIdx.x]], d);
  else
    ptx::stmatrix(&tile[rows[threadIdx.x]], d);
  __syncthreads();
  for (int i = threadIdx.x; i < 64; i += 32) memory[i] = tile[i];
}
extern "C" __global__ void stored(const unsigned* in, const int* rows, uint4* memory, int count, int transposed) {
  ptx::grid_wait();
  ptx::grid_launch_dependents();
  if (count == 1) transposed ? store_matrices<1, true>(in, rows, memory) : store_matrices<1, false>(in, rows, memory);
  if (count == 2) transposed ? store_matrices<2, true>(in, rows, memory) : store_matrices<2, false>(in, rows, memory);
  if (count == 4) transposed ? store_matrices<4, true>(in, rows, memory) : store_matrices<4, false>(in, rows, memory);
}
#endif

// Two groups of copies a thread: `early` is what is in the shared memory before the first wait, `between` before the
// second, `late` after it. All are 3 * 16 bytes a thread, for copies of 16, 8 and 4 bytes.
__device__ void dump(const int (&places)[64][12], int* out) {
  for (int i = 0; i < 12; i++) out[12 * threadIdx.x + i] = places[threadIdx.x][i];
}
extern "C" __global__ void async_groups(const int* in, const int* valid, int* early, int* between, int* late) {
  __shared__ __align__(16) int places[64][12];
  const int* mine = in + 12 * threadIdx.x;
  int* place = places[threadIdx.x];
  for (int i = 0; i < 12; i++) place[i] = -1;
  ptx::cp_async<16>(place, mine, valid[0]);
  ptx::cp_async<8>(place + 4, mine + 4, valid[1]);
  ptx::cp_async_commit();
  ptx::cp_async<4>(place + 6, mine + 6, valid[2]);
  ptx::cp_async<16>(place + 8, mine + 8);
  ptx::cp_async_commit();
  if (early) dump(places, early);
  ptx::cp_async_wait<1>();
  if (between) dump(places, between);
  ptx::cp_async_wait<0>();
  dump(places, late);
}

#ifdef PTX_BULK
// Sends `parts` parts of the input through two buffers and back out, each part doubled.
extern "C" __global__ void bulk_double(const float* in, float* out, int parts) {
  constexpr int COUNT = 256;  // floats of a part
  __shared__ __align__(128) float buffer[2][COUNT], result[2][COUNT];
  __shared__ ptx::mbarrier full[2];
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; i++) ptx::mbarrier_init(&full[i], 1);
    ptx::fence_proxy_async();
  }
  __syncthreads();
  auto load = [&](int part) {
    if (part >= parts) return;
    ptx::bulk_prefetch(in + part * COUNT, sizeof buffer[0]);  // changes nothing but how soon the copy lands
    ptx::mbarrier_arrive_expect_tx(&full[part % 2], sizeof buffer[0]);
    ptx::bulk_load(buffer[part % 2], in + part * COUNT, sizeof buffer[0], &full[part % 2]);
  };
  if (threadIdx.x == 0) load(0), load(1);
  for (int part = 0; part < parts; part++) {
    ptx::mbarrier_wait(&full[part % 2], part / 2 % 2);
    for (int i = threadIdx.x; i < COUNT; i += blockDim.x) result[part % 2][i] = 2 * buffer[part % 2][i];
    ptx::fence_proxy_async();
    if (threadIdx.x == 0) ptx::bulk_wait_read<0>();  // the other result is free again
    __syncthreads();                                 // this result is complete, and this buffer has been read
    if (threadIdx.x > 0) continue;
    ptx::bulk_store(out + part * COUNT, result[part % 2], sizeof result[0]);
    ptx::bulk_commit();
    load(part + 2);
  }
  if (threadIdx.x == 0) ptx::bulk_wait<0>();
}

// Warps take turns by mbarriers alone, with arrivals of all lanes; order[i] is the number of the i-th warp.
extern "C" __global__ void take_turns(int* order, int rounds) {
  __shared__ ptx::mbarrier turn[4];
  __shared__ int next;
  const int warp = threadIdx.x / 32, warps = blockDim.x / 32;
  if (threadIdx.x == 0) {
    for (int i = 0; i < warps; i++) ptx::mbarrier_init(&turn[i], 32);
    ptx::fence_proxy_async();
    next = 0;
  }
  __syncthreads();
  for (int round = 0; round < rounds; round++) {
    if (warp || round) ptx::mbarrier_wait(&turn[warp], (round - !warp) & 1);
    if (threadIdx.x % 32 == 0) order[next++] = warp;
    __syncwarp();
    ptx::mbarrier_arrive(&turn[(warp + 1) % warps]);
  }
}

// The content of the buffer before the wait, then a wait that must not return.
extern "C" __global__ void bulk_early(const float* in, float* early, int expected, int parity) {
  __shared__ __align__(128) float buffer[32];
  __shared__ ptx::mbarrier full;
  buffer[threadIdx.x] = -1;
  if (threadIdx.x == 0) ptx::mbarrier_init(&full, 1);
  __syncthreads();
  if (threadIdx.x == 0) {
    ptx::mbarrier_arrive_expect_tx(&full, expected);
    ptx::bulk_load(buffer, in, sizeof buffer, &full);
  }
  early[threadIdx.x] = buffer[threadIdx.x];
  __syncthreads();
  ptx::mbarrier_wait(&full, parity);  // here
  early[threadIdx.x] += 100 * buffer[threadIdx.x];
}

// A copy is started to a buffer that other threads may still read; or it brings fewer bytes than expected.
extern "C" __global__ void bulk_again(const float* in, float* out, int expected) {
  __shared__ __align__(128) float buffer[32];
  __shared__ ptx::mbarrier full;
  buffer[threadIdx.x] = 0;
  if (threadIdx.x == 0) ptx::mbarrier_init(&full, 1), ptx::fence_proxy_async();
  __syncthreads();  // the buffer and the mbarrier are there
  out[threadIdx.x] = buffer[threadIdx.x];
  if (expected > sizeof buffer) __syncthreads();
  if (threadIdx.x == 0) {
    ptx::mbarrier_arrive_expect_tx(&full, expected);
    ptx::bulk_load(buffer, in, sizeof buffer, &full);
    ptx::mbarrier_wait(&full, 0);  // few bytes
  }
  __syncthreads();
}

// A store that is never waited for, or whose source changes before it was read.
extern "C" __global__ void bulk_store_early(float* out, int wait) {
  __shared__ __align__(128) float buffer[32];
  buffer[threadIdx.x] = threadIdx.x;
  ptx::fence_proxy_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    ptx::bulk_store(out, buffer, sizeof buffer);
    ptx::bulk_commit();
    if (wait == 1) ptx::bulk_wait_read<0>();
    for (int i = 0; i < 32; i++) buffer[i] = -1;
    if (wait == 2) ptx::bulk_wait<0>();
  }
}

extern "C" __global__ void bulk_store_left(float* out, bool commits) {
  __shared__ __align__(128) float buffer[32];
  buffer[threadIdx.x] = threadIdx.x;
  ptx::fence_proxy_async();
  __syncthreads();
  if (threadIdx.x == 0) ptx::bulk_store(out, buffer, sizeof buffer);
  if (threadIdx.x == 0 && commits) ptx::bulk_commit();
}

// fence: by all threads, by the one that stores, or by none.
extern "C" __global__ void bulk_store_fence(float* out, int fence) {
  __shared__ __align__(128) float buffer[32];
  ptx::fence_proxy_async();  // too early for anything
  __syncthreads();
  buffer[threadIdx.x] = threadIdx.x;
  if (fence == 1) ptx::fence_proxy_async();
  __syncthreads();
  if (threadIdx.x > 0) return;
  if (fence == 2) ptx::fence_proxy_async();
  ptx::bulk_store(out, buffer, sizeof buffer);
  ptx::bulk_commit();
  ptx::bulk_wait<0>();
}

extern "C" __global__ void bulk_wait_only(float* out) {
  __shared__ ptx::mbarrier two;
  if (threadIdx.x == 0) ptx::mbarrier_init(&two, 2);
  __syncthreads();
  if (threadIdx.x == 0) ptx::mbarrier_arrive(&two);
  ptx::mbarrier_wait(&two, 0);  // never
  out[threadIdx.x] = 0;
}
#endif

extern "C" __global__ void misaligned(const float* in, int which) {
  __shared__ __align__(128) float tile[64];
  unsigned d[1];
  if (which == 0) ptx::cp_async<16>(tile + 1, in);
  if (which == 1) ptx::cp_async<8>(tile, in + 1);
  if (which == 2) ptx::ldmatrix(d, tile + 2 * threadIdx.x);
#ifdef PTX_BULK
  __shared__ ptx::mbarrier full;
  if (which == 3) ptx::mbarrier_init(&full, 1), ptx::bulk_load(tile, in, 40, &full);
  if (which == 4) ptx::mbarrier_wait(&full, 0);
  if (which == 5) ptx::bulk_prefetch(in + 1, 32);
  if (which == 6) ptx::bulk_prefetch(in, 24);
#endif
}
