// emulator.h has read wmma.h already, before any macro of the kernel file; this gives it its CUDA name.
#pragma once
#include "cuda_fp16.h"
namespace nvcuda {
namespace wmma = emulator::wmma;
}
