// Threads of a block as fibers. They are created lazily: one fiber runs thread 0, 1, 2 ... to their ends, and only when
// a thread waits does the next one get its own stack. A kernel without barriers needs one stack and no switch.
#include "async.h"
#include "share.h"

#include <sched.h>

#include <bit>
#include <cstdarg>

#define CALL __builtin_return_address(0)

EMULATOR_TLS uint3 threadIdx, blockIdx;
EMULATOR_TLS dim3 blockDim, gridDim;

namespace emulator {

EMULATOR_TLS unsigned linear_thread;
EMULATOR_TLS Worker* this_worker;

namespace {

void fiber_main();

// Two barriers on one line differ in their column, except in a macro.
bool is_same_call(const Site& a, const Site& b) {
  return a.line() == b.line() && a.column() == b.column() && !strcmp(a.file_name(), b.file_name());
}
inline bool same_site(Site a, Site b) {
  return std::bit_cast<const void*>(a) == std::bit_cast<const void*>(b) || is_same_call(a, b);
}

[[noreturn]] void leave_for_good(Fiber* me, Context& to) {
  switch_context(me->context, to);
  __builtin_unreachable();
}

// From now on the worker runs the thread of `next`.
inline void go_on_as(Worker& w, Fiber* next) {
  w.current = next;
  threadIdx = next->thread;
  linear_thread = next->linear;
}

// Returns when another fiber continues `me`. The switch comes last, so that g++ compiles it to a jump: a waiting thread
// then keeps only its registers on its stack, and more of them fit in the cache.
inline void switch_fiber(Worker& w, Fiber* me, Fiber* next) {
  go_on_as(w, next);
  switch_context(me->context, next->context);
}

// Continues with a thread that is ready, or else with one that has not started; otherwise the block is stuck or done.
// Ready ones come first, because they free their stacks while these are still in the cache.
inline Fiber* next_fiber(Worker& w) {
  if (w.ready.first) return w.ready.pop();
  if (w.started < w.total) return take_fiber(w, fiber_main);
  if (release_partial_group(w)) return w.ready.pop();
  return w.cluster && w.alive && others_have_run(w) ? w.ready.pop() : nullptr;
}

void release_barrier(Worker& w) {
  if (w.sites_differ) stop_stuck(w);
  check_steps(w.waiting_count);
  check_block_barrier();
  count_block_barrier(w);
  w.ready.append(w.waiting);
  w.result = {w.votes, w.waiting_count};
  w.waiting_count = 0;
  w.votes = 0;
}

// At least one thread: a fiber is only taken for a thread that has not started.
void run_threads(Worker& w, Fiber* me) {
  do {
    const unsigned i = check_thread_order(w.started++);
    me->linear = linear_thread = i;
    me->thread = threadIdx = {i % blockDim.x, i / blockDim.x % blockDim.y, i / (blockDim.x * blockDim.y)};
    check_call(w);
    w.alive--;
    w.idle = 0;
    thread_left_warp(w, me->linear);
    count_thread_ended(w, me->linear);
    if (w.cluster) thread_left_cluster(w, me->linear);
    if (w.waiting_count && w.waiting_count == w.alive) release_barrier(w);
  } while (w.started < w.total && !w.ready.first);
}

void fiber_main() {
  Worker& w = *this_worker;
  Fiber* me = w.current;
  run_threads(w, me);
  give_fiber(w, me);
  Fiber* next = next_fiber(w);
  if (!next && w.alive) stop_stuck(w);
  if (!next) leave_for_good(me, w.host);
  go_on_as(w, next);
  leave_for_good(me, next->context);
}

inline void wait_for(Worker& w, Fiber* me) {
  Fiber* next = next_fiber(w);
  if (!next) stop_stuck(w);
  switch_fiber(w, me, next);
}

inline void arrive(const char* name, bool predicate, Site site, const void* pc) {
  Worker& w = *this_worker;
  count_barrier(name, pc);
  Fiber* me = w.current;
  me->wait.name = name;  // field by field: g++ would build the struct elsewhere, and reading it back would stall
  me->wait.site = site;
  me->wait.mask = 0;
  w.idle = 0;
  if (w.waiting_count++ && !same_site(site, w.waiting.first->wait.site)) w.sites_differ = true;
  w.votes += predicate;
  if (w.waiting_count == w.alive && !w.sites_differ) {
    if (CHECKED) w.waiting.push(me);
    release_barrier(w);
    if (CHECKED) take_turn(w);
    return;
  }
  w.waiting.push(me);
  if (w.waiting_count == w.alive) stop_stuck(w);
  wait_for(w, me);
}

}  // namespace

void wait_for_others(Worker& w) { wait_for(w, w.current); }

void take_turn(Worker& w) {
  Fiber* me = w.current;
  check_ready_order(w.ready);
  switch_fiber(w, me, w.ready.pop());
}

void block_barrier(Site site) { arrive("__syncthreads", false, site, CALL); }

int block_vote(Vote vote, bool predicate, Site site) {
  constexpr const char* names[] = {"__syncthreads_count", "__syncthreads_and", "__syncthreads_or"};
  arrive(names[int(vote)], predicate, site, CALL);
  const auto& result = this_worker->result;  // the next barrier waits until all have read it
  if (vote == Vote::count) return result.votes;
  return vote == Vote::all ? result.votes == result.voters : result.votes != 0;
}

constexpr unsigned ROUND = 500;  // the cost in steps of a round of the other blocks of a cluster

void yield() {
  Worker& w = *this_worker;
  Fiber* me = w.current;
  const bool tired = ++w.idle > w.alive;
  const bool alone = w.started == w.total && !w.ready.first;
  if (alone && !w.cluster && !tired) return;
  check_yield(me);
  w.ready.push(me);
  if (tired) w.idle = 0;
  if (tired && w.cluster) {
    the_share().waits = true;
    if (the_share().stopped) stop(FailureKind::cancelled);
    sched_yield();  // to another cluster
  }
  if (tired && !w.cluster) {  // no thread of the block makes progress: other blocks may have to run first
    w.suspended = true;
    return switch_context(me->context, w.host);
  }
  check_ready_order(w.ready);
  if (w.cluster && others_have_run(w)) check_steps(ROUND);
  switch_fiber(w, me, w.started < w.total ? take_fiber(w, fiber_main) : w.ready.pop());
}

void note_place(Failure& failure) {
  const unsigned block[] = {blockIdx.x, blockIdx.y, blockIdx.z}, thread[] = {threadIdx.x, threadIdx.y, threadIdx.z};
  memcpy(failure.block, block, sizeof block);
  memcpy(failure.thread, thread, sizeof thread);
}

void stop(FailureKind kind) {
  Worker& w = *this_worker;
  w.failure.kind = kind;
  note_place(w.failure);
  Context abandoned;
  switch_context(abandoned, w.host);
  __builtin_unreachable();
}

#define FAIL(kind)                                                                           \
  va_list arguments;                                                                         \
  va_start(arguments, format);                                                               \
  vsnprintf(this_worker->failure.text, sizeof this_worker->failure.text, format, arguments); \
  va_end(arguments);                                                                         \
  stop(kind)

void fail(const char* format, ...) { FAIL(FailureKind::kernel); }
void fail_at(const char* name, Site site, const char* format, ...) {
  char& text = *this_worker->failure.text;
  const size_t room = sizeof this_worker->failure.text;
  const int used = snprintf(&text, room, "%s (%s:%u): ", name, site.file_name(), site.line());
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(&text + used, room - used, format, arguments);
  va_end(arguments);
  stop(FailureKind::kernel);
}
void fail_assertion(const char* condition, const char* file, unsigned line) {
  fail("assertion `%s` failed (%s:%u)", condition, file, line);
}
void fail_warp(const char* format, ...) { FAIL(FailureKind::warp); }

void run_block(Worker& w) {
  if (w.cluster == w.alone) w.cluster = nullptr;
  w.idle = 0;
  w.busy = false;
  check_block_started();
  count_block_started(w);
  async_block_started(w);
  w.started = 0;
  w.alive = w.total;
  w.ready.first = w.waiting.first = nullptr;
  w.waiting_count = w.votes = 0;
  w.sites_differ = false;
  for (unsigned first = 0; first < w.total; first += WARP) {
    const unsigned lanes = w.total - first;
    w.warps[first / WARP].exited = lanes >= WARP ? 0 : ~0u << lanes;
    w.warps[first / WARP].open = 0;
  }
  w.current = take_fiber(w, fiber_main);
  switch_context(w.host, w.current->context);
  if (!w.abandoned && !w.suspended) async_block_ended(w);
}

void resume_block(Worker& w) {
  w.suspended = false;
  go_on_as(w, w.ready.pop());
  switch_context(w.host, w.current->context);
  if (!w.suspended) async_block_ended(w);
}

}  // namespace emulator
