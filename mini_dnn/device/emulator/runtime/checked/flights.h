// Copies and products that are in flight, for checked mode.
#pragma once
#include "../async.h"
#include "access.h"

namespace emulator {

constexpr size_t WORD = 4;  // bytes

struct Flight {
  CopyKind kind;
  bool multicast;
  unsigned thread;
  uint64_t pc;
  bool committed;
  uint64_t block = the_check.block;
  uint32_t epoch = now();    // when it was started, or a product was last read
  uint16_t lander = NOBODY;  // who writes when it lands: the mbarrier that counts it
};

// For one block or cluster: its copies and products so far, and for each word of a block's shared memory the number of
// the last one that is in flight there.
struct Flights {
  uint32_t cluster_epoch = 0;
  std::vector<Flight> all;
  std::vector<uint32_t> words[MAX_CLUSTER];
};
extern Flights flights;
struct Fences;  // fences.cpp
extern std::shared_ptr<Fences> fences;

inline bool only_reads(CopyKind kind) { return is_store(kind) || kind == CopyKind::product; }  // shared memory

inline Party this_thread(const void* call) { return {0, 0, linear_thread, the_check.block, pc_of(call)}; }
inline Party starter(const Flight& f) { return {0, 0, f.thread, f.block, f.pc}; }

void begin_flights();  // unless those of this block or cluster have begun
const Region* find_region(const char* p);
// The finding that ends the launch: `state` says what is wrong with the call of a function, or with what it started.
void note_finding(FindingKind kind, const char* name, const char* state, const char* p, size_t bytes, Party own,
                  Party other = {});
void note_finding(const Flight& flight, const char* state, const char* p, size_t bytes, Party own);

template <class Visit>
void each_word(const char* p, size_t bytes, Visit visit) {
  const int rank = shared_of(p);
  if (rank < 0 || !bytes) return;
  const char* const start = block_check(rank).shared_start;
  auto& words = flights.words[rank];
  const size_t first = (p - start) / WORD, last = (p + bytes - 1 - start) / WORD;
  for (size_t i = first; i <= last && i < words.size(); i++) visit(words[i]);
}

}  // namespace emulator
