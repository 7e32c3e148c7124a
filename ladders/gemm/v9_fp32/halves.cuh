// Part of kernel.cu: two halves for a float.

// Two low halves with LOW_BITS significant bits each, rounded to the nearest such numbers.
__device__ __forceinline__ unsigned round_low(unsigned halves) {
  constexpr unsigned unit = 1u << (11 - LOW_BITS), both = 0x10001;
  return LOW_BITS == 11 ? halves : (halves + unit / 2 * both) & ~((unit - 1) * both);
}

// Splits eight elements into eight high halves and eight low ones.
__device__ __forceinline__ void split(const float (&x)[8], const float (&factor)[8], uint4& high, uint4& low) {
  unsigned h[4], l[4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const float u = x[2 * i] * factor[2 * i], v = x[2 * i + 1] * factor[2 * i + 1];
    h[i] = ptx::pack_halves(u, v);
    const float2 near = ptx::unpack_halves(h[i]);
    l[i] = round_low(ptx::pack_halves(u - near.x, v - near.y));
  }
  high = make_uint4(h[0], h[1], h[2], h[3]);
  low = make_uint4(l[0], l[1], l[2], l[3]);
}

// Loads eight elements from x on. Only `left` of them exist (it may be negative); the others are zero.
__device__ __forceinline__ void read(const float* x, int left, bool quads, float (&to)[8]) {
#pragma unroll
  for (int i = 0; i < 8; i += 4) {
    if (quads && i + 3 < left) {
      const float4 four = *reinterpret_cast<const float4*>(x + i);
      to[i] = four.x, to[i + 1] = four.y, to[i + 2] = four.z, to[i + 3] = four.w;
    } else {
#pragma unroll
      for (int j = i; j < i + 4; j++) to[j] = j < left ? x[j] : 0.0f;
    }
  }
}

// The index of a box: those of a tile follow each other, chunk after chunk, so that a stage is one copy. The first
// `wide` tiles have WIDE lines, the others `narrow` boxes.
__device__ __forceinline__ long long place(int box, int chunk, int chunks, int wide, int narrow = 2) {
  const int narrow_from = wide * (WIDE / 64), size = box < narrow_from ? WIDE / 64 : narrow;
  const int first = box < narrow_from ? box / size * size : narrow_from + (box - narrow_from) / size * size;
  return (long long)first * chunks + chunk * size + (box - first);
}
