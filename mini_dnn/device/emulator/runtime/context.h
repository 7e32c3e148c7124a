// Switching between stacks: each thread of a block that waits at a barrier keeps its own stack.
#pragma once
#include <cstddef>
#include <cstdint>

#if defined(__x86_64__) && !defined(EMULATOR_UCONTEXT)

namespace emulator {

// A suspended computation: the end of its stack. The values that must survive a call are on that stack.
struct Context {
  void* stack_pointer;
};

extern "C" void emulator_switch(Context* from, const Context* to) __attribute__((visibility("hidden")));

inline void switch_context(Context& from, Context& to) { emulator_switch(&from, &to); }

// Makes `context` start `entry`, which must never return, on a stack that ends at `top`.
inline void prepare_context(Context& context, char*, char* top, void (*entry)()) {
  auto** word = reinterpret_cast<void**>(reinterpret_cast<uintptr_t>(top) & ~uintptr_t(63));
  *--word = nullptr;                              // entry's own return address, so that rsp % 16 == 8
  *--word = reinterpret_cast<void*>(entry);       // the target of emulator_switch
  for (int i = 0; i < 6; i++) *--word = nullptr;  // the registers that it pops
  context.stack_pointer = word;
}

}  // namespace emulator

#else  // any processor and system with ucontext: about 20 times slower, as each switch is a system call

#include <ucontext.h>

namespace emulator {

struct Context {
  ucontext_t state;
};

inline void switch_context(Context& from, Context& to) { swapcontext(&from.state, &to.state); }

inline void prepare_context(Context& context, char* bottom, char* top, void (*entry)()) {
  getcontext(&context.state);
  context.state.uc_stack.ss_sp = bottom;
  context.state.uc_stack.ss_size = top - bottom;
  context.state.uc_link = nullptr;
  makecontext(&context.state, entry, 0);
}

}  // namespace emulator

#endif
