// The play-back of a warp's streams, and its totals.
#include "recorder.h"

#include <dlfcn.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>

#include "warp_access.h"

namespace emulator {

Count the_count;

namespace {

constexpr uint32_t NONE = ~0u, WAITS = ~0u - 1;  // instead of a pc: the lane has ended; it waits for others
constexpr uint64_t ADDRESS = (uint64_t(1) << 48) - 1;

bool waits(const Event& e) { return e.kind == uint8_t(EventKind::barrier) || e.kind == uint8_t(EventKind::warp); }

const CountedArray* find(const std::vector<CountedArray>& arrays, uint64_t address) {
  auto next = std::upper_bound(arrays.begin(), arrays.end(), address,
                               [](uint64_t p, const CountedArray& a) { return p < a.start; });
  if (next == arrays.begin() || address - std::prev(next)->start >= std::prev(next)->bytes) return nullptr;
  return &*std::prev(next);
}

struct Place {
  Space space = Space::none;
  int32_t array = -1;
  uint64_t start = 0;
};

Place place_of(const Worker& w, uint64_t address) {
  Recorder& r = *w.recorder;
  if (const auto* a = find(r.shared, address)) return {Space::shared, a->number, a->start};
  if (const auto* a = find(the_count.arrays, address)) return {Space(a->space), a->number, a->start};
  for (unsigned rank = 0; w.cluster && rank < w.cluster->size; rank++) {
    const uint64_t distance = address - reinterpret_cast<uint64_t>(w.cluster->members[rank].anchor);
    for (const auto& a : the_count.shared)
      if (distance - a.start < a.bytes) return {Space::remote, a.number, address - (distance - a.start)};
  }
  return {};
}

Total& total_of(Recorder& r, const Event& e, const Place& place, uint16_t name) {
  int32_t* link = &r.first_total[e.pc < r.first_total.size() ? e.pc : 0];
  while (*link >= 0) {
    Total& t = r.totals[*link];
    if (t.array == place.array && t.kind == EventKind(e.kind) && t.space == place.space && t.name == name &&
        (name || t.bytes == e.bytes))
      return t;
    link = &r.next_total[*link];
  }
  *link = int32_t(r.totals.size());
  r.next_total.push_back(-1);
  Total fresh = {};
  fresh.pc = e.pc;
  fresh.array = place.array;
  fresh.kind = EventKind(e.kind);
  fresh.space = place.space;
  fresh.name = name;
  fresh.bytes = name ? 0 : e.bytes;
  return r.totals.emplace_back(fresh);
}

// Sectors of an array that this block has not used so far; from here on it has.
unsigned first_uses(Recorder& r, const Place& place, const Lanes& lanes) {
  if (place.array < 0) return 0;
  if (r.seen.size() <= size_t(place.array)) r.seen.resize(place.array + 1);
  auto& seen = r.seen[place.array];
  unsigned fresh = 0;
  lanes.each_piece(SECTOR, [&](uint64_t sector) {
    const size_t i = sector - place.start / SECTOR;
    if (i >= seen.size()) seen.resize(i + i / 2 + 64);
    if (seen[i] != r.block + 1) seen[i] = uint32_t(r.block + 1), fresh++;
  });
  return fresh;
}

void keep(Recorder& r, unsigned warp, uint32_t mask, const Event& e, const Place& place, uint16_t name,
          const uint64_t* addresses) {
  if (r.records.size() >= the_count.most_records) {
    the_count.records_left_out = true;
    return;
  }
  Record& record = r.records.emplace_back();
  record = {r.block, warp, e.pc, mask, name ? 0 : e.bytes, place.array, EventKind(e.kind), place.space, name, 0, {}};
  if (e.kind == uint8_t(EventKind::event)) record.number = e.address >> 48;
  for (uint32_t left = mask; left && place.array >= 0; left &= left - 1) {
    const unsigned i = std::countr_zero(left);
    record.offsets[i] = int64_t(addresses[i] - place.start);
  }
}

// Whether all lanes' loads go on where those before them have ended.
bool goes_on(const Neighbours& n, uint32_t mask, const uint64_t* at) {
  for (uint32_t left = mask; left; left &= left - 1) {
    const unsigned i = std::countr_zero(left);
    if (at[i] != n.first[i] + n.length) return false;
  }
  return true;
}

bool is_aligned(const Neighbours& n) {
  for (uint32_t left = n.mask; left; left &= left - 1)
    if ((n.first[std::countr_zero(left)] - n.start) % n.length) return false;
  return true;
}

// A load of neighbours: compilers merge two, four or eight that are aligned together, up to 16 bytes a lane.
void merge(Recorder& r, unsigned warp, Total& t, const Place& place, uint32_t mask, const uint64_t* at, unsigned bytes,
           unsigned wavefronts) {
  auto& all = r.neighbours[warp];
  for (Neighbours& n : all) {
    if (n.array != place.array || n.mask != mask || n.bytes != bytes || n.length == 16 || !goes_on(n, mask, at))
      continue;
    n.length += bytes;
    n.wavefronts += wavefronts;
    if (!std::has_single_bit(n.length) || !is_aligned(n)) return;
    const uint32_t merged = n.length / bytes - 1;
    const auto saved = int32_t(n.wavefronts - shared_wavefronts(n.first, mask, n.length).all);
    t.merged += merged - n.merged;
    t.saved += saved - n.saved;
    n.merged = merged;
    n.saved = saved;
    return;
  }
  if (bytes >= 16 || all.size() >= 64) return;
  Neighbours& n = all.emplace_back();
  n = {place.array, mask, bytes, bytes, wavefronts, 0, 0, place.start, {}};
  std::copy(at, at + WARP, n.first);
}

// One instruction of a warp. All lanes of the mask have the same event; only addresses differ. The lanes' number of
// splits is counted by the caller.
Total& execute(Worker& w, unsigned warp, uint32_t mask, const Event& e, const uint64_t* addresses) {
  Recorder& r = *w.recorder;
  const auto kind = EventKind(e.kind);
  if (kind == EventKind::block) {
    Total& t = total_of(r, e, {}, 0);
    t.instructions++;
    t.lanes += std::popcount(mask);
    r.neighbours[warp].clear();
    return t;
  }
  const bool named = kind >= EventKind::barrier;
  uint64_t at[WARP];
  for (unsigned i = 0; i < WARP; i++) at[i] = addresses[i] & ADDRESS;
  const bool has_address = !named || kind == EventKind::event;
  const uint64_t first = at[std::countr_zero(mask)];
  const Place place = has_address && first ? place_of(w, first) : Place{};
  const uint16_t name = named ? e.bytes : 0;
  Total& t = total_of(r, e, place, name);
  t.instructions++;
  t.lanes += std::popcount(mask);
  if (r.traced && (named || place.space != Space::none)) keep(r, warp, mask, e, place, name, at);
  if (kind == EventKind::event)
    for (uint32_t left = mask; left; left &= left - 1) t.number += addresses[std::countr_zero(left)] >> 48;
  if (named || place.space == Space::none) return t;
  if (kind >= EventKind::copy_load && e.bytes > 16) {  // a bulk copy: pieces one after the other
    for (uint32_t left = mask; left; left &= left - 1) {
      const Lanes lanes(at, left & -left, e.bytes);
      t.used_bytes += e.bytes;
      if (place.space != Space::global) continue;
      t.sectors += lanes.pieces(SECTOR);
      t.ideal_sectors += (e.bytes + SECTOR - 1) / SECTOR;
      t.lines += lanes.pieces(LINE);
      t.block_sectors += first_uses(r, place, lanes);
    }
    return t;
  }
  const Lanes lanes(at, mask, e.bytes);
  t.used_bytes += lanes.distinct_bytes();
  if (place.space == Space::shared || place.space == Space::remote) {
    const Wavefronts found = shared_wavefronts(at, mask, e.bytes);
    t.wavefronts += found.all;
    t.ideal_wavefronts += found.ideal;
    if (kind == EventKind::load)
      merge(r, warp, t, place, mask, at, e.bytes, found.all);
    else  // what was read may change
      std::erase_if(r.neighbours[warp], [&](const Neighbours& n) { return n.array == place.array; });
  } else {
    t.sectors += lanes.pieces(SECTOR);
    t.ideal_sectors += (lanes.distinct_bytes() + SECTOR - 1) / SECTOR;
    t.lines += lanes.pieces(LINE);
    t.block_sectors += first_uses(r, place, lanes);
    t.wavefronts += shared_wavefronts(at, mask, e.bytes).all;  // the data of the L1 cache lie in the same banks
  }
  return t;
}

// A warp while it is played back.
struct Play {
  Worker& w;
  const unsigned warp, count;  // of lanes
  Stream* streams;
  uint32_t ended;  // lanes
  uint32_t keys[WARP];
  uint64_t addresses[WARP];

  Play(Worker& w, unsigned warp)
      : w(w),
        warp(warp),
        count(std::min<unsigned>(WARP, w.total - warp * WARP)),
        streams(w.recorder->streams + warp * WARP),
        ended(w.warps[warp].exited) {
    for (unsigned i = 0; i < WARP; i++) keys[i] = NONE;
    for (unsigned i = 0; i < count; i++) look(i);
  }

  bool is_empty(unsigned i) const { return streams[i].next == streams[i].end; }
  void look(unsigned i) {
    if (is_empty(i)) {
      keys[i] = NONE;
      return;
    }
    const Event& e = *streams[i].next;
    keys[i] = waits(e) ? WAITS : e.pc;
    addresses[i] = e.address;
  }
  // Whether there is a lane whose next event is not known yet.
  bool lacks() const {
    for (unsigned i = 0; i < count; i++)
      if (keys[i] == NONE && !(ended >> i & 1)) return true;
    return false;
  }

  uint32_t lanes_at(uint32_t key) const {
    uint32_t mask = 0;
    for (unsigned i = 0; i < WARP; i++) mask |= uint32_t(keys[i] == key) << i;
    return mask;
  }

  // Of lanes that all wait: those that wait for the same.
  uint32_t meeting() const {
    uint32_t all = lanes_at(WAITS);
    for (uint32_t left = all; left; left &= left - 1) {
      const Event& e = *streams[std::countr_zero(left)].next;
      uint32_t same = 0;
      for (uint32_t others = all; others; others &= others - 1) {
        const Event& other = *streams[std::countr_zero(others)].next;
        if (other.kind == e.kind && other.bytes == e.bytes && other.address == e.address) same |= others & -others;
      }
      const uint32_t wanted = e.kind == uint8_t(EventKind::warp) ? uint32_t(e.address) : ~0u;
      uint32_t alive = 0;
      for (unsigned i = 0; i < count; i++) alive |= uint32_t(keys[i] != NONE) << i;
      if ((same & wanted) == (alive & wanted)) return same;
    }
    return all & -all;  // __activemask: lanes that met because the others could not come
  }

  bool step() {
    if (lacks()) return false;
    uint32_t key = NONE;
    for (unsigned i = 0; i < WARP; i++) key = std::min(key, keys[i]);
    if (key == NONE) return false;
    uint32_t mask = key == WAITS ? meeting() : lanes_at(key);
    const Event e = *streams[std::countr_zero(mask)].next;
    for (uint32_t left = key == WAITS ? 0 : mask; left; left &= left - 1) {
      const Event& other = *streams[std::countr_zero(left)].next;
      if (other.kind != e.kind || other.bytes != e.bytes) mask &= ~(left & -left);
    }
    Total& t = execute(w, warp, mask, e, addresses);
    uint32_t least = NONE, most = 0;
    bool known = true;
    for (uint32_t left = mask; left; left &= left - 1) {
      const unsigned i = std::countr_zero(left);
      streams[i].next++;
      look(i);
      known &= keys[i] != NONE || ended >> i & 1;
      least = std::min(least, keys[i]);
      most = std::max(most, keys[i]);
    }
    if (known && least != most) t.splits++;
    return true;
  }
};

constexpr size_t SMALL = 1024;

}  // namespace

void play(Worker& w, unsigned warp) {
  Play all(w, warp);
  while (all.step()) {
  }
  Recorder& r = *w.recorder;
  for (unsigned i = 0; i < all.count; i++) {
    Stream& s = all.streams[i];
    if (s.next != s.end) {  // what others have to catch up with
      memmove(s.first, s.next, (s.end - s.next) * sizeof(Event));
      s.end -= s.next - s.first;
      s.next = s.first;
      continue;
    }
    if (size_t(s.limit - s.first) == SMALL)
      r.spare.push_back(s.first);
    else
      delete[] s.first;
    s = {};
  }
}

void make_room(Recorder& r, Stream& s) {
  const size_t before = s.limit - s.first, used = s.end - s.first, taken = s.next - s.first;
  Event* fresh;
  if (!before && !r.spare.empty()) {
    fresh = r.spare.back();
    r.spare.pop_back();
  } else {
    fresh = new Event[before ? 2 * before : SMALL];
  }
  if (before) memcpy(fresh, s.first, used * sizeof(Event));
  if (before == SMALL)
    r.spare.push_back(s.first);
  else
    delete[] s.first;
  s = {fresh, fresh + taken, fresh + used, fresh + (before ? 2 * before : SMALL)};
}

uint16_t number_of_name(const char* name) {
  struct Known {
    const char *name, *text;  // another library may have another text there, later
    uint16_t number;
  };
  // on the heap: of static thread-local memory a process has a few hundred bytes for all libraries that it loads
  static thread_local const auto known = std::make_unique<Known[]>(64);
  auto& slot = known[reinterpret_cast<uintptr_t>(name) >> 3 & 63];
  if (slot.name == name && !strcmp(slot.text, name)) return slot.number;
  Count& c = the_count;
  std::lock_guard lock(c.mutex);
  size_t i = 0;
  while (i < c.names.size() && strcmp(c.names[i], name)) i++;
  if (i == c.names.size()) c.names.push_back(strdup(name));  // the library that it is in may be unloaded
  slot = {name, c.names[i], uint16_t(i)};
  return slot.number;
}

void count_launch_started(Worker& w, const Module& module, unsigned shared_bytes) {
  if (!w.recorder) w.recorder = new Recorder;  // for the life of the process, as the worker itself
  Recorder& r = *w.recorder;
  const Count& c = the_count;
  r.stacks = w.stacks;
  const std::initializer_list<const char*> words = {
      reinterpret_cast<const char*>(&threadIdx), reinterpret_cast<const char*>(&blockIdx),
      reinterpret_cast<const char*>(&blockDim), reinterpret_cast<const char*>(&gridDim),
      reinterpret_cast<const char*>(&linear_thread)};
  r.words = std::min(words);
  r.words_end = std::max(words) + sizeof(uint3);
  r.anchor = module.anchor();
  r.totals.clear();
  r.next_total.clear();
  r.first_total.assign(c.code_bytes, -1);
  r.seen.clear();
  r.records.clear();
  r.shared.clear();
  for (CountedArray a : c.shared) {
    if (a.bytes == ~uint64_t(0)) a.bytes = shared_bytes;
    a.start += reinterpret_cast<uint64_t>(r.anchor);
    if (a.bytes) r.shared.push_back(a);
  }
  std::sort(r.shared.begin(), r.shared.end(), [](auto& a, auto& b) { return a.start < b.start; });
}

void count_launch_ended(Worker& w) {
  Recorder& r = *w.recorder;
  Count& c = the_count;
  std::lock_guard lock(c.mutex);
  c.totals.insert(c.totals.end(), r.totals.begin(), r.totals.end());
  if (c.seen.size() < r.seen.size()) c.seen.resize(r.seen.size());
  for (size_t array = 0; array < r.seen.size(); array++) {
    auto& all = c.seen[array];
    if (all.size() < r.seen[array].size()) all.resize(r.seen[array].size());
    for (size_t i = 0; i < r.seen[array].size(); i++) all[i] |= r.seen[array][i] != 0;
  }
  c.records.insert(c.records.end(), r.records.begin(), r.records.end());
  for (Stream& s : r.streams) s.next = s.end = s.first;  // of a launch that failed
  r.totals.clear();
  r.records.clear();
}

void count_block_started(Worker& w) {
  if (!w.recorder) return;
  Recorder& r = *w.recorder;
  r.block = blockIdx.x + uint64_t(gridDim.x) * (blockIdx.y + uint64_t(gridDim.y) * blockIdx.z);
  r.traced = std::binary_search(the_count.traced.begin(), the_count.traced.end(), r.block);
}

void count_block_barrier(Worker& w) {
  for (unsigned warp = 0; warp * WARP < w.total; warp++) play(w, warp);
}

constexpr long ENOUGH = 512;  // events of a lane: then they are played back while they are in the cache

void count_warp_met(Worker& w, unsigned warp) {
  const Stream* s = w.recorder->streams + warp * WARP;
  if (s[linear_thread % WARP].end - s[linear_thread % WARP].next > ENOUGH) play(w, warp);
}

void count_thread_ended(Worker& w, unsigned thread) {
  if (!~w.warps[thread / WARP].exited) play(w, thread / WARP);
}

}  // namespace emulator

using namespace emulator;

#pragma GCC visibility push(default)
extern "C" {

int emulator_is_counted() { return 1; }

uint64_t emulator_base(void* address) {
  Dl_info info;
  return dladdr(address, &info) ? reinterpret_cast<uint64_t>(info.dli_fbase) : 0;
}

// What the next launch is: its kernel library, the arrays that it may use, and the blocks that are traced.
void emulator_count(char* base, uint64_t code_bytes, const CountedArray* arrays, size_t array_count,
                    const CountedArray* shared, size_t shared_count, const uint64_t* traced, size_t traced_count,
                    size_t most_records) {
  Count& c = the_count;
  c.base = base;
  c.code_bytes = code_bytes;
  c.arrays.assign(arrays, arrays + array_count);
  c.shared.assign(shared, shared + shared_count);
  c.traced.assign(traced, traced + traced_count);
  std::sort(c.arrays.begin(), c.arrays.end(), [](auto& a, auto& b) { return a.start < b.start; });
  std::sort(c.traced.begin(), c.traced.end());
  c.most_records = most_records;
  c.totals.clear();
  c.seen.clear();
  c.records.clear();
  c.records_left_out = false;
}

// Of the last launch; those of several workers are not added up. Valid until the next one.
size_t emulator_count_totals(const Total** totals) {
  *totals = the_count.totals.data();
  return the_count.totals.size();
}
size_t emulator_count_records(const Record** records, int* left_out) {
  *records = the_count.records.data();
  *left_out = the_count.records_left_out;
  return the_count.records.size();
}
const char* emulator_count_name(size_t number) {
  return number < the_count.names.size() ? the_count.names[number] : nullptr;
}
// Sectors of an array that the launch has used.
uint64_t emulator_count_footprint(size_t array) {
  uint64_t used = 0;
  if (array < the_count.seen.size())
    for (uint8_t one : the_count.seen[array]) used += one;
  return used;
}
}
#pragma GCC visibility pop
