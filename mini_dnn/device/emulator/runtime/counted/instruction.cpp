// What one warp instruction adds to the totals.
#include <algorithm>
#include <bit>

#include "recorder.h"
#include "warp_access.h"

namespace emulator {

namespace {

constexpr uint64_t ADDRESS = (uint64_t(1) << 48) - 1;

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

// Sectors of an array that this block has not used before. They count as used from now on.
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

// Whether all lanes' loads continue where the previous ones ended.
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

// A load of neighbours: compilers merge two, four or eight that are aligned together, up to 16 bytes per lane.
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
    const auto saved = int32_t(n.wavefronts - shared_wavefronts(n.first, mask, Lanes(n.first, mask, n.length)).all);
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

}  // namespace

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
    const Wavefronts found = shared_wavefronts(at, mask, lanes);
    t.wavefronts += found.all;
    t.ideal_wavefronts += found.ideal;
    if (kind == EventKind::load)
      merge(r, warp, t, place, mask, at, e.bytes, found.all);
    else  // data that were read may change
      std::erase_if(r.neighbours[warp], [&](const Neighbours& n) { return n.array == place.array; });
  } else {
    t.sectors += lanes.pieces(SECTOR);
    t.ideal_sectors += (lanes.distinct_bytes() + SECTOR - 1) / SECTOR;
    t.lines += lanes.pieces(LINE);
    t.block_sectors += first_uses(r, place, lanes);
    // the data of the L1 cache are in the banks of shared memory
    t.wavefronts += std::max(shared_wavefronts(at, mask, lanes).all, tag_wavefronts(lanes));
  }
  return t;
}

}  // namespace emulator
