// Part of kernel.cu: lines of an operand that start anywhere, and their copies.

// Copies lines of any pitch to lines that start with a cache line, padded with zeros to a multiple of eight
// elements. One launch copies one operand or both; the blocks of the second follow those of the first. A thread has
// COPIED parts of eight elements in flight.
struct Packed {
  const lines::Bits* from;
  uint4* to;
  int lines, length, pitch, to_pitch;

  __device__ __forceinline__ int parts() const { return (length + 7) / 8; }  // of a line
  __device__ __forceinline__ int blocks() const {
    return int(((long long)lines * parts() + COPIERS * COPIED - 1) / (COPIERS * COPIED));
  }
  __device__ __forceinline__ void copy(int block) const {
    const long long first = (long long)block * (COPIERS * COPIED), end = (long long)(lines - 1) * pitch + length;
    const int first_line = int(first / parts()), in_line = int(first - (long long)first_line * parts());
    lines::Pieces found[COPIED];
    long long start[COPIED];
    int line[COPIED], part[COPIED], count[COPIED];
#pragma unroll
    for (int i = 0; i < COPIED; i++) {
      const unsigned at = unsigned(in_line) + threadIdx.x + i * COPIERS, down = at / parts();
      line[i] = first_line + int(down), part[i] = int(at - down * parts());
      start[i] = (long long)line[i] * pitch + part[i] * 8;
      count[i] = line[i] < lines ? min(length - part[i] * 8, 8) : 0;
      const int shift = int(start[i]) & 7, left = int(min(end / 8 * 8 - start[i], 8ll));
      found[i] = lines::read(reinterpret_cast<const uint4*>(from + (start[i] - shift)), shift, min(count[i], left));
    }
#pragma unroll
    for (int i = 0; i < COPIED; i++) {
      uint4* const eight = to + (long long)line[i] * (to_pitch / 8) + part[i];
      if (count[i] > 0) *eight = lines::aligned(found[i], int(start[i]) & 7, count[i]);
      lines::add_last(reinterpret_cast<lines::Bits*>(eight), from, start[i], count[i], end / 8 * 8);
    }
  }
};
