// What is found at an access: recorded, reported immediately, or kept until its cause is known.
#pragma once
#include "access.h"

namespace emulator {

void note(FindingKind kind, const Region& r, const Access& a, Party other);
[[noreturn]] void report(FindingKind kind, const Region& r, const Access& a, Party other = {});
void report_race(const Region& r, const Access& a, Party other);
void report_outside(const Access& a);  // of all arrays, unless a kernel may use what is there
void check_read_only(const Region& r, const Cell& whole, const Access& a, Detail detail);

}  // namespace emulator
