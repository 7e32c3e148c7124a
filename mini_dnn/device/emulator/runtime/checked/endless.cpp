// Blocks that do not end: a limit on their steps, which are memory accesses and arrivals at barriers.
#include <algorithm>
#include <cstring>

#include "../scheduler.h"
#include "access.h"

namespace emulator {

namespace {

constexpr uint64_t POLL = 8;  // the cost in steps

uint64_t turn_end;  // in steps: a block that has gone on for so long without progress may wait for another block

void set_pause() { the_check.pause = std::min(the_check.steps + turn_steps(), the_check.step_limit); }

// In the middle of an access, which may be one of the copy engine. A lane that works for its warp goes on.
void let_others_run() {
  if (this_worker->busy) return;
  const bool starts = copy_starts;
  copy_starts = false;
  yield();
  copy_starts = starts;
}

[[noreturn]] void give_up() {
  give_up_pending();
  tell_threads(*this_worker);
  stop(FailureKind::endless);
}

}  // namespace

void start_steps() {
  Check& c = the_check;
  c.steps = 0;
  turn_end = TURN;
  set_pause();
}

void pause_steps(uint64_t pc) {
  Check& c = the_check;
  Worker& w = *this_worker;
  c.last_pc = pc;
  if (end_pending_race()) return set_pause();
  if (c.steps >= c.step_limit) {
    check_yield(w.current);
    w.ready.push(w.current);
    give_up();
  }
  set_pause();
  if (c.steps >= turn_end)
    turn_end = c.steps + TURN;
  else if (w.idle)
    w.idle--;  // yield() counts it again
  let_others_run();
}

// A thread that reads a flag repeatedly lets other threads run, so that they can set it.
void note_poll(const Access& a) {
  constexpr unsigned POLLS = 64;
  static struct {
    const char* address;
    unsigned thread, count;
    uint64_t value;
  } last;
  uint64_t value = 0;
  memcpy(&value, a.address, std::min(a.bytes, sizeof value));
  if (a.address != last.address || linear_thread != last.thread || value != last.value) {
    last = {a.address, linear_thread, 0, value};
  } else if (++last.count % POLLS == 0) {
    the_check.steps += POLL;
    let_others_run();
  }
}

void check_yield(Fiber* f) { f->wait = {nullptr, {}, unsigned(the_check.last_pc)}; }

void check_steps(unsigned count) {
  Check& c = the_check;
  c.steps += count;
  if (c.steps >= c.step_limit) give_up();
}

// A loop that does not even access memory. Where the kernel's own code was interrupted, the queues are consistent.
void check_cancelled(Worker& w) {
  Check& c = the_check;
  const char* pc = reinterpret_cast<const char*>(w.failure.pc);
  if (pc < c.target.base || pc >= c.target.data_start) return;
  c.last_pc = pc + 1 - c.target.base;  // one byte further, like return addresses
  check_yield(w.current);
  w.ready.push(w.current);
  tell_threads(w);
}

}  // namespace emulator

using namespace emulator;

#pragma GCC visibility push(default)
extern "C" {
void emulator_limit_steps(uint64_t steps) { the_check.step_limit = steps; }
uint64_t emulator_steps() { return *static_cast<volatile uint64_t*>(&the_check.steps); }  // of the block so far
}
#pragma GCC visibility pop
