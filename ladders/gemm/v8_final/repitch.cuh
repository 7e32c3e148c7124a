// Part of kernel.cu: copies of operands whose lines start anywhere.

#include "packed.cuh"

extern "C" __global__ void __launch_bounds__(COPIERS)
    repitch(const lines::Bits* __restrict__ a, uint4* a_to, int a_lines, int a_length, int a_pitch, int a_to_pitch,
            const lines::Bits* __restrict__ b, uint4* b_to, int b_lines, int b_length, int b_pitch, int b_to_pitch) {
  const Packed of_a{a, a_to, a_lines, a_length, a_pitch, a_to_pitch};
  const Packed of_b{b, b_to, b_lines, b_length, b_pitch, b_to_pitch};
  const int block = blockIdx.x, of_b_from = of_a.blocks();
  ptx::grid_wait();
  if (block < of_b_from)
    of_a.copy(block);
  else
    of_b.copy(block - of_b_from);
}
