// The layout of mini_dnn/pairs.cuh in shared memory, and the data that its products find there.
#include <mini_dnn/pairs.cuh>

#ifdef PTX_WGMMA
typedef pairs::Filter<4, 16, R, S> Filter;

// One thread: the slots of a band, for each of some heights and output columns.
extern "C" __global__ void sizes(int* size, const int* band, const int* columns, int count) {
  for (int i = 0; i < count; i++) size[i] = pairs::Layout::of<Filter>(band[i], columns[i], GROUPS).size;
}

// The operands of all products of a tile, [Filter::rows][Filter::steps][16][8 groups]: with ones on the diagonal of A,
// sums are B. `end`: at least where they would end if each one were one piece of memory.
template <int groups>
__device__ void copy_operands(float* out, int* end, const pairs::Operand& b) {
  constexpr unsigned low_one = 0x3c00, high_one = low_one << 16;  // halves
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  unsigned a[4];
  for (int i = 0; i < 4; i++) {
    const int row = g + i % 2 * 8, k = 2 * t + i / 2 * 8;
    a[i] = row == k ? low_one : row == k + 1 ? high_one : 0;
  }
  for (int r = 0; r < Filter::rows; r++)
    for (int s = 0; s < Filter::steps; s++, out += 16 * 8 * groups) {
      *end = max(*end, int(b.at(r, s) & 0xffff) + 2 * 8 * groups);  // 16 k of halves are two slots
      float sum[groups][4];
      ptx::wgmma_fence();
      ptx::wgmma_m64k16<8 * groups, false>(sum, a, b.at(r, s));
      ptx::wgmma_commit();
      ptx::wgmma_wait<0>(sum);
      if (threadIdx.x >= 32) continue;  // the other warps have the same
      for (int i = 0; i < groups; i++)
        for (int j = 0; j < 4; j++) out[(g + j / 2 * 8) * 8 * groups + 8 * i + 2 * t + j % 2] = sum[i][j];
    }
}

// A warpgroup: the operands of all tiles of a band, [column group][tile] and at the edge [column][tile]. The channels
// of a pixel are its row, its column, 1 and 2. `end`: the slot behind all operands.
extern "C" __global__ void operands(float* main, float* edge, int* end, int band, int Q) {
  extern __shared__ __align__(128) uint4 slot[];
  const pairs::Layout at = pairs::Layout::of<Filter>(band, Q, GROUPS);
  for (int i = threadIdx.x; i < at.size; i += blockDim.x) slot[i] = make_uint4(0, 0, 0, 0);
  __syncthreads();  // all slots are zero
  const unsigned others = ptx::pack_halves(1, 2);
  for (int i = threadIdx.x; i < (band + R - 1) * at.columns; i += blockDim.x) {
    const int row = i / at.columns, column = i % at.columns;
    at.put(slot, row, column,
           make_uint4(ptx::pack_halves(row, 2 * column), others, ptx::pack_halves(row, 2 * column + 1), others));
  }
  ptx::fence_proxy_async();
  __syncthreads();  // the pairs are there
  int last = 0;
  constexpr int products = Filter::rows * Filter::steps * 16;
  for (int group = 0; group < at.full; group++)
    for (int row = 0; row < band / 2; row += GROUPS, main += products * 8 * GROUPS)
      copy_operands<GROUPS>(main, &last, pairs::Operand::main(slot, at, row, group));
  for (int column = 0; column < at.rest; column++)
    for (int row = 0; row < band / 2; row += pairs::edge_n, edge += products * pairs::edge_n)
      copy_operands<pairs::edge_groups>(edge, &last, pairs::Operand::edge(slot, at, row, column));
  if (threadIdx.x == 0) *end = last - int(ptx::matrix_descriptor(slot, 0, 0) & 0xffff);
}
#endif
