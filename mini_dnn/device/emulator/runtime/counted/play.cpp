// Replays the event streams of a warp.
#include <algorithm>
#include <bit>
#include <cstring>

#include "recorder.h"

namespace emulator {

namespace {

constexpr uint32_t NONE = ~0u, WAITS = ~0u - 1;  // special values of a pc: the lane has ended; it waits for others

uint64_t head(const Event& e) {  // everything but the address
  uint64_t found;
  memcpy(&found, &e, sizeof found);
  return found;
}
bool waits(const Event& e) { return e.kind == uint8_t(EventKind::barrier) || e.kind == uint8_t(EventKind::warp); }

// A warp during the replay.
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

  // If all lanes wait: those that wait for the same thing.
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
    return all & -all;  // __activemask: lanes that met because the others could not arrive
  }

  // Continues with lanes that do the same as long as they come before all others, as in most steps of most kernels. A
  // step after which the lanes may be at different places is left to step(). Returns whether there was any.
  bool run(uint32_t mask) {
    const Event* next[WARP];
    unsigned lanes[WARP], size = 0;
    size_t room = ~size_t(0), done = 0;
    uint32_t others = WAITS;  // the place of the first of them
    for (unsigned i = 0; i < count; i++) {
      if (!(mask >> i & 1)) {
        others = std::min(others, keys[i]);
        continue;
      }
      room = std::min(room, size_t(streams[i].end - streams[i].next) - 1);
      lanes[size] = i;
      next[size++] = streams[i].next;
    }
    while (done < room) {
      const uint64_t first = head(next[0][1]);
      uint64_t differ = 0;
      for (unsigned i = 0; i < size; i++) differ |= head(next[i][1]) ^ first;
      if (differ) break;
      for (unsigned i = 0; i < size; i++) addresses[lanes[i]] = next[i]->address;
      execute(w, warp, mask, *next[0], addresses);
      for (unsigned i = 0; i < size; i++) next[i]++;
      done++;
      if (waits(*next[0]) || next[0]->pc >= others) break;
    }
    for (unsigned i = 0; i < size; i++) {
      streams[lanes[i]].next += done;
      look(lanes[i]);
    }
    return done;
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
    if (key != WAITS && run(mask)) return true;
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
    if (s.next != s.end) {  // the others must catch up with them
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

}  // namespace emulator
