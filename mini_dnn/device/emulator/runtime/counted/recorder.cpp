// Counted launches and blocks, and their totals.
#include "recorder.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <memory>

namespace emulator {

Count the_count;

uint16_t number_of_name(const char* name) {
  struct Known {
    const char *name, *text;  // another library may have another text there later
    uint16_t number;
  };
  // on the heap: a process has only a few hundred bytes of static thread-local memory for all loaded libraries
  static thread_local const auto known = std::make_unique<Known[]>(64);
  auto& slot = known[reinterpret_cast<uintptr_t>(name) >> 3 & 63];
  if (slot.name == name && !strcmp(slot.text, name)) return slot.number;
  Count& c = the_count;
  std::lock_guard lock(c.mutex);
  size_t i = 0;
  while (i < c.names.size() && strcmp(c.names[i], name)) i++;
  if (i == c.names.size()) c.names.push_back(strdup(name));  // the library that contains it may be unloaded
  slot = {name, c.names[i], uint16_t(i)};
  return slot.number;
}

void count_launch_started(Worker& w, const Module& module, unsigned shared_bytes) {
  if (!w.recorder) w.recorder = new Recorder;  // exists as long as the process, like the worker
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
  Recorder& r = *w.recorder;
  r.block = blockIdx.x + uint64_t(gridDim.x) * (blockIdx.y + uint64_t(gridDim.y) * blockIdx.z);
  r.traced = std::binary_search(the_count.traced.begin(), the_count.traced.end(), r.block);
}

void count_block_barrier(Worker& w) {
  for (unsigned warp = 0; warp * WARP < w.total; warp++) play(w, warp);
}

constexpr long ENOUGH = 512;  // events of a lane: then they are replayed while they are in the cache

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

// Describes the next launch: its kernel library, the arrays that it may use, and the blocks that are traced.
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

// The totals of the last launch. Those of several workers are not added up. Valid until the next launch.
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
// Sectors of an array that the launch used.
uint64_t emulator_count_footprint(size_t array) {
  uint64_t used = 0;
  if (array < the_count.seen.size())
    for (uint8_t one : the_count.seen[array]) used += one;
  return used;
}
}
#pragma GCC visibility pop
