// The interface between the parts of the scheduler.
#pragma once
#include "checks.h"
#include "counts.h"
#include "worker.h"

namespace emulator {

Fiber* take_fiber(Worker& worker, void (*entry)());
void give_fiber(Worker& worker, Fiber* fiber);
char* stack_of(const Worker& worker, const Fiber* fiber);  // its lower end; it has STACK_BYTES

void take_turn(Worker& worker);                          // lets ready fibers run first; the current one is ready, too
void wait_for_others(Worker& worker);                    // runs others until the current fiber is ready
bool release_partial_group(Worker& worker);              // of __activemask, when nothing else can run
void thread_left_warp(Worker& worker, unsigned linear);  // completes what only waited for this thread
void tell_threads(Worker& worker);                       // describes where they wait, in failure.text
[[noreturn]] void stop_stuck(Worker& worker);            // says where threads wait
// Lets other blocks of the cluster run until this one can continue. Returns false if none of them can run.
bool others_have_run(Worker& worker);
void thread_left_cluster(Worker& worker, unsigned linear);

}  // namespace emulator
