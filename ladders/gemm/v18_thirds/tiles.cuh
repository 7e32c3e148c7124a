// Part of kernel.cu: loads of the operands, and their thirds in shared memory.

constexpr int TILE_K = 64;                          // terms of a sum in a stage
constexpr int BOX = 64, BOX_BYTES = BOX * BOX * 2;  // 64 lines of 64 bfloats, with 128-byte swizzle
constexpr int A_BOXES = ROWS / BOX, B_BOXES = COLUMNS / BOX, BOXES = A_BOXES + B_BOXES;
constexpr int THIRD_BYTES = BOXES * BOX_BYTES, STAGE_BYTES = 3 * THIRD_BYTES;
constexpr int LINES = SPLITTERS / 16;  // that threads load at once, four floats each

// Writes the thirds of four floats: bfloats whose sum is x * SCALE. The first one is x * SCALE rounded to 8 significant
// bits, and each of the others is what is left, rounded in the same way. `to` is their place in the box of first
// thirds.
__device__ __forceinline__ void split(const float4& x, char* to) {
  float2 rest[2] = {{x.x * SCALE, x.y * SCALE}, {x.z * SCALE, x.w * SCALE}};
#pragma unroll
  for (int third = 0; third < 3; third++) {
    unsigned both[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
      both[i] = ptx::pack_bfloats(rest[i].x, rest[i].y);
      const float2 part = ptx::unpack_bfloats(both[i]);
      rest[i].x -= part.x, rest[i].y -= part.y;
    }
    *reinterpret_cast<uint2*>(to + third * THIRD_BYTES) = make_uint2(both[0], both[1]);
  }
}

// A thread's floats of `side` rows of a, or columns of b, 64 terms at a time: four in every LINES-th line of each box.
// If k is adjacent in memory (`along_k`), a line of a box has 64 terms of a row of a. Otherwise, it has one term of
// each of 64 rows. Floats beyond the operand are zeros. `quads` says that the lines of the operand consist of fours
// that start at multiples of 16 bytes.
template <int side, bool along_k, bool quads>
struct Floats {
  static constexpr int COUNT = side / LINES;  // of fours
  const float* from;
  int pitch, left, left_k;  // rows or columns, and terms, from the thread's next ones on
  float4 fours[COUNT];

  // From row or column `first` and term `l0` on. The operand has `count` rows or columns of k terms.
  __device__ __forceinline__ Floats(const float* x, int pitch, int first, int count, int l0, int k) : pitch(pitch) {
    const int line = threadIdx.x / 16, at = threadIdx.x % 16 * 4;
    const int at_line = first + (along_k ? line : at), at_k = l0 + (along_k ? at : line);
    from = x + (along_k ? (long long)at_line * pitch + at_k : (long long)at_k * pitch + at_line);
    left = count - at_line, left_k = k - at_k;
  }
  // Loads four i. `whole` says that the operand has all floats of the tile.
  template <bool whole>
  __device__ __forceinline__ void load(int i) {
    const int line = i * LINES, box = line / BOX, in_box = line % BOX;
    const float* const four = from + (along_k ? (long long)line * pitch : (long long)in_box * pitch + box * BOX);
    const int outer = along_k ? left - line : left_k - in_box, inner = along_k ? left_k : left - box * BOX;
    const int here = whole ? 4 : outer > 0 ? inner : 0;
    if constexpr (quads)
      fours[i] = here > 0 ? *reinterpret_cast<const float4*>(four) : float4();
    else
      fours[i] = {here > 0 ? four[0] : 0.0f, here > 1 ? four[1] : 0.0f, here > 2 ? four[2] : 0.0f,
                  here > 3 ? four[3] : 0.0f};
  }
  __device__ __forceinline__ void next() {
    from += along_k ? TILE_K : (long long)TILE_K * pitch;
    left_k -= TILE_K;
  }
  __device__ __forceinline__ void split_to(int i, char* boxes) const {
    const int line = threadIdx.x / 16 + i * LINES, piece = threadIdx.x % 16;  // of 8 bytes
    split(fours[i], boxes + line * 128 + ((piece / 2) ^ (line % 8)) * 16 + piece % 2 * 8);
  }
};

// Loads a thread's floats of the first step of the block.
template <bool whole, class T>
__device__ __forceinline__ void load_all(T& floats) {
#pragma unroll
  for (int i = 0; i < T::COUNT; i++) floats.template load<whole>(i);
  floats.next();
}

// Splits a thread's floats, and loads those of the next step into the same registers, so a load may take as long as a
// step.
enum Next { NONE, GUARDED, WHOLE };  // how they are loaded
template <Next next, class T>
__device__ __forceinline__ void split_all(T& floats, char* boxes) {
#pragma unroll
  for (int i = 0; i < T::COUNT; i++) {
    floats.split_to(i, boxes);
    if constexpr (next != NONE) floats.template load<next == WHOLE>(i);
  }
  floats.next();
}
