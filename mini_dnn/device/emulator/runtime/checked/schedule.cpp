// The order of a checked launch: forward, reverse, or random with a seed.
#include <algorithm>
#include <numeric>
#include <random>

#include "shadow.h"

namespace emulator {

namespace {

struct Order {
  Schedule schedule = Schedule::forward;
  uint64_t seed = 0;
  std::mt19937_64 random;
  uint64_t blocks = 1, step = 1, start = 0;
  uint64_t turn = 0;
  uint64_t sample = 0;  // the number of blocks to run; 0: all
  unsigned threads[MAX_THREADS];
} the_order;

// std::shuffle may differ between standard libraries, but the result of a seed should not.
template <class T>
void shuffle(T* first, size_t count) {
  for (size_t i = count; i-- > 1;) std::swap(first[i], first[the_order.random() % (i + 1)]);
}

}  // namespace

Schedule schedule() { return the_order.schedule; }

void start_schedule(uint64_t blocks, unsigned threads) {
  Order& o = the_order;
  o.random.seed(o.seed);
  o.blocks = blocks;
  o.start = o.random() % blocks;
  do o.step = o.random() % blocks + 1;
  while (std::gcd(o.step, blocks) != 1);
  for (unsigned i = 0; i < threads; i++) o.threads[i] = o.schedule == Schedule::reverse ? threads - 1 - i : i;
  if (o.schedule == Schedule::random) shuffle(o.threads, threads);
}

uint64_t check_block_count(uint64_t blocks) {
  const uint64_t sample = the_order.sample;
  return sample ? std::min(blocks, sample) : blocks;
}

// Of a sample: the last ones, as many from the first one on, and others in between.
static uint64_t sampled(uint64_t i, uint64_t blocks, uint64_t count) {
  const uint64_t edge = count / 4;
  if (blocks <= count || i < edge) return i;
  if (i >= count - edge) return blocks - (count - i);
  return edge + uint64_t((unsigned __int128)(i - edge) * (blocks - 2 * edge) / (count - 2 * edge));
}

// Random: steps of a length that is coprime to the number of blocks, so that each block comes once.
uint64_t check_block_order(uint64_t i) {
  const Order& o = the_order;
  if (o.sample) return sampled(i, o.blocks, o.sample);
  if (o.schedule == Schedule::forward) return i;
  if (o.schedule == Schedule::reverse) return o.blocks - 1 - i;
  return uint64_t((o.start + (unsigned __int128)i * o.step) % o.blocks);
}

unsigned check_turn(unsigned i, unsigned count) {
  Order& o = the_order;
  if (o.schedule == Schedule::forward) return i;
  if (o.schedule == Schedule::reverse) return count - 1 - i;
  if (i == 0) o.turn = o.random();
  return (i + o.turn) % count;
}

uint64_t turn_steps() {
  constexpr uint64_t SHORT = 2'000;
  return schedule() == Schedule::random ? 1 + the_order.random() % SHORT : TURN;
}

unsigned check_thread_order(unsigned i) { return the_order.threads[i]; }

void check_ready_order(Queue& ready) {
  if (the_order.schedule != Schedule::random) return;
  Fiber* all[MAX_THREADS];
  size_t count = 0;
  while (ready.first) all[count++] = ready.pop();
  shuffle(all, count);
  for (size_t i = 0; i < count; i++) ready.push(all[i]);
}

}  // namespace emulator

using namespace emulator;

#pragma GCC visibility push(default)
// For all launches from now on.
extern "C" void emulator_schedule(int schedule, uint64_t seed) {
  the_order.schedule = Schedule(schedule);
  the_order.seed = seed;
}
extern "C" void emulator_sample(uint64_t blocks) { the_order.sample = blocks; }
#pragma GCC visibility pop
