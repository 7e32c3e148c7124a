// The bytes of an operation and none of its arithmetic: what memory alone asks of any kernel that moves as many.
//
// Idea      an item (an image, as a rule) is `read` bytes in and `write` bytes out. A part of it comes into shared
//           memory by one bulk copy, and goes out by as many bulk copies from the same place as its share of the output
//           takes: no byte passes a register. What is written is what was read, again and again, to be checked.
// Mapping   blocks stay and take parts from a counter, in order, so that what is at work lies close together in memory.
//           One thread of a block starts all copies, the others only write patterns; `buffers` parts are on their way
//           in or out at once.
// Limits    sm_90, which has bulk copies; read and write are multiples of 16. With read 0 a buffer's own pattern is
//           written: its 32-bit words, counted.
// Hazards   counters[0] counts the parts handed out, counters[1] the blocks that are done; both are 0 at the start, and
//           the last block leaves them so. A buffer is loaded again when all but the LAG latest groups of stores have
//           read theirs, hence LAG < buffers.
// Source    PTX ISA: cp.async.bulk, mbarrier.
#include <mini_dnn/ptx.cuh>

constexpr int MAX_BUFFERS = 32;

// Where part `part` of so many bytes begins: in units of 16.
__device__ int begin(int bytes, int part, int parts) { return bytes / 16 * part / parts * 16; }

// Shared memory: buffers * pitch bytes, pitch a multiple of 128 and at least the largest part that is read.
extern "C" __global__ void move(const char* from, char* to, unsigned* counters, int items, int read, int write,
                                int parts, int buffers, int pitch) {
  extern __shared__ __align__(128) char memory[];
  __shared__ int ids[MAX_BUFFERS];  // of the parts in the buffers
  __shared__ ptx::mbarrier full[MAX_BUFFERS];
  const int count = items * parts;
  if (threadIdx.x == 0)
    for (int i = 0; i < buffers; i++) ptx::mbarrier_init(&full[i], 1);
  if (read == 0)
    for (int b = 0; b < buffers; b++)
      for (int i = threadIdx.x; i < pitch / 4; i += blockDim.x) reinterpret_cast<int*>(memory + b * pitch)[i] = i;
  ptx::fence_proxy_async();
  __syncthreads();  // mbarriers and patterns are there
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
  __threadfence();  // this block has taken its last part before it counts as done
  if (atomicAdd(counters + 1, 1) == gridDim.x - 1) counters[0] = counters[1] = 0;
}
