// Invalid pointers, division by zero and stack overflow in a kernel end the launch, but not the process.
#include <csignal>
#include <cstring>
#include <sys/mman.h>

#include <ucontext.h>

#include "checks.h"
#include "worker.h"
#ifdef EMULATOR_CHECKED
#include "checked/unset.h"
#else
namespace emulator {
inline bool goes_on_after(int, const siginfo_t&, void*, Worker&) { return false; }
}  // namespace emulator
#endif

namespace emulator {

namespace {

// g++ puts an instruction that raises SIGILL (x86-64) or SIGTRAP where the behaviour of the code is undefined
constexpr int FAULTS[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
constexpr int COUNT = sizeof FAULTS / sizeof *FAULTS;
struct sigaction before[COUNT];

FailureKind kind_of(Worker& w, int signal, const siginfo_t& info) {
  if (info.si_code == SI_TKILL) return FailureKind::cancelled;  // pool.cpp: a launch that cannot be waited for
  if (signal == SIGFPE) return FailureKind::division;
  if (signal == SIGILL || signal == SIGTRAP) {
    strcpy(w.failure.text, "reached code whose behaviour C++ does not define, such as a division by a constant 0");
    return FailureKind::kernel;
  }
  return stack_overflowed(w, info.si_addr) ? FailureKind::stack_overflow : FailureKind::fault;
}

uint64_t interrupted_at([[maybe_unused]] const void* state) {
#if defined(__x86_64__)
  return static_cast<const ucontext_t*>(state)->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
  return static_cast<const ucontext_t*>(state)->uc_mcontext.pc;
#else
  return 0;
#endif
}

// Runs on the signal stack of the worker. It interrupts kernel code, whose state is discarded as a whole.
void on_fault(int signal, siginfo_t* info, void* state) {
  Worker* w = this_worker;
  if (w && !w->in_kernel && info->si_code == SI_TKILL) return;  // cancelled just after its last block
  if (!w || !w->in_kernel) {  // not ours: the instruction runs again, with the previous handler
    for (int i = 0; i < COUNT; i++)
      if (FAULTS[i] == signal) sigaction(signal, &before[i], nullptr);
    return;
  }
  w->failure.kind = FailureKind::none;
  if ((signal == SIGFPE || signal == SIGTRAP) && goes_on_after(signal, *info, state, *w)) return;
  w->in_kernel = false;
  if (w->failure.kind == FailureKind::finding) {
    note_place(w->failure);
    siglongjmp(w->first->after_fault, 1);
  }
  w->failure.kind = kind_of(*w, signal, *info);
  w->failure.address = reinterpret_cast<uint64_t>(info->si_addr);
  w->failure.pc = interrupted_at(state);
  note_place(w->failure);
  if (w->failure.kind == FailureKind::cancelled) check_cancelled(*w);
  siglongjmp(w->first->after_fault, 1);
}

}  // namespace

void install_fault_handlers() {
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (int i = 0; i < COUNT; i++) sigaction(FAULTS[i], &action, &before[i]);
}

void restore_fault_handlers() {
  for (int i = 0; i < COUNT; i++) sigaction(FAULTS[i], &before[i], nullptr);
}

void watch_faults() {
  constexpr size_t bytes = 64 << 10;
  void* stack = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (stack == MAP_FAILED) return;  // a fault then ends the process, as it would without all this
  const stack_t description = {stack, 0, bytes};
  sigaltstack(&description, nullptr);
}

}  // namespace emulator
