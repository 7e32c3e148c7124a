// emulator.h has read half.h already, before any macro of the kernel file; this makes its names visible.
#pragma once
using namespace emulator::fp16;
