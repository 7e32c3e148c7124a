// Fences in checked mode: whether the copy engine and the tensor cores see what threads wrote to shared memory and to
// registers.
#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <vector>

#include "flights.h"

namespace emulator {

// A thread's variables, from `start` on, when it called wgmma_fence() last, and the time of the call. Sums that
// products have changed since are as these left them.
struct Fenced {
  uint64_t time;
  const char* start;
  std::vector<char> bytes;
};

// Of one block or cluster.
struct Fences {
  uint32_t cluster_epoch = 0;
  uint32_t proxy[MAX_CLUSTER][MAX_THREADS];     // when each thread called fence_proxy_async() last
  uint32_t barriers[MAX_CLUSTER][MAX_THREADS];  // or fence_mbarrier_init()
  Fenced registers[MAX_CLUSTER][MAX_THREADS];
  uint64_t time;                                      // of waits for products and of wgmma_fence()
  std::unordered_map<const float*, uint64_t> waited;  // when a thread waited for these sums; it has a stack of its own
};
std::shared_ptr<Fences> fences;

namespace {

void begin() {
  const Check& c = the_check;
  if (!fences) fences = std::make_shared<Fences>();
  if (fences->cluster_epoch == c.cluster_epoch) return;
  fences->cluster_epoch = c.cluster_epoch;
  for (unsigned i = 0; i < (c.many ? this_worker->cluster->size : 1); i++) {
    std::fill_n(fences->proxy[i], MAX_THREADS, 0);
    std::fill_n(fences->barriers[i], MAX_THREADS, 0);
    for (Fenced& fenced : fences->registers[i]) fenced.time = 0;
  }
  fences->time = 0;
  fences->waited.clear();
}

Fenced& my_fence() { return fences->registers[the_check.rank][linear_thread]; }

// Where these registers of a thread are in what it had at its last wgmma_fence(); nullptr: it did not have them.
char* at_fence(Fenced& fenced, const void* registers, size_t bytes) {
  const size_t at = static_cast<const char*>(registers) - fenced.start;
  return at < fenced.bytes.size() && bytes <= fenced.bytes.size() - at ? &fenced.bytes[at] : nullptr;
}

bool is_changed(const void* registers, size_t bytes) {
  const char* const before = at_fence(my_fence(), registers, bytes);
  return before && memcmp(before, registers, bytes);
}

bool waited_since_fence(const float* d) {
  const auto found = fences->waited.find(d);
  return found != fences->waited.end() && found->second > my_fence().time;
}

size_t bytes_of_sums(const Product& product) { return product.call.columns / 2 * sizeof(float); }

}  // namespace

void note_proxy_fence() {
  begin();
  fences->proxy[the_check.rank][linear_thread] = now();
}

void note_barrier_fence() {
  begin();
  fences->barriers[the_check.rank][linear_thread] = now();
}

void note_register_fence() {
  begin();
  Fenced& fenced = my_fence();
  fenced.time = ++fences->time;
  fenced.start = static_cast<const char*>(__builtin_frame_address(0));
  fenced.bytes.assign(fenced.start, this_worker->current->kernel_top);
}

bool is_fenced(uint32_t epoch, unsigned writer) {
  begin();
  return epoch <= fences->proxy[rank_of(epoch)][writer] || epoch <= fences->proxy[the_check.rank][linear_thread];
}

void note_barrier_made(Barrier& barrier) {
  begin();
  barrier.notes.maker = linear_thread;
  barrier.notes.made = now();
  barrier.notes.made_pc = the_check.last_pc;
  barrier.notes.number = number_of(barrier.address);
}

// The copy engine has to see that the mbarrier is one.
void check_barrier_fenced(const Barrier& barrier, const Copy& copy) {
  const BarrierNotes& n = barrier.notes;
  if (is_fenced(n.made, n.maker) || n.made <= fences->barriers[rank_of(n.made)][n.maker]) return;
  const Party maker{1, 0, n.maker, block_of(n.made), n.made_pc};
  note_finding(FindingKind::async, copy_name(copy.kind, copy.multicast), "barrier",
               static_cast<const char*>(barrier.address), 8, this_thread(copy.call), maker);
  stop(FailureKind::finding);
}

void check_registers(const Product& product, const float* d, const unsigned* a, const void* call) {
  begin();
  const bool adds = product.call.accumulate;
  const char* const state = !my_fence().time                                ? "first"
                            : adds && is_changed(d, bytes_of_sums(product)) ? "sums"
                            : !adds && waited_since_fence(d)                ? "reused"
                            : a && is_changed(a, 4 * sizeof *a)             ? "operand"
                                                                            : nullptr;
  if (!state) return;
  note_finding(FindingKind::async, copy_name(CopyKind::product, false), state, product.b.start, CHUNK,
               this_thread(call));
  stop(FailureKind::finding);
}

void note_sums_made(const Product& product) {
  begin();
  Fenced* const lanes = fences->registers[the_check.rank] + product.thread / WARP * WARP;
  for (unsigned i = 0; i < WARP; i++)
    if (char* const before = at_fence(lanes[i], product.d[i], bytes_of_sums(product)))
      memcpy(before, product.d[i], bytes_of_sums(product));
}

void note_sums_waited(const Product& product) {
  begin();
  for (const float* d : product.d) fences->waited[d] = ++fences->time;
}

}  // namespace emulator
