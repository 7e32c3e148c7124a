// Fences in checked mode: whether the copy engine and the tensor cores see what threads wrote to shared memory and to
// registers.
#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <vector>

#include "flights.h"

namespace emulator {

namespace {

// Registers of a product as its thread left them; each thread has a stack of its own.
struct Seen {
  uint64_t hash, time;
};

// A thread's variables, from `start` on, when it called wgmma_fence() last, and the time of the call.
struct Fenced {
  uint64_t time;
  const char* start;
  std::vector<char> bytes;
};

// Of one block or cluster.
struct {
  uint32_t cluster_epoch = 0;
  uint32_t proxy[MAX_CLUSTER][MAX_THREADS];     // when each thread called fence_proxy_async() last
  uint32_t barriers[MAX_CLUSTER][MAX_THREADS];  // or fence_mbarrier_init()
  Fenced registers[MAX_CLUSTER][MAX_THREADS];
  uint64_t time;  // of products and of wgmma_fence()
  std::unordered_map<const void*, Seen> seen;
} fences;

void begin() {
  const Check& c = the_check;
  if (fences.cluster_epoch == c.cluster_epoch) return;
  fences.cluster_epoch = c.cluster_epoch;
  for (unsigned i = 0; i < (c.many ? this_worker->cluster->size : 1); i++) {
    std::fill_n(fences.proxy[i], MAX_THREADS, 0);
    std::fill_n(fences.barriers[i], MAX_THREADS, 0);
    for (Fenced& fenced : fences.registers[i]) fenced.time = 0;
  }
  fences.time = 0;
  fences.seen.clear();
}

Fenced& my_fence() { return fences.registers[the_check.rank][linear_thread]; }

uint64_t hash_of(const void* registers, size_t count) {
  uint64_t hash = count;
  for (size_t i = 0; i < count; i++)
    hash = (hash ^ static_cast<const uint32_t*>(registers)[i]) * 0x9e3779b97f4a7c15 + (hash >> 29);
  return hash;
}

// What a product has left in registers or found there, unless the thread has called wgmma_fence() since.
const Seen* seen_since_fence(const void* registers) {
  const auto found = fences.seen.find(registers);
  const bool later = found != fences.seen.end() && found->second.time > my_fence().time;
  return later ? &found->second : nullptr;
}

// Whether registers are not as a product or the thread's last wgmma_fence() has left them, whichever came later.
bool is_changed(const void* registers, size_t count) {
  if (const Seen* seen = seen_since_fence(registers)) return seen->hash != hash_of(registers, count);
  const Fenced& fenced = my_fence();
  const size_t at = static_cast<const char*>(registers) - fenced.start, bytes = 4 * count;
  return at < fenced.bytes.size() && bytes <= fenced.bytes.size() - at && memcmp(&fenced.bytes[at], registers, bytes);
}

}  // namespace

void note_proxy_fence() {
  begin();
  fences.proxy[the_check.rank][linear_thread] = now();
}

void note_barrier_fence() {
  begin();
  fences.barriers[the_check.rank][linear_thread] = now();
}

void note_register_fence() {
  begin();
  Fenced& fenced = my_fence();
  fenced.time = ++fences.time;
  fenced.start = static_cast<const char*>(__builtin_frame_address(0));
  fenced.bytes.assign(fenced.start, this_worker->current->kernel_top);
}

bool is_fenced(uint32_t epoch, unsigned writer) {
  begin();
  return epoch <= fences.proxy[rank_of(epoch)][writer] || epoch <= fences.proxy[the_check.rank][linear_thread];
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
  if (is_fenced(n.made, n.maker) || n.made <= fences.barriers[rank_of(n.made)][n.maker]) return;
  const Party maker{1, 0, n.maker, block_of(n.made), n.made_pc};
  note_finding(FindingKind::async, copy_name(copy.kind, copy.multicast), "barrier",
               static_cast<const char*>(barrier.address), 8, this_thread(copy.call), maker);
  stop(FailureKind::finding);
}

void check_registers(const Product& product, const float* d, const unsigned* a, const void* call) {
  begin();
  const bool adds = product.call.accumulate;
  const char* const state = !my_fence().time                                  ? "first"
                            : adds && is_changed(d, product.call.columns / 2) ? "sums"
                            : !adds && seen_since_fence(d)                    ? "reused"
                            : a && is_changed(a, 4)                           ? "operand"
                                                                              : nullptr;
  if (a) fences.seen[a] = {hash_of(a, 4), ++fences.time};
  if (!state) return;
  note_finding(FindingKind::async, copy_name(CopyKind::product, false), state, product.b.start, CHUNK,
               this_thread(call));
  stop(FailureKind::finding);
}

void note_sums(const Product& product) {
  begin();
  for (const float* d : product.d) fences.seen[d] = {hash_of(d, product.call.columns / 2), ++fences.time};
}

}  // namespace emulator
