// Launches that may start before the previous launches have ended: tests/test_check_ahead.py.
#include <mini_dnn/ptx.cuh>

enum { FIRST, LATER, ANOTHER, NEVER, COPY, CP_ASYNC };  // when `add` waits for the launches ahead, and how it reads

extern "C" __global__ void fill(float* x, float value) {
  ptx::grid_wait();
  x[blockIdx.x * blockDim.x + threadIdx.x] = value;
}

extern "C" __global__ void look(const float* x, float* y) {
  ptx::grid_wait();
  y[threadIdx.x] = x[threadIdx.x];
}

// y = w + x of a block of 32 threads; x is read after the wait.
extern "C" __global__ void add(const float* w, const float* x, float* y, int wait) {
  __shared__ alignas(128) float kept[32];
  __shared__ ptx::mbarrier landed;
  const int i = blockIdx.x * 32 + threadIdx.x;
  if (wait == FIRST) ptx::grid_wait();
  if (wait == ANOTHER) {
    if (threadIdx.x == 31) ptx::grid_wait();
    __syncthreads();  // one has waited for all
  }
  if (wait == COPY) {
    if (threadIdx.x == 0) {
      ptx::mbarrier_init(&landed, 1);
      ptx::fence_proxy_async();
      ptx::mbarrier_arrive_expect_tx(&landed, sizeof kept);
      ptx::bulk_load(kept, w + blockIdx.x * 32, sizeof kept, &landed);
    }
    __syncthreads();  // the mbarrier is there
    ptx::mbarrier_wait(&landed, 0);
  } else if (wait == CP_ASYNC) {
    ptx::cp_async<4>(kept + threadIdx.x, w + i);
    ptx::cp_async_commit();
    ptx::cp_async_wait<0>();
  } else {
    kept[threadIdx.x] = w[i];
  }
  if (wait != NEVER || blockIdx.x == 0) ptx::grid_wait();
  y[i] = kept[threadIdx.x] + x[i];
}

// Writes what the launch ahead may still read.
extern "C" __global__ void overwrite(float* x, int wait) {
  if (wait) ptx::grid_wait();
  x[threadIdx.x] = 2.0f;
}

// y = w of a block of 64 threads, of which the first waits; the second warp does so itself, reads a flag, waits for an
// mbarrier or for nothing. EARLIER: for an mbarrier at which the first thread arrives before it waits. LANDED: the
// same, but the mbarrier also counts the bytes of a copy that this thread starts after it has waited.
enum { MBARRIER = 10, FLAG, NOTHING, EARLIER, LANDED };
extern "C" __global__ void meet(const float* w, float* y, int how) {
  __shared__ __align__(16) float copied[4];
  __shared__ ptx::mbarrier done, begun, landed;
  __shared__ volatile int flag;
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&done, 1);
    ptx::mbarrier_init(&begun, 1);
    ptx::mbarrier_init(&landed, 1);
    ptx::fence_proxy_async();
    flag = 0;
  }
  __syncthreads();  // they are there
  if (threadIdx.x == 0) {
    ptx::mbarrier_arrive(&begun);
    ptx::mbarrier_arrive_expect_tx(&landed, sizeof copied);
    ptx::grid_wait();
    ptx::bulk_load(copied, w, sizeof copied, &landed);
    ptx::mbarrier_arrive(&done);
    __threadfence_block();
    flag = 1;
  }
  if (threadIdx.x < 32) {
    __syncwarp();  // the first lane has waited
  } else if (how == MBARRIER) {
    ptx::mbarrier_wait(&done, 0);
  } else if (how == EARLIER) {
    ptx::mbarrier_wait(&begun, 0);
  } else if (how == LANDED) {
    ptx::mbarrier_wait(&landed, 0);
  } else if (how == FLAG) {
    while (!flag) continue;
    __threadfence_block();
  }
  y[threadIdx.x] = w[threadIdx.x];
}
