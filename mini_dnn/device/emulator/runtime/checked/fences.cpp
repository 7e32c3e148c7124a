// Fences in checked mode: whether the copy engine and the tensor cores see what threads wrote to shared memory and to
// registers.
#include <algorithm>
#include <unordered_map>

#include "../async.h"
#include "access.h"

namespace emulator {

namespace {

// Registers of a product as its thread left them; each thread has a stack of its own.
struct Seen {
  uint64_t hash, time;
};

// Of one block or cluster.
struct {
  uint32_t cluster_epoch = 0;
  uint32_t proxy[MAX_CLUSTER][MAX_THREADS];      // when each thread called fence_proxy_async() last
  uint32_t barriers[MAX_CLUSTER][MAX_THREADS];   // or fence_mbarrier_init()
  uint64_t registers[MAX_CLUSTER][MAX_THREADS];  // or wgmma_fence(), in a time of its own
  uint64_t time;
  std::unordered_map<const void*, Seen> seen;
} fences;

void begin() {
  const Check& c = the_check;
  if (fences.cluster_epoch == c.cluster_epoch) return;
  fences.cluster_epoch = c.cluster_epoch;
  for (unsigned i = 0; i < (c.many ? this_worker->cluster->size : 1); i++) {
    std::fill_n(fences.proxy[i], MAX_THREADS, 0);
    std::fill_n(fences.barriers[i], MAX_THREADS, 0);
    std::fill_n(fences.registers[i], MAX_THREADS, 0);
  }
  fences.time = 0;
  fences.seen.clear();
}

uint64_t hash_of(const void* registers, size_t count) {
  uint64_t hash = count;
  for (size_t i = 0; i < count; i++)
    hash = (hash ^ static_cast<const uint32_t*>(registers)[i]) * 0x9e3779b97f4a7c15 + (hash >> 29);
  return hash;
}

// Whether registers are not as they were when `seen` was noted, and no wgmma_fence() has come since.
bool is_changed(const void* registers, size_t count) {
  const auto found = fences.seen.find(registers);
  return found != fences.seen.end() && found->second.time > fences.registers[the_check.rank][linear_thread] &&
         found->second.hash != hash_of(registers, count);
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
  fences.registers[the_check.rank][linear_thread] = ++fences.time;
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
}

// The copy engine has to see that the mbarrier is one.
void check_barrier_fenced(const Barrier& barrier, const Copy& copy) {
  const BarrierNotes& n = barrier.notes;
  if (is_fenced(n.made, n.maker) || n.made <= fences.barriers[rank_of(n.made)][n.maker]) return;
  const Party maker{1, 0, n.maker, block_of(n.made), n.made_pc};
  note_async(copy_name(copy.kind, copy.multicast), "barrier", static_cast<const char*>(barrier.address), 8, copy.call,
             maker);
  stop(FailureKind::finding);
}

void check_registers(const Product& product, const float* d, const unsigned* a, const void* call) {
  begin();
  const uint64_t last = fences.registers[the_check.rank][linear_thread];
  const char* const state = !last                                                                ? "first"
                            : product.call.accumulate && is_changed(d, product.call.columns / 2) ? "sums"
                            : a && is_changed(a, 4)                                              ? "operand"
                                                                                                 : nullptr;
  if (a) fences.seen[a] = {hash_of(a, 4), ++fences.time};
  if (!state) return;
  note_async(copy_name(CopyKind::product, false), state, product.b.start, CHUNK, call, {});
  stop(FailureKind::finding);
}

void note_sums(const Product& product) {
  begin();
  for (const float* d : product.d) fences.seen[d] = {hash_of(d, product.call.columns / 2), ++fences.time};
}

}  // namespace emulator
