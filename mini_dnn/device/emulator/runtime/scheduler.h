// What the parts of the scheduler want of each other.
#pragma once
#include "checks.h"
#include "counts.h"
#include "worker.h"

namespace emulator {

Fiber* take_fiber(Worker& worker, void (*entry)());
void give_fiber(Worker& worker, Fiber* fiber);
char* stack_of(const Worker& worker, const Fiber* fiber);  // its lower end; it has STACK_BYTES

void take_turn(Worker& worker);                          // lets ready fibers go first; the current one is ready, too
void wait_for_others(Worker& worker);                    // runs others until the current fiber is made ready
bool release_partial_group(Worker& worker);              // __activemask's, when nothing else can run
void thread_left_warp(Worker& worker, unsigned linear);  // completes what waited only for this thread
void tell_threads(Worker& worker);                       // which of them wait where: into failure.text
[[noreturn]] void stop_stuck(Worker& worker);            // says which threads wait where
// Lets other blocks of the cluster run until this one has something to do. False: none of them can.
bool others_have_run(Worker& worker);
void thread_left_cluster(Worker& worker, unsigned linear);

}  // namespace emulator
