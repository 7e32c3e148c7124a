#include "clocks.h"

#include <algorithm>
#include <memory>
#include <unordered_map>

namespace emulator {

namespace {

// What comes before a fence: of the thread itself, of its warp and of its block. 0: nothing.
struct Before {
  uint32_t thread = 0, warp = 0, block = 0;
};

// When threads last fenced before they met.
using FenceTimes = std::shared_ptr<const std::vector<uint32_t>>;

// A flag that was set, and what comes before that.
struct Message {
  uint64_t block;
  uint16_t thread;
  uint32_t set;                        // when
  Before near, far;                    // for threads of the same block, and for those of others
  FenceTimes fences;                   // of all threads of the block, before its last barrier
  FenceTimes near_fences, far_fences;  // of its warp's lanes, before they last met
  Knowledge known;                     // what the thread knew at its fence
  SharedClock clock;                   // likewise
};

struct Fence {
  Before near, far;
  Knowledge known;
  SharedClock clock;
  uint32_t number = 0;  // of the thread's fences so far
};

}  // namespace

struct Flag {
  const char* address;
  uint32_t first = 0;  // a store ends what atomics have accumulated
  std::vector<Message> messages;
  std::unordered_map<uint64_t, std::vector<uint32_t>> of_block;
  std::unordered_map<uint64_t, uint64_t> latest;  // for each thread: the fences that it has published
  std::vector<uint32_t> with_knowledge;           // the messages with knowledge
};

struct BlockOrder {
  bool used = false, changed = false;  // by the block; since its last barrier
  FenceTimes fences;
  uint32_t barriers = 0;  // barriers after fences
  uint32_t met = 0;       // when the last of them was
  struct OfWarp {
    FenceTimes near_fences, far_fences;
    uint32_t meetings = 0, met = 0;
  } warps[MAX_THREADS / WARP];
  Knowledge all;                      // what all threads know
  Fence fence[MAX_THREADS];           // the last one
  Knowledge known[MAX_THREADS];       // what each thread has learned since the last barrier
  uint32_t stored[MAX_THREADS] = {};  // when it last stored something after the first fence
};

namespace {

std::unordered_map<uint64_t, std::unique_ptr<Flag>> flags;
std::vector<std::unique_ptr<BlockOrder>> orders;

void add(Knowledge& to, const Knowledge& more) {
  for (const Told& told : more) add(to, told);
}

// Different blocks have the same addresses for shared memory.
uint64_t key_of(const char* p, bool shared) {
  return reinterpret_cast<uint64_t>(p) + (shared ? (the_check.block + 1) << 48 : 0);
}

Flag* find_flag(const char* p, bool shared) {
  const auto found = flags.find(key_of(p, shared));
  return found == flags.end() ? nullptr : found->second.get();
}

bool covers(const Message& m, const Before& before, uint16_t who, uint32_t time) {
  if (m.clock && m.clock->covers(who, time)) return true;
  if (who >= LANDED) return false;  // the copies that an mbarrier counts
  if (time < before.block || (who / WARP == m.thread / WARP && time < before.warp)) return true;
  if (who == m.thread && time < before.thread) return true;
  if (m.fences && time < (*m.fences)[who]) return true;
  const FenceTimes& fences = &before == &m.near ? m.near_fences : m.far_fences;
  return fences && who / WARP == m.thread / WARP && time < (*fences)[who % WARP];
}

struct Search {
  uint64_t block;
  uint16_t who;
  uint32_t time;
  const char* p;
  Knowledge seen;

  bool tells(const Told& k, uint64_t reader) {
    for (const Told& s : seen)
      if (s.flag == k.flag && s.first <= k.first && s.last >= k.last) return false;
    seen.push_back(k);
    const Flag& flag = *k.flag;
    if (const auto found = flag.of_block.find(block); found != flag.of_block.end())
      for (auto i = found->second.rbegin(); i != found->second.rend(); ++i) {
        if (*i >= k.last) continue;
        if (*i < k.first) break;
        const Message& m = flag.messages[*i];
        if (covers(m, reader == block ? m.near : m.far, who, time)) return true;
        if (who == m.thread && time <= m.set && p == flag.address) return true;  // the flag itself
      }
    for (const uint32_t i : flag.with_knowledge) {
      if (i >= k.last) break;
      if (i < k.first) continue;
      for (const Told& further : flag.messages[i].known)
        if (tells(further, flag.messages[i].block)) return true;
    }
    return false;
  }
};

}  // namespace

BlockOrder* take_order(unsigned slot) {
  while (orders.size() <= slot) orders.push_back(std::make_unique<BlockOrder>());
  return orders[slot].get();
}

void forget_messages() { flags.clear(); }

void order_block_started(BlockOrder* order) {
  if (order->used) *order = {};
}

bool add(Knowledge& to, const Told& more) {
  for (Told& k : to)
    if (k.flag == more.flag && k.first == more.first) {
      const bool changes = k.last < more.last;
      k.last = std::max(k.last, more.last);
      return changes;
    }
  to.push_back(more);
  return true;
}

const Knowledge& flags_seen(const BlockOrder& o, unsigned thread) { return o.known[thread]; }

void learn_flag(BlockOrder& o, unsigned thread, const Told& told) {
  o.used = o.changed = true;
  add(o.known[thread], told);
}

void order_block_met() {
  BlockOrder& o = *the_check.order;
  if (!o.changed) return;
  o.changed = false;
  const unsigned total = this_worker->total;
  for (unsigned i = 0; i < total; i++) {
    add(o.all, o.known[i]);
    o.known[i].clear();
  }
  bool fenced = false;
  for (unsigned i = 0; i < total; i++) fenced |= o.fence[i].far.thread >= the_check.epoch;
  if (!fenced) return;
  auto times = std::make_shared<std::vector<uint32_t>>(total);
  for (unsigned i = 0; i < total; i++) (*times)[i] = o.fence[i].far.thread;
  o.fences = times;
  o.barriers++;
  o.met = the_check.clock + 1;
}

void order_warp_met(unsigned warp) {
  BlockOrder& o = *the_check.order;
  if (!o.changed) return;
  Knowledge all;
  bool fenced = false;
  const unsigned first = warp * WARP, end = std::min<unsigned>(first + WARP, this_worker->total);
  for (unsigned i = first; i < end; i++) {
    add(all, o.known[i]);
    fenced |= o.fence[i].near.thread > the_check.warp_epochs[warp];
  }
  for (unsigned i = first; i < end; i++) o.known[i] = all;
  if (!fenced) return;
  auto near = std::make_shared<std::vector<uint32_t>>(WARP), far = std::make_shared<std::vector<uint32_t>>(WARP);
  for (unsigned i = first; i < end; i++) {
    (*near)[i - first] = o.fence[i].near.thread;
    (*far)[i - first] = o.fence[i].far.thread;
  }
  BlockOrder::OfWarp& w = o.warps[warp];
  w.near_fences = near;
  w.far_fences = far;
  w.meetings++;
  w.met = the_check.clock + 1;
}

void note_fence(Scope scope) {
  Check& c = the_check;
  if (!c.active) return;
  c.fenced = true;
  c.token = NO_TOKEN;
  BlockOrder& o = *c.order;
  o.used = o.changed = true;
  Fence& f = o.fence[linear_thread];
  f.near = {new_epoch(c.rank), c.warp_epochs[linear_thread / WARP], c.epoch};
  if (scope == Scope::device) f.far = f.near;
  f.known = o.all;
  add(f.known, o.known[linear_thread]);
  f.clock = known_now();
  f.number++;
}

bool takes_fence(uint32_t time) {
  BlockOrder& o = *the_check.order;
  const uint32_t fence = std::max({o.fence[linear_thread].near.thread, o.met, o.warps[linear_thread / WARP].met});
  uint32_t& stored = o.stored[linear_thread];
  const bool takes = fence > stored;
  stored = time;
  o.used = true;
  return takes;
}

void note_flag_set(const char* p, bool shared, bool update) {
  Check& c = the_check;
  const BlockOrder& o = *c.order;
  const Fence& f = o.fence[linear_thread];
  auto& slot = flags[key_of(p, shared)];
  if (!slot) slot = std::make_unique<Flag>(Flag{p});
  Flag& flag = *slot;
  if (!update) flag.first = flag.messages.size();
  const BlockOrder::OfWarp& w = o.warps[linear_thread / WARP];
  if (!f.number && !o.fences && !w.met) return;                        // it publishes nothing
  const uint64_t told = uint64_t(f.number) + o.barriers + w.meetings;  // each of them only increases
  uint64_t& latest = flag.latest[c.block * MAX_THREADS + linear_thread];
  if (update && latest == told + 1) return;
  latest = told + 1;
  const uint32_t number = flag.messages.size();
  flag.messages.push_back({c.block, uint16_t(linear_thread), now(), f.near, f.far, o.fences, w.near_fences,
                           w.far_fences, f.known, f.clock});
  Message& m = flag.messages.back();
  if (o.fences || w.met) add(m.known, o.all);
  flag.of_block[c.block].push_back(number);
  if (!m.known.empty()) flag.with_knowledge.push_back(number);
}

void note_flag_seen(const char* p, bool shared) {
  const Flag* flag = find_flag(p, shared);
  if (!flag || flag->first == flag->messages.size()) return;
  BlockOrder& o = *the_check.order;
  o.used = o.changed = true;
  add(o.known[linear_thread], {flag, flag->first, uint32_t(flag->messages.size())});
}

bool has_learned(uint64_t block, uint16_t who, uint32_t time, const char* p) {
  const Check& c = the_check;
  if (!c.fenced) return false;
  Search search{block, who, time, p, {}};
  const BlockOrder& o = *c.order;
  for (const Knowledge* each : {&o.known[linear_thread], &o.all})
    for (const Told& k : *each)
      if (search.tells(k, c.block)) return true;
  return false;
}

}  // namespace emulator
