#include "context.h"

#if defined(__x86_64__) && !defined(EMULATOR_UCONTEXT)
// System V ABI: rbx, rbp and r12-r15 survive a call, and nothing else that a kernel changes does. The last instruction
// is a jump and not a return. Threads continue at one barrier and wait at the next, so the processor's return address
// prediction is wrong each time (about 8 ns), while its prediction of the jump is right.
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
