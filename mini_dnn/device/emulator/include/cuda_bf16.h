// emulator.h has read bfloat.h already, before any macro of the kernel file; this makes its names visible.
#pragma once
using namespace emulator::bf16;
