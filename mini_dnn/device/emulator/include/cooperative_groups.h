// emulator.h has read groups.h already, before any macro of the kernel file; this gives it its CUDA name.
#pragma once
namespace cooperative_groups = emulator::cooperative_groups;
