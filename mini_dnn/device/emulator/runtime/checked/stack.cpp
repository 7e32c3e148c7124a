// Stacks of threads. A kernel has variables there, and pointers to them may leave the stack. No access may touch what
// functions need to return, the frames of the runtime, or the stack of another thread, because that would also allow
// changing what checked mode has found. Kernels and this runtime are compiled with frame pointers, so each frame tells
// where the next one is. Nobody can change the frames, so they can be trusted.
#include "../scheduler.h"
#include "access.h"

#include <algorithm>

namespace emulator {

namespace {

// Of a thread's stack, reserved for code without hooks: the runtime itself, and functions without calls. accesses.py
// limits these to less.
constexpr size_t STACK_MARGIN = 8 << 10;

}  // namespace

#if defined(__x86_64__) && !defined(EMULATOR_UCONTEXT)

namespace {

// What a function leaves on the stack when it calls another one. Its own variables are above it.
struct Frame {
  const Frame* caller;
  const char* back;  // the return address in the caller
  const char* start() const { return reinterpret_cast<const char*>(this); }
  const char* end() const { return reinterpret_cast<const char*>(this + 1); }
  bool is_called_by_kernel() const { return back >= the_check.target.base && back < the_check.target.data_start; }
};

// Whether it touches something that a function, whose variables end there, must find unchanged. The grader knows this
// for a library, and only there does a function rely on it: it writes a structure that it returns without a hook.
bool is_kept(const Access& a, const char* variables_end, const char* pc) {
  const Target& t = the_check.target;
  const uint64_t at = pc - t.base;
  const Kept* each = std::partition_point(t.kept, t.kept + t.kept_count, [at](const Kept& k) { return k.start < at; });
  while (each != t.kept && at <= (--each)->end) {
    const auto origin = reinterpret_cast<int64_t>(variables_end) + int64_t(sizeof(void*)) + each->low;
    const auto* const start = reinterpret_cast<const char*>((origin & -each->alignment) + each->offset);
    if (a.address < start + sizeof(void*) && a.address + a.bytes > start) return true;
  }
  return false;
}

}  // namespace

void report_stack(const Access& a, Detail detail, const char* back) {
  Check& c = the_check;
  Finding& f = c.finding;
  f.kind = FindingKind::stack;
  f.memory = Memory::unknown;
  f.bytes = a.bytes;
  f.own = {a.write, a.manner == Manner::atomic, linear_thread, c.block, a.pc};
  f.other = {0, 0, 0, 0, back ? uint64_t(back - c.target.base) : 0};
  f.detail = detail;
  c.pending = false;
  stop(FailureKind::finding);
}

namespace {

// Whether this thread computes for its warp, with values that other lanes have passed: the runtime has called a
// function of the headers.
bool works_for_warp(const Frame* f) {
  const char* const top = this_worker->current->kernel_top;
  while (!f->is_called_by_kernel()) f = f->caller;
  while (f->end() < top && f->is_called_by_kernel()) f = f->caller;
  return f->end() < top;
}

// `f`: the last frame of that thread.
void check_variables(const Fiber& fiber, const Frame* f, const Access& a) {
  const char *const bottom = stack_of(*this_worker, &fiber), *const top = fiber.kernel_top,
                    *const end = a.address + a.bytes;
  const Frame* inner = nullptr;  // of the function called by the one with frame `f`
  while (f->start() >= bottom && f->end() <= top) {
    if (a.address < f->end()) {
      const bool is_variable = inner && a.address >= inner->end() && inner->is_called_by_kernel();
      if (is_variable && end <= f->start() && !(a.write && is_kept(a, f->start(), inner->back))) return;
      if (end > f->start()) report_stack(a, Detail::way_back, f->back);
      if (is_variable) report_stack(a, Detail::kept);
      break;
    }
    inner = f;
    f = f->caller;
  }
  report_stack(a, Detail::of_no_variable);
}

}  // namespace

void check_stack(const Access& a) {
  if (!the_check.active || !a.bytes) return;
  const Worker& w = *this_worker;
  if (a.address + a.bytes < a.address) report_stack(a, Detail::of_no_variable);
  const auto* const here = static_cast<const Frame*>(__builtin_frame_address(0));
  const Fiber* fiber = w.current;
  if (size_t(a.address - stack_of(w, fiber)) < STACK_BYTES) return check_variables(*fiber, here, a);
  if (!works_for_warp(here)) report_stack(a, Detail::of_another_thread);
  const size_t stride = stack_of(w, w.fibers + 1) - stack_of(w, w.fibers);
  fiber = w.fibers + (a.address - w.stacks) / stride;
  if (fiber >= w.fibers + w.fiber_count) report_stack(a, Detail::of_no_variable);
  // emulator_switch pushes six registers, rbp first
  const auto* stack = static_cast<const char*>(fiber->context.stack_pointer);
  check_variables(*fiber, reinterpret_cast<const Frame*>(stack + 5 * sizeof(void*)), a);
}

#else

void check_stack(const Access&) {}
void report_stack(const Access&, Detail, const char*) { stop(FailureKind::finding); }

#endif

void check_depth(const void* pc) {
  Worker* w = this_worker;
  if (!w || !w->in_kernel) return;
  if (static_cast<const char*>(__builtin_frame_address(0)) >= stack_of(*w, w->current) + STACK_MARGIN) return;
  w->failure.pc = uint64_t(pc) - 1;
  stop(FailureKind::stack_overflow);
}

#if defined(__x86_64__)
// Saves the runtime's register values where no access of a kernel is allowed. Kernels save and restore them as well,
// but among their variables.
extern "C" void emulator_call(void (*run)(void* const*), void* const* arguments, const char** top)
    __attribute__((visibility("hidden")));
asm(R"(
.text
.p2align 4
.hidden emulator_call
.globl emulator_call
.type emulator_call, @function
emulator_call:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  subq $8, %rsp
  movq %rsp, (%rdx)
  movq %rdi, %rax
  movq %rsi, %rdi
  call *%rax
  addq $8, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emulator_call, . - emulator_call
)");

void check_call(Worker& w) { emulator_call(w.run, w.arguments, &w.current->kernel_top); }
#else
void check_call(Worker& w) {
  w.current->kernel_top = static_cast<const char*>(__builtin_frame_address(0));
  w.run(w.arguments);
}
#endif

}  // namespace emulator
