// Products of a warpgroup: how they are computed, and when. A product is one operation of four warps, here as on a GPU.
// It is made for all of them when one waits for it and all have started it. After that, nobody needs its operands.
#include <algorithm>

#include "../include/emulator/bfloat_bits.h"
#include "../include/emulator/half_bits.h"
#include "../include/emulator/multiply.h"
#include "async.h"

namespace emulator {

namespace {

constexpr unsigned WARPS = WARPGROUP / WARP;
constexpr const char* NOT_ALIKE =
    "wgmma_m64k16 (%s:%u) is a product of all four warps of a warpgroup, but they did not start the same products with "
    "the same descriptors";

void eight_floats(Element element, const void* bits, float* floats) {
  element == Element::half ? halves_to_floats<8>(bits, floats) : bfloats_to_floats<8>(bits, floats);
}

// Calls move(element of d of the lane, element of sums) for all of them. Fragments are as for mma_m16n8k16.
template <class Move>
void each_sum(const Product& p, Sums& sums, Move move) {
  for (int lane = 0; lane < WARP; lane++) {
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < p.call.columns / 8; i++)
      for (int j = 0; j < 4; j++) move(p.d[lane][4 * i + j], sums[i][2 * t + j % 2][g + j / 2 * 8]);
  }
}

// a, [k][row]
void read_registers(const Product& p, float (&a)[16][16]) {
  alignas(64) uint16_t bits[16][16];
  for (int lane = 0; lane < WARP; lane++) {
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; i++) {
      const int row = g + i % 2 * 8, k = 2 * t + i / 2 * 8;
      bits[k][row] = p.registers[lane][i];
      bits[k + 1][row] = p.registers[lane][i] >> 16;
    }
  }
  for (int i = 0; i < 32; i++) eight_floats(p.call.element, &bits[i / 2][i % 2 * 8], &a[i / 2][i % 2 * 8]);
}

// Reads 16 k of `rows` rows of a matrix, from `row` on. The steps are the distances between them in `out`.
template <int rows>
void read_shared(const Matrix& matrix, Element element, int row, float* out, int row_step, int k_step) {
  const int step = matrix.transposed ? row_step : k_step;
  for (int i = 0; i < rows; i += matrix.transposed ? 8 : 1)
    for (int k = 0; k < 16; k += matrix.transposed ? 1 : 8) {
      float eight[8], *const to = out + i * row_step + k * k_step;
      eight_floats(element, matrix.chunk(row + i, k), step == 1 ? to : eight);
      for (int j = 0; j < 8 && step > 1; j++) to[j * step] = eight[j];
    }
}

void multiply_into(const Product& p, Sums& sums) {
  alignas(64) float a[16][16], b[MAX_COLUMNS][16];
  if (p.a_in_registers)
    read_registers(p, a);
  else
    read_shared<16>(p.a, p.call.element, 0, a[0], 1, 16);
  for (int i = 0; i < p.call.columns; i += 8) read_shared<8>(p.b, p.call.element, i, b[i], 16, 1);
  multiply(sums[0][0], b[0], a[0], p.call.columns, 16, 16, p.call.element, Accumulators::floats);
}

bool same_sums(const Product& p, const Product& q) {
  return p.call.columns == q.call.columns && !memcmp(p.d, q.d, sizeof p.d);
}

// Computes products [first, last). Consecutive products with the same sums leave them in place.
void make(const Product* first, const Product* last) {
  Sums& sums = the_async().sums;
  for (const Product* p = first; p != last; p++) {
    if (!p->call.accumulate)
      memset(sums, 0, p->call.columns * sizeof sums[0][0]);
    else if (p == first || !same_sums(p[-1], *p))
      each_sum(*p, sums, [](float mine, float& sum) { sum = mine; });
    multiply_into(*p, sums);
    if (p + 1 == last || !same_sums(*p, p[1])) each_sum(*p, sums, [](float& mine, float sum) { mine = sum; });
  }
}

void require_alike(const Product& p, const Product& first) {
  if (p.call != first.call || p.site.line() != first.site.line())
    fail_warp(NOT_ALIKE, p.site.file_name(), p.site.line());
}

// Forgets what a warp has waited for.
void retire(WarpProducts& w, unsigned made) {
  const auto first = w.queue.begin(), end = first + (std::min(made, w.waited) - w.first);
  std::for_each(first, end, check_product_waited);
  w.first += end - first;
  w.queue.erase(first, end);
}

}  // namespace

void make_awaited(unsigned number) {
  Async& async = the_async();
  Warpgroup& warpgroup = async.warpgroups[number];
  WarpProducts* const warps = async.products + number * WARPS;
  unsigned awaited = 0, started = ~0u;
  for (unsigned i = 0; i < WARPS; i++) {
    awaited = std::max(awaited, warps[i].waited);
    started = std::min(started, warps[i].whole);
  }
  const unsigned end = std::min(awaited, started);
  if (end > warpgroup.made) {
    for (unsigned i = 0; i < WARPS; i++) {
      const Product* const first = &warps[i].at(warpgroup.made);
      const Product* const last = first + (end - warpgroup.made);
      for (const Product* p = first; p != last; p++) require_alike(*p, warps[0].at(warpgroup.made + (p - first)));
      make(first, last);
      std::for_each(first, last, check_product_made);
    }
    warpgroup.made = end;
    for (Fiber* lane : warpgroup.waiters) this_worker->ready.push(lane);
    warpgroup.waiters.clear();
  }
  for (unsigned i = 0; i < WARPS; i++) retire(warps[i], warpgroup.made);
}

void require_products(const Worker& w) {
  if (!w.async || !w.async->used) return;
  for (unsigned i = 0; i < w.total / WARP; i++) {
    const WarpProducts& products = w.async->products[i];
    const auto& waiters = w.async->warpgroups[i / WARPS].waiters;
    if (waiters.empty() || w.warps[i].exited != ~0u) continue;
    const WarpProducts& waiting = w.async->products[waiters[0]->linear / WARP];
    if (products.whole >= waiting.waited) continue;
    const Site site = products.whole ? products.latest : waiting.latest;
    fail_warp(NOT_ALIKE, site.file_name(), site.line());
  }
}

}  // namespace emulator
