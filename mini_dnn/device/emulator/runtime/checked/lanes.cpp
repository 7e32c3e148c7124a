// Warp functions that some lanes do not call, or in which lanes disagree.
#include "shadow.h"

namespace emulator {

namespace {

struct Tile {
  const void* p;
  size_t pitch_bytes;
};

// CUDA C++ Programming Guide, warp matrix functions: all lanes of the warp call, with the same arguments.
void compare_tiles(void* const* arguments, unsigned arrived) {
  const Warp& warp = this_worker->warps[linear_thread / WARP];
  const unsigned first = __builtin_ctz(arrived);
  const Wait& wait = warp.fibers[first]->wait;
  const auto& tile = *static_cast<Tile*>(arguments[first]);
  const char* file = wait.site.file_name();
  const unsigned line = wait.site.line();
  for (unsigned lane = 0; lane < WARP; lane++) {
    if (!(arrived >> lane & 1))
      fail_warp("%s (%s:%u) needs all 32 lanes of a warp, and lane %u %s", wait.name, file, line, lane,
                lane_state(lane));
    const unsigned other_line = warp.fibers[lane]->wait.site.line();
    if (other_line != line)
      fail_warp("%s (%s:%u) needs all 32 lanes of a warp, and lane %u is at another call (%s:%u)", wait.name, file,
                line, lane, file, other_line);
    const auto& other = *static_cast<Tile*>(arguments[lane]);
    if (other.p != tile.p || other.pitch_bytes != tile.pitch_bytes)
      fail_warp("%s (%s:%u) needs the same tile from all lanes, and lane %u passes another %s than lane %u", wait.name,
                file, line, lane, other.p != tile.p ? "pointer" : "leading dimension", first);
  }
}

void describe(Failure& found, unsigned lane, unsigned source) {
  const Wait& wait = this_worker->warps[linear_thread / WARP].fibers[lane]->wait;
  const char* state = wait.mask >> source & 1 ? lane_state(source) : "the mask does not name";
  snprintf(found.text, sizeof found.text,
           "%s (%s:%u) with mask 0x%08x gives lane %u the value of lane %u, which %s: the value is undefined",
           wait.name, wait.site.file_name(), wait.site.line(), wait.mask, lane, source, state);
}

}  // namespace

const char* lane_state(unsigned lane) {
  if (linear_thread / WARP * WARP + lane >= this_worker->total) return "is beyond the end of the block";
  return this_worker->warps[linear_thread / WARP].exited >> lane & 1 ? "has returned" : "did not come";
}

// The same chapter: pointers aligned to 256 bits, leading dimensions that are multiples of 16 bytes.
void note_tile(const void* p, size_t pitch_bytes, const char* name, Site site) {
  constexpr size_t POINTER = 32, PITCH = 16;
  Finding& f = the_check.finding;
  const void* pc = __builtin_return_address(0);
  const size_t rest = reinterpret_cast<uintptr_t>(p) % POINTER;
  if (rest) f.offset = rest, f.bytes = POINTER, report(FindingKind::misaligned, "WMMA tile", pc);
  if (pitch_bytes % PITCH) f.offset = pitch_bytes, f.bytes = PITCH, report(FindingKind::misaligned, "WMMA pitch", pc);
  Tile tile = {p, pitch_bytes};
  warp_barrier(~0u, &tile, compare_tiles, name, site);
}

void note_absent(unsigned lane, unsigned source) {
  threadIdx = this_worker->warps[linear_thread / WARP].fibers[lane]->thread;  // its place is reported
  Failure found;
  describe(found, lane, source);
  fail_warp("%s", found.text);
}

// The outputs show whether the value matters, because it differs from order to order. To find one particular call, the
// values of all others stay the same.
void leave_undefined(void* value, size_t bytes, unsigned lane, unsigned source) {
  constexpr uint16_t VALUES[] = {0x7fc5, 0x7b7f,
                                 0xfb7f};  // in pairs of bytes: NaN in all types, a large number, its negative
  Check& c = the_check;
  const Fiber& fiber = *this_worker->warps[linear_thread / WARP].fibers[lane];
  const Site site = fiber.wait.site;
  size_t at = 0;
  while (at < c.undefined.size() &&
         !(c.undefined[at].site.line() == site.line() && !strcmp(c.undefined[at].site.file_name(), site.file_name())))
    at++;
  const uint16_t part = VALUES[c.varied < 0 || at == size_t(c.varied) ? int(schedule()) : 0];
  for (size_t i = 0; i < bytes; i += sizeof part) memcpy(static_cast<char*>(value) + i, &part, sizeof part);
  if (at < c.undefined.size() || at == MOST_UNDEFINED) return;
  c.undefined.push_back({site, {}});
  const uint3 me = threadIdx;
  threadIdx = fiber.thread;
  describe(c.undefined[at].found, lane, source);
  note_place(c.undefined[at].found);
  threadIdx = me;
}

}  // namespace emulator
