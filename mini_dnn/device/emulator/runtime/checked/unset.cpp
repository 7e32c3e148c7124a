#include "unset.h"

#include <string.h>
#include <ucontext.h>

#include "shadow.h"

#if defined(__x86_64__)
#include <xmmintrin.h>

namespace emulator {

namespace {

constexpr unsigned SIGNALS = UNSET_FLOAT, QUIET = UNSET_FLOAT | 1u << 22;  // before its use, and after
constexpr unsigned ONE = 0x3f800000;                                       // 1.0f
constexpr unsigned INVALID = 1u << 7;                                      // bit of MXCSR that masks the exception
constexpr greg_t STEP = 1 << 8;                                            // flag: stop after one instruction
constexpr int PATIENCE = 64;                                               // for others: NaN that are compared

thread_local int others;
thread_local uint64_t suspect;                      // the instruction that may have used one
thread_local bool without_them;                     // whether it is tried again, with ordinary numbers in their place
thread_local decltype(_libc_fpstate::_xmm) before;  // the registers, before it is tried

bool has(const ucontext_t& state, unsigned number) {
  for (const auto& reg : state.uc_mcontext.fpregs->_xmm)
    for (const unsigned element : reg.element)
      if (element == number) return true;
  return false;
}

// Lets the instruction run again, as if all variables in registers had a value.
void try_without_them(ucontext_t& state) {
  auto& now = state.uc_mcontext.fpregs->_xmm;
  memcpy(before, now, sizeof before);
  for (auto& reg : now)
    for (auto& element : reg.element)
      if (element == SIGNALS) element = ONE;
  state.uc_mcontext.gregs[REG_EFL] |= STEP;
  without_them = true;
}

[[nodiscard]] bool tell(uint64_t pc, Worker& w) {
  Check& c = the_check;
  if (!(c.pending && c.finding.kind == FindingKind::race)) {
    c.finding = {};
    c.finding.kind = FindingKind::unset;
    c.finding.own = {0, 0, linear_thread, c.block, pc - uint64_t(c.target.base) + 1};  // as return addresses are
    c.finding.other.pc = c.last_pc;  // used if that is in a function of a header
    snprintf(c.finding.type, sizeof c.finding.type, "variable");
  }
  c.pending = false;
  w.failure.kind = FailureKind::finding;
  return false;
}

}  // namespace

void watch_unset() {
  others = 0, without_them = false;
  _mm_setcsr(_mm_getcsr() & ~(INVALID | 1u));
}
void unwatch_unset() { _mm_setcsr((_mm_getcsr() | INVALID) & ~1u); }

bool goes_on_after(int signal, const siginfo_t& info, void* context, Worker& w) {
  auto& state = *static_cast<ucontext_t*>(context);
  auto& registers = state.uc_mcontext;
  const auto pc = uint64_t(registers.gregs[REG_RIP]);
  if (signal == SIGTRAP) {
    registers.gregs[REG_EFL] &= ~STEP;
    if (without_them || has(state, QUIET)) return tell(suspect, w);
    if (++others < PATIENCE) registers.fpregs->mxcsr &= ~INVALID;
    registers.fpregs->mxcsr &= ~1u;
    return true;
  }
  if (info.si_code != FPE_FLTINV) return false;
  const auto base = uint64_t(the_check.target.base), end = uint64_t(the_check.target.data_start);
  const bool of_kernel = pc >= base && pc < end;
  suspect = pc;
  if (without_them) {  // it is invalid anyway: infinity minus infinity, for example
    memcpy(registers.fpregs->_xmm, before, sizeof before);
    without_them = false;
  } else if (of_kernel && has(state, SIGNALS)) {
    try_without_them(state);
    return true;
  }
  registers.fpregs->mxcsr |= INVALID;
  if ((of_kernel && !has(state, QUIET)) || ++others < PATIENCE) registers.gregs[REG_EFL] |= STEP;
  return true;
}

}  // namespace emulator

#else

namespace emulator {
void watch_unset() {}
void unwatch_unset() {}
bool goes_on_after(int, const siginfo_t&, void*, Worker&) { return false; }
}  // namespace emulator

#endif
