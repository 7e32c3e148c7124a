#include "preempt.h"

#include <link.h>
#include <signal.h>
#include <ucontext.h>

namespace emulator {

namespace {

struct {
  uintptr_t start = 0, end = 0;  // of the kernels' code
} volatile watched;
struct sigaction previous;

}  // namespace

#if defined(__x86_64__) && !defined(EMULATOR_CHECKED)

extern "C" void emulator_interrupted() __attribute__((visibility("hidden")));
extern "C" __attribute__((visibility("hidden"))) void emulator_let_others_run() { yield(); }

// Acts as if the kernel had called it wherever it was: all registers and flags are preserved. The 128 bytes below the
// stack pointer belong to the interrupted function (System V ABI) and are not touched.
asm(R"(
.text
.p2align 4
.hidden emulator_interrupted
.globl emulator_interrupted
.type emulator_interrupted, @function
emulator_interrupted:
  pushfq
  pushq %rax
  pushq %rbx
  pushq %rcx
  pushq %rdx
  pushq %rsi
  pushq %rdi
  pushq %rbp
  pushq %r8
  pushq %r9
  pushq %r10
  pushq %r11
  cld
  movq %rsp, %rbx
  subq $4096, %rsp
  andq $-64, %rsp
  xorl %eax, %eax
  movq %rax, 512(%rsp)
  movq %rax, 520(%rsp)
  movq %rax, 528(%rsp)
  movq %rax, 536(%rsp)
  movq %rax, 544(%rsp)
  movq %rax, 552(%rsp)
  movq %rax, 560(%rsp)
  movq %rax, 568(%rsp)
  movl $0xe7, %eax
  xorl %edx, %edx
  xsave64 (%rsp)
  call emulator_let_others_run
  movl $0xe7, %eax
  xorl %edx, %edx
  xrstor64 (%rsp)
  movq %rbx, %rsp
  popq %r11
  popq %r10
  popq %r9
  popq %r8
  popq %rbp
  popq %rdi
  popq %rsi
  popq %rdx
  popq %rcx
  popq %rbx
  popq %rax
  popfq
  ret $128
.size emulator_interrupted, . - emulator_interrupted
)");

namespace {

// On the signal stack of the worker: in code of the kernel itself, its queues and those of the runtime are consistent.
void on_turn(int, siginfo_t*, void* state) {
  const Worker* const w = this_worker;
  auto& registers = static_cast<ucontext_t*>(state)->uc_mcontext.gregs;
  const auto pc = uintptr_t(registers[REG_RIP]);
  if (!w || !w->in_kernel || w->busy || pc < watched.start || pc >= watched.end) return;
  auto* top = reinterpret_cast<uintptr_t*>(registers[REG_RSP] - 128);
  *--top = pc;
  registers[REG_RSP] = greg_t(top);
  registers[REG_RIP] = greg_t(&emulator_interrupted);
}

}  // namespace

#else

namespace {
void on_turn(int, siginfo_t*, void*) {}
}  // namespace

#endif

void watch_kernel(const void* code) {
  struct Search {
    uintptr_t code, start, end;
  } search{reinterpret_cast<uintptr_t>(code), 0, 0};
  auto look = [](dl_phdr_info* info, size_t, void* data) {
    auto& s = *static_cast<Search*>(data);
    for (int i = 0; i < info->dlpi_phnum; i++) {
      const auto& part = info->dlpi_phdr[i];
      const uintptr_t start = info->dlpi_addr + part.p_vaddr;
      if (part.p_type != PT_LOAD || s.code < start || s.code >= start + part.p_memsz) continue;
      s.start = start;
      s.end = start + part.p_memsz;
    }
    return int(s.end > 0);
  };
  if (PREEMPTS) dl_iterate_phdr(look, &search);
  watched.start = search.start;
  watched.end = search.end;
}

void install_preemption() {
  if (!PREEMPTS) return;
  struct sigaction action = {};
  action.sa_sigaction = on_turn;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  sigaction(SIGURG, &action, &previous);
}

void restore_preemption() {
  if (PREEMPTS) sigaction(SIGURG, &previous, nullptr);
}

}  // namespace emulator
