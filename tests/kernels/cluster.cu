// Clusters: one wrapper of mini_dnn/ptx_cluster.cuh per kernel, or a few that belong together.
#include <mini_dnn/ptx.cuh>

#ifdef PTX_BULK
// The rank of each block in its cluster.
extern "C" __global__ void ranks(int* out) {
  if (threadIdx.x == 0) out[blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z)] = ptx::cluster_rank();
}

// Each block writes to the memory of the next and of the previous block, static and dynamic, with plain stores.
extern "C" __global__ void ring(int* out, int size) {
  __shared__ int box[64];
  extern __shared__ int more[];
  const unsigned rank = ptx::cluster_rank();
  more[threadIdx.x] = -1;
  ptx::cluster_sync();  // what a block writes itself comes before what others write there; and all have begun
  ptx::cluster_shared(box, (rank + 1) % size)[threadIdx.x] = 1000 * blockIdx.x + threadIdx.x;
  *ptx::cluster_shared(&more[threadIdx.x], (rank + size - 1) % size) = blockIdx.x;
  ptx::cluster_sync();  // all is written
  out[(blockIdx.x * 64 + threadIdx.x) * 2] = box[threadIdx.x];
  out[(blockIdx.x * 64 + threadIdx.x) * 2 + 1] = more[threadIdx.x];
}

// Sums over all blocks of a cluster, read from where they lie, again and again.
extern "C" __global__ void sums(const float* x, float* y, int size, int times) {
  __shared__ float mine[64];
  const unsigned i = threadIdx.x;
  for (int t = 0; t < times; t++) {
    mine[i] = x[(t * gridDim.x + blockIdx.x) * 64 + i];
    ptx::cluster_sync();  // all blocks have their part
    float sum = 0;
    for (int rank = 0; rank < size; rank++) sum += ptx::cluster_shared(mine, rank)[i];
    y[(t * gridDim.x + blockIdx.x) * 64 + i] = sum;
    ptx::cluster_arrive();  // it has read
    ptx::cluster_wait();    // and all have, before the next part
  }
}

// Half of the threads return before the others meet.
extern "C" __global__ void early_returns(int* out) {
  __shared__ int box[64];
  if (threadIdx.x % 64 >= 32 + blockIdx.x) return;
  ptx::cluster_sync();  // of those that are left
  ptx::cluster_shared(box, ptx::cluster_rank() ^ 1)[threadIdx.x] = threadIdx.x + 100;
  ptx::cluster_sync();  // all is written
  if (threadIdx.x < 32) out[blockIdx.x * 32 + threadIdx.x] = box[threadIdx.x];
}

// A token circulates in the cluster: the block that has it appends its rank to the list.
extern "C" __global__ void token(int* order, int size, int rounds, bool poll) {
  __shared__ ptx::mbarrier here;
  const unsigned rank = ptx::cluster_rank();
  if (threadIdx.x == 0) ptx::mbarrier_init(&here, 1), ptx::fence_mbarrier_init();
  __syncthreads();                // as a relaxed arrival orders nothing
  ptx::cluster_arrive_relaxed();  // the fence has published the mbarrier
  ptx::cluster_wait();            // those of all blocks are there
  if (threadIdx.x == 0) {
    for (int i = 0; i < rounds; i++) {
      const bool first = i == 0 && rank == 0;
      const unsigned parity = (i + (rank == 0)) & 1;
      if (!first && poll)
        while (!ptx::mbarrier_try_wait(&here, parity)) {
        }
      else if (!first)
        ptx::mbarrier_wait(&here, parity);
      __threadfence();  // on both sides, as an arrival at another block is relaxed
      order[blockIdx.x / size * rounds * size + i * size + rank] = atomicAdd(order + gridDim.x * rounds, 1);
      __threadfence();
      ptx::mbarrier_arrive_cluster(&here, (rank + 1) % size);
    }
  }
  ptx::cluster_sync();  // no arrival is on its way to a block that is gone
}

// Each block sends a row to each other block, and adds the rows that it receives.
extern "C" __global__ void exchange(const float* x, float* y, int size) {
  __shared__ __align__(16) float rows[8][128];
  __shared__ ptx::mbarrier landed;
  const unsigned rank = ptx::cluster_rank(), i = 4 * threadIdx.x;
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&landed, 1);
    ptx::fence_mbarrier_init();
    ptx::mbarrier_arrive_expect_tx(&landed, 512 * size);
  }
  ptx::cluster_sync();  // the mbarriers of all blocks are there
  for (int to = 0; to < size; to++) {
    const float* const from = x + (blockIdx.x * size + to) * 128 + i;
    ptx::store_async(ptx::cluster_shared(&rows[rank][i], to), make_float4(from[0], from[1], from[2], from[3]),
                     ptx::cluster_shared(&landed, to));
  }
  ptx::mbarrier_wait(&landed, 0);
  for (int j = 0; j < 4; j++) {
    float sum = 0;
    for (int from = 0; from < size; from++) sum += rows[from][i + j];
    y[blockIdx.x * 128 + i + j] = sum;
  }
  ptx::cluster_sync();  // nothing is on its way to a block that is gone
}

// A ring of two buffers. Each block loads its part for all, and adds up the data that arrive. `full` counts bytes from
// all blocks, `empty` counts arrivals from all of them.
extern "C" __global__ void pipeline(const float* x, float* y, int size, int steps) {
  __shared__ __align__(128) float buffers[2][512];
  __shared__ ptx::mbarrier full[2], empty[2];
  const unsigned rank = ptx::cluster_rank(), all = (1 << size) - 1, part = 512 / size;
  if (threadIdx.x == 0) {
    for (int b = 0; b < 2; b++) ptx::mbarrier_init(full + b, 1), ptx::mbarrier_init(empty + b, size);
    ptx::fence_mbarrier_init();
  }
  ptx::cluster_sync();  // the mbarriers of all blocks are there
  if (threadIdx.x == 32) {
    for (int step = 0; step < steps; step++) {
      const int b = step % 2;
      if (step >= 2) ptx::mbarrier_wait(empty + b, (step / 2 - 1) & 1);
      ptx::mbarrier_arrive_expect_tx(full + b, 2048);
      ptx::bulk_load_multicast(buffers[b] + rank * part, x + step * 512 + rank * part, 4 * part, full + b, all);
    }
  }
  if (threadIdx.x < 32) {
    float sum[16] = {};
    for (int step = 0; step < steps; step++) {
      const int b = step % 2;
      ptx::mbarrier_wait(full + b, step / 2 & 1);
      for (int j = 0; j < 16; j++) sum[j] += (step + 1) * buffers[b][32 * j + threadIdx.x];
      __syncwarp();  // all lanes have read
      if (threadIdx.x < size) ptx::mbarrier_arrive_cluster(empty + b, threadIdx.x);
    }
    for (int j = 0; j < 16; j++) y[blockIdx.x * 512 + 32 * j + threadIdx.x] = sum[j];
  }
  ptx::cluster_sync();  // no block leaves while others still write to it
}

// Each block loads a box for all: rows of 32 floats, with the same number of rows for each rank.
extern "C" __global__ void boxes(const __grid_constant__ ptx::TensorMap map, float* y, int size, int x0, int axes) {
  __shared__ __align__(1024) float buffer[8][4][32];
  __shared__ ptx::mbarrier full;
  const int rank = ptx::cluster_rank(), all = (1 << size) - 1;
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&full, 1);
    ptx::fence_mbarrier_init();
    ptx::mbarrier_arrive_expect_tx(&full, 512 * size);
  }
  ptx::cluster_sync();  // the mbarriers of all blocks are there
  if (threadIdx.x == 0 && axes == 2) ptx::tensor_load_multicast(buffer[rank], map, x0, 4 * rank - 1, &full, all);
  if (threadIdx.x == 0 && axes == 3) ptx::tensor_load_multicast(buffer[rank], map, x0, -1, rank, &full, all);
  ptx::mbarrier_wait(&full, 0);
  for (int i = threadIdx.x; i < 128 * size; i += blockDim.x) y[blockIdx.x * 128 * size + i] = (&buffer[0][0][0])[i];
  ptx::cluster_sync();  // no block leaves while it is written to
}

// A multicast to some blocks only. The others have nothing to wait for.
extern "C" __global__ void to_some(const float* x, float* y, unsigned mask) {
  __shared__ __align__(128) float buffer[32];
  __shared__ ptx::mbarrier full;
  const bool named = mask >> ptx::cluster_rank() & 1;
  buffer[threadIdx.x] = -1;
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&full, 1);
    ptx::fence_mbarrier_init();
    if (named) ptx::mbarrier_arrive_expect_tx(&full, 128);
  }
  ptx::fence_proxy_async();  // the -1 come before what the copy brings
  ptx::cluster_sync();       // the mbarriers of all blocks are there
  if (ptx::cluster_rank() == 1 && threadIdx.x == 0)
    ptx::bulk_load_multicast(buffer, x + blockIdx.x / 4 * 32, 128, &full, mask);
  if (named) ptx::mbarrier_wait(&full, 0);
  y[blockIdx.x * 32 + threadIdx.x] = buffer[threadIdx.x];
  ptx::cluster_sync();  // no block leaves while it is written to
}
#endif

#ifdef MINI_DNN_EMULATOR
// The content of memory between the start of a copy and the wait.
extern "C" __global__ void lands_at_the_wait(const float* x, float* early, float* late) {
  __shared__ __align__(128) float buffer[32], sent[4];
  __shared__ ptx::mbarrier full;
  buffer[threadIdx.x] = sent[threadIdx.x % 4] = -1;
  if (threadIdx.x == 0) ptx::mbarrier_init(&full, 1), ptx::mbarrier_arrive_expect_tx(&full, 128 + 16);
  ptx::cluster_sync();
  if (ptx::cluster_rank() == 1 && threadIdx.x == 0) {
    ptx::bulk_load_multicast(buffer, x, 128, &full, 3);
    for (int rank = 0; rank < 2; rank++)
      ptx::store_async(ptx::cluster_shared(sent, rank), make_float4(5, 6, 7, 8), ptx::cluster_shared(&full, rank));
  }
  ptx::cluster_sync();
  const int i = blockIdx.x * 32 + threadIdx.x;
  early[i] = buffer[threadIdx.x] + sent[threadIdx.x % 4];
  __syncthreads();
  ptx::mbarrier_wait(&full, 0);
  late[i] = buffer[threadIdx.x] + 100 * sent[threadIdx.x % 4];
  ptx::cluster_sync();
}

extern "C" __global__ void misuse(float* x, int which) {
  __shared__ __align__(128) float buffer[32];
  __shared__ ptx::mbarrier here;
  const unsigned rank = ptx::cluster_rank();
  if (threadIdx.x == 0 && rank == 1) ptx::mbarrier_init(&here, 1);
  if (which == 0) buffer[0] = *ptx::cluster_shared(buffer, 2);
  if (which == 1) ptx::cluster_arrive(), ptx::cluster_arrive();
  if (which == 2) ptx::cluster_wait();
  if (which == 3) ptx::mbarrier_arrive_cluster(&here, 1);  // nobody has met: block 0 comes first
  ptx::cluster_sync();
  if (threadIdx.x || rank) return;
  if (which == 4) ptx::mbarrier_arrive_cluster(&here, 0);
  if (which == 5) ptx::bulk_load_multicast(buffer, x, 16, &here, 6);
  if (which == 6) ptx::bulk_load_multicast(buffer, x, 16, &here, 0);
  if (which == 7) ptx::bulk_load_multicast(buffer, x, 16, &here, 3);
  if (which == 8) ptx::store_async(buffer + 1, float4(), &here);
  if (which == 9) ptx::store_async(buffer, float4(), &here);
  if (which == 10) ptx::bulk_load_multicast(buffer, x + 1, 16, &here, 1);
  if (which == 11) ptx::mbarrier_wait(ptx::cluster_shared(&here, 1), 0);  // a thread waits at its own block's alone
}

// The bytes go to block 1, and block 0's mbarrier counts them.
extern "C" __global__ void counts_elsewhere(float* out) {
  __shared__ __align__(16) float slot[4];
  __shared__ ptx::mbarrier full;
  if (threadIdx.x == 0) ptx::mbarrier_init(&full, 1), ptx::fence_mbarrier_init();
  ptx::cluster_sync();  // the mbarriers of both blocks are there
  if (ptx::cluster_rank() == 0 && threadIdx.x == 0) {
    ptx::mbarrier_arrive_expect_tx(&full, 16);
    ptx::store_async(ptx::cluster_shared(slot, 1), make_float4(1, 2, 3, 4), ptx::cluster_shared(&full, 0));
    ptx::mbarrier_wait(&full, 0);
  }
  ptx::cluster_sync();  // it has come
  if (ptx::cluster_rank() == 1 && threadIdx.x < 4) out[threadIdx.x] = slot[threadIdx.x];
}

extern "C" __global__ void stuck(int which) {
  __shared__ ptx::mbarrier here;
  const unsigned rank = ptx::cluster_rank();
  if (threadIdx.x == 0) ptx::mbarrier_init(&here, 1);
  ptx::cluster_sync();                                        // all have begun
  if (which == 0 && rank == 1) ptx::mbarrier_wait(&here, 0);  // for ever
  if (which == 1 && threadIdx.x < 5) ptx::cluster_sync();     // some
  if (which == 1) __syncthreads();
  if (which == 2 && rank == 0) return;
  if (which == 2) ptx::mbarrier_wait(&here, 0);
  ptx::cluster_sync();  // the last
}

extern "C" __global__ void fails(int* x, int which, int block) {
  ptx::cluster_sync();
  if (blockIdx.x == block && threadIdx.x == 3) {
    if (which == 0) x[4096] = 1;
    if (which == 1) __trap();
    if (which == 2) x[0] = x[2] / x[1];
  }
  ptx::cluster_sync();
}
#endif

#ifdef MINI_DNN_EMULATOR
// ---- For checked mode: mistakes, and code that only looks like one.

extern "C" __global__ void writes_too_early(int* out) {
  __shared__ int box[64];
  box[threadIdx.x] = 0;
  __syncthreads();
  ptx::cluster_shared(box, ptx::cluster_rank() ^ 1)[threadIdx.x] = 1;  // the other block may not have begun
  ptx::cluster_sync();
  if (threadIdx.x == 0) out[blockIdx.x] = box[0];
  ptx::cluster_sync();
}

// A block may end while the other one reads its box. Or before that, a copy lacks a fence.
extern "C" __global__ void no_last_sync(int* out, bool copies) {
  __shared__ __align__(16) int box[64];
  box[threadIdx.x] = threadIdx.x;
  ptx::cluster_sync();
  if (copies) ptx::bulk_store(out, box, sizeof box);
  out[blockIdx.x * 64 + threadIdx.x] = ptx::cluster_shared(box, ptx::cluster_rank() ^ 1)[threadIdx.x];
}

extern "C" __global__ void overwrites(int* out) {
  __shared__ int box[64];
  int sum = 0;
  for (int i = 0; i < 2; i++) {
    box[threadIdx.x] = i;                                                   // again
    ptx::cluster_sync();                                                    // both have written
    sum += ptx::cluster_shared(box, ptx::cluster_rank() ^ 1)[threadIdx.x];  // while it is read
  }
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
  ptx::cluster_sync();
}

// Through global memory, to the other block of the cluster or to one of the next cluster.
extern "C" __global__ void hands_over(int* x, bool within) {
  if (threadIdx.x == 0) x[blockIdx.x] = 5;
  ptx::cluster_sync();  // that both have written
  if (threadIdx.x == 1) x[(blockIdx.x ^ (within ? 1 : 2))] += within ? 0 : 1;
}

extern "C" __global__ void too_far(int* out) {
  __shared__ int box[64];
  box[threadIdx.x] = 1;
  ptx::cluster_sync();
  const int* const there = ptx::cluster_shared(box, ptx::cluster_rank() ^ 1);
  if (threadIdx.x == 7) out[blockIdx.x] = there[threadIdx.x + 57];
  ptx::cluster_sync();
}

extern "C" __global__ void no_shared_pointer(int* x) {
  ptx::cluster_shared(x, 1)[threadIdx.x] = 1;
  ptx::cluster_sync();
}

extern "C" __global__ void publishes(int* out, bool fence) {
  __shared__ ptx::mbarrier here;
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&here, 1);
    if (fence) ptx::fence_mbarrier_init();
  }
  __syncthreads();
  ptx::cluster_arrive_relaxed();
  ptx::cluster_wait();
  if (threadIdx.x == 0) {
    ptx::mbarrier_arrive_cluster(&here, ptx::cluster_rank() ^ 1);
    ptx::mbarrier_wait(&here, 0);
    out[blockIdx.x] = 1;
  }
  ptx::cluster_sync();
}

extern "C" __global__ void reads_what_is_sent(float* x) {
  __shared__ __align__(128) float buffer[64];
  __shared__ ptx::mbarrier full;
  buffer[threadIdx.x] = 0;
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&full, 1);
    ptx::fence_mbarrier_init();
    ptx::mbarrier_arrive_expect_tx(&full, 256);
  }
  ptx::cluster_sync();
  if (ptx::cluster_rank() == 0 && threadIdx.x == 0) ptx::bulk_load_multicast(buffer, x, 256, &full, 3);
  ptx::cluster_sync();  // orders what threads do, and not the copy engine
  const float early = buffer[threadIdx.x];
  ptx::mbarrier_wait(&full, 0);
  x[threadIdx.x] = early;
}

extern "C" __global__ void polls(int* out) {
  __shared__ ptx::mbarrier here;
  if (threadIdx.x == 0) ptx::mbarrier_init(&here, 1);
  ptx::cluster_sync();
  if (ptx::cluster_rank() == 0)
    while (!ptx::mbarrier_try_wait(&here, 0)) {
    }
  ptx::cluster_sync();
}

extern "C" __global__ void sleeps(int* out, int times) {
  for (int i = 0; i < times; i++) __nanosleep(20);
  ptx::cluster_sync();
}

// Clusters of two blocks: each waits for the next one.
extern "C" __global__ void last_cluster_to_first(int* flags) {
  const unsigned next = blockIdx.x + 2;
  while (next < gridDim.x && atomicAdd(flags + next, 0) == 0) __nanosleep(20);
  __syncthreads();  // all threads have seen the flag
  if (threadIdx.x == 0) atomicExch(flags + blockIdx.x, 1);
}
#endif
