#include "context.h"

#if defined(__x86_64__) && !defined(EMULATOR_UCONTEXT)
// System V ABI: rbx, rbp and r12-r15 survive a call, and so does nothing else that a kernel changes.
asm(R"(
.text
.p2align 4
.hidden emulator_switch
.globl emulator_switch
.type emulator_switch, @function
emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq (%rsi), %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  popq %rcx
  jmpq *%rcx
.size emulator_switch, . - emulator_switch
)");
#endif
