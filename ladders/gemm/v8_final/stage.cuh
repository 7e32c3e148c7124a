// Part of kernel.cu: the ring of stages.

struct Stage {  // a stage of the ring, and the parity of its phase
  int index = 0, parity = 0;
  __device__ __forceinline__ void next() {
    if (++index == STAGES) index = 0, parity ^= 1;
  }
};
