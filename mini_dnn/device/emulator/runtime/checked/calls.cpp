// Calls through pointers: virtual functions, pointers to members, tables. Kernels of checked mode are compiled so that
// each of them uses one of these functions, which are named after the register with the pointer. If the grader has
// judged a library, only functions of the kernel file may be called in this way. A function that returns a structure
// writes it without a hook, so the place for it is checked here.
#include <vector>

#include "../scheduler.h"
#include "access.h"

#if defined(__x86_64__)

namespace emulator {

extern "C" {
// A byte for each byte of code, which the assembly below reads.
struct __attribute__((visibility("hidden"))) Calls {
  const char* base;
  size_t bytes;
  const char* kinds;
} emulator_calls;
}

namespace {

constexpr char PLAIN = 1, RETURNS = 2;  // 0: no function begins there

}  // namespace

void start_calls() {
  static std::vector<char> kinds;
  const Target& t = the_check.target;
  kinds.assign(t.is_judged ? t.data_start - t.base : 0, 0);
  for (int i = 0; i < t.entry_count; i++) kinds[t.entries[i].at] = t.entries[i].returned ? RETURNS : PLAIN;
  emulator_calls = {t.base, kinds.size(), kinds.data()};
}

// `place`: the first argument.
extern "C" __attribute__((visibility("hidden"))) void emulator_look_at_call(const char* target, const char* place,
                                                                            const char* back) {
  const Target& t = the_check.target;
  if (!t.is_judged) return;
  const uint64_t at = target - t.base;
  const Entry* entry = t.entries;
  const Entry* const end = entry + t.entry_count;
  while (entry != end && entry->at != at) entry++;
  if (entry == end) report_stack({target, 1, false, Manner::plain, uint64_t(back - t.base)}, Detail::no_function);
  check_access(place, entry->returned, true, Manner::plain, back);
}

}  // namespace emulator

#ifdef __AVX__
#define MOVE "  vmovups "
#define VECTOR "%ymm"
#else
#define MOVE "  movups "
#define VECTOR "%xmm"
#endif
#define SAVE(i) MOVE VECTOR #i ", 32*" #i "(%rsp)\n"
#define LOAD(i) MOVE "32*" #i "(%rsp), " VECTOR #i "\n"
// A scratch register that no call needs. The slow path receives the pointer in r11.
asm(R"(
.text
.macro EMULATOR_THUNK register, spare=r11
.globl __x86_indirect_thunk_\register
.type __x86_indirect_thunk_\register, @function
.p2align 4
__x86_indirect_thunk_\register:
  movq %\register, %\spare
  subq emulator_calls(%rip), %\spare
  cmpq emulator_calls+8(%rip), %\spare
  jae 1f
  addq emulator_calls+16(%rip), %\spare
  cmpb $1, (%\spare)
  jne 1f
  jmp *%\register
1:
  movq %\register, %r11
  jmp emulator_slow_call
.size __x86_indirect_thunk_\register, . - __x86_indirect_thunk_\register
.endm
.irp register, rax, rbx, rcx, rdx, rsi, rdi, rbp, r8, r9, r10, r12, r13, r14, r15
EMULATOR_THUNK \register
.endr
EMULATOR_THUNK r11, r10
.p2align 4
.type emulator_slow_call, @function
emulator_slow_call:
  pushq %rbp
  movq %rsp, %rbp
  pushq %r11
  pushq %rax
  pushq %rdi
  pushq %rsi
  pushq %rdx
  pushq %rcx
  pushq %r8
  pushq %r9
  subq $256, %rsp
)" SAVE(0) SAVE(1) SAVE(2) SAVE(3) SAVE(4) SAVE(5) SAVE(6) SAVE(7) R"(
  movq %rdi, %rsi
  movq %r11, %rdi
  movq 8(%rbp), %rdx
  call emulator_look_at_call
)" LOAD(0) LOAD(1) LOAD(2) LOAD(3) LOAD(4) LOAD(5) LOAD(6) LOAD(7) R"(
  addq $256, %rsp
  popq %r9
  popq %r8
  popq %rcx
  popq %rdx
  popq %rsi
  popq %rdi
  popq %rax
  popq %r11
  popq %rbp
  jmp *%r11
.size emulator_slow_call, . - emulator_slow_call
)");

#else

namespace emulator {
void start_calls() {}
}  // namespace emulator

#endif
