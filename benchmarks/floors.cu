// Moves the bytes of an operation without its arithmetic. Its time is a lower bound for kernels that move as many.
//
// Idea      An item, as a rule an image, has `read` bytes of input and `write` bytes of output. One bulk copy loads a
//           part of it into shared memory. Several bulk copies store this part again and again, until its share of the
//           output is full. No byte passes through a register. The host checks what was written.
// Mapping   Blocks stay on their multiprocessors and take parts from a counter, in order, so that the parts in flight
//           are close together in memory. One thread of a block starts all copies, and the others only write patterns.
//           Up to `buffers` parts of a block are loaded or stored at a time.
// Limits    sm_90, which has bulk copies. `read` and `write` are multiples of 16. If `read` is 0, a pattern is stored
//           from each buffer: the numbers of its 32-bit words.
// Hazards   counters[0] is the number of parts that blocks have taken, and counters[1] that of blocks that are done.
//           Both are 0 at the start, and the last block resets them. A buffer is loaded again when all but the latest
//           LAG groups of stores have read theirs, so LAG has to be less than `buffers`.
// Source    PTX ISA: cp.async.bulk, mbarrier.
#include <mini_dnn/ptx.cuh>

constexpr int MAX_BUFFERS = 32;

// The byte at which a part begins. All parts are multiples of 16 bytes.
__device__ int begin(int bytes, int part, int parts) { return bytes / 16 * part / parts * 16; }

// Shared memory has buffers * pitch bytes. The pitch is a multiple of 128, and not less than the largest part.
extern "C" __global__ void move(const char* from, char* to, unsigned* counters, int items, int read, int write,
                                int parts, int buffers, int pitch) {
  extern __shared__ __align__(128) char memory[];
  __shared__ int ids[MAX_BUFFERS];  // the parts in the buffers
  __shared__ ptx::mbarrier full[MAX_BUFFERS];
  const int count = items * parts;
  if (threadIdx.x == 0)
    for (int i = 0; i < buffers; i++) ptx::mbarrier_init(&full[i], 1);
  if (read == 0)
    for (int b = 0; b < buffers; b++)
      for (int i = threadIdx.x; i < pitch / 4; i += blockDim.x) reinterpret_cast<int*>(memory + b * pitch)[i] = i;
  ptx::fence_proxy_async();
  __syncthreads();  // waits for mbarriers and patterns
  if (threadIdx.x > 0) return;

  auto load = [&](int buffer, int id) {
    ids[buffer] = id;
    if (read == 0 || id >= count) return;
    const int first = begin(read, id % parts, parts), bytes = begin(read, id % parts + 1, parts) - first;
    ptx::mbarrier_arrive_expect_tx(&full[buffer], bytes);
    ptx::bulk_load(memory + buffer * pitch, from + (long long)(id / parts) * read + first, bytes, &full[buffer]);
  };
  auto store = [&](const char* buffer, int id) {
    const int part = id % parts, period = read > 0 ? begin(read, part + 1, parts) - begin(read, part, parts) : pitch;
    const int end = begin(write, part + 1, parts);
    char* item = to + (long long)(id / parts) * write;
    for (int at = begin(write, part, parts); at < end; at += period)
      ptx::bulk_store(item + at, buffer, min(period, end - at));
    ptx::bulk_commit();
  };

  const int first = atomicAdd(counters, buffers);
  int ahead = atomicAdd(counters, 1);  // the part that is loaded next
  for (int i = 0; i < buffers; i++) load(i, first + i);
  for (int k = 0; ids[k % buffers] < count; k++) {
    const int buffer = k % buffers;
    if (read > 0) ptx::mbarrier_wait(&full[buffer], k / buffers & 1);
    store(memory + buffer * pitch, ids[buffer]);
    if (k < LAG) continue;
    ptx::bulk_wait_read<LAG>();
    load((k - LAG) % buffers, ahead);
    ahead = atomicAdd(counters, 1);
  }
  ptx::bulk_wait_read<0>();
  __threadfence();  // the block takes its last part before it counts as done
  if (atomicAdd(counters + 1, 1) == gridDim.x - 1) counters[0] = counters[1] = 0;
}
