// Products of a warpgroup, computed when they are waited for: see include/emulator/async_interface.h.
#include <algorithm>

#include "../include/emulator/bfloat_bits.h"
#include "../include/emulator/half_bits.h"
#include "../include/emulator/multiply.h"
#include "async.h"

#define CALL __builtin_return_address(0)

namespace emulator {

namespace {

constexpr unsigned ALL_LANES = ~0u;
constexpr size_t WINDOW = 1 << 20, LARGEST_DISTANCE = (1 << 18) - 16;  // 14 bits that count units of 16

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

WarpProducts& of_this_warp() { return the_async().products[linear_thread / WARP]; }

// The matrix of a descriptor. Its fields are as on a GPU, except for the address, which has two more bits here.
Matrix described(unsigned long long descriptor, bool transposed, unsigned first, unsigned rows, Site site) {
  const size_t address = descriptor & 0xffff, leading = descriptor >> 16 & 0x3fff, stride = descriptor >> 32 & 0x3fff;
  const bool swizzled = descriptor >> 62 & 1, any_line = descriptor >> 61 & 1;
  const char* start = the_async().window + 16 * address;  // the other fields also have units of 16 bytes
  if (swizzled && !any_line && reinterpret_cast<uintptr_t>(start) & 0x380)
    fail(
        "wgmma_m64k16 (%s:%u): a descriptor of matrix_descriptor_128b was moved on to row %d of eight; it may move "
        "within row 0, and by multiples of 1024 bytes",
        site.file_name(), site.line(), int(reinterpret_cast<uintptr_t>(start) >> 7 & 7));
  if (transposed && !swizzled)
    fail("wgmma_m64k16 (%s:%u): a transposed operand needs a descriptor of matrix_descriptor_128b", site.file_name(),
         site.line());
  return {start, 16 * leading, 16 * stride, swizzled, transposed, first, rows};
}

Product describe_product(const ProductCall& call, bool a_in_registers, Site site, const void* pc) {
  Product p{.call = call, .a_in_registers = a_in_registers, .site = site, .thread = linear_thread, .pc = pc};
  if (!a_in_registers) p.a = described(call.a, call.transposed_a, linear_thread / WARP % 4 * 16, 16, site);
  p.b = described(call.b, call.transposed_b, 0, unsigned(call.columns), site);
  return p;
}

// A description of a product, to compare the warps of a warpgroup.
uint64_t mixed(uint64_t history, const ProductCall& c, Site site) {
  const uint64_t kind = c.columns | c.accumulate << 16 | c.transposed_a << 17 | c.transposed_b << 18 |
                        uint64_t(c.element) << 19 | uint64_t(site.line()) << 32;
  for (const uint64_t part : {uint64_t(c.a), uint64_t(c.b), kind}) history = (history ^ part) * 0x9e3779b97f4a7c15 + 1;
  return history;
}

struct Awaited {
  unsigned groups;
  const float* d;
  const void* call;
};

// The sums that a wait is for must not be in flight after it.
void check_sums(const WarpProducts& w, const Awaited& awaited, Site site) {
  for (const Product& p : w.queue) {
    if (!awaited.d || p.d[linear_thread % WARP] != awaited.d) continue;
    check_sums_under_way(p, awaited.call);
    fail("wgmma_wait<%u> (%s:%u): the sums passed to it are still in flight, in the product of line %u", awaited.groups,
         site.file_name(), site.line(), p.site.line());
  }
}

// The lanes of a warp have met at a wait, or some have returned, one of which may run this.
void finish(void* const* arguments, unsigned arrived) {
  const unsigned first = __builtin_ctz(arrived);
  const Wait& wait = this_worker->warps[linear_thread / WARP].fibers[first]->wait;
  const char* file = wait.site.file_name();
  const unsigned line = wait.site.line();
  if (arrived != ALL_LANES)
    fail_warp("wgmma_wait (%s:%u) needs all 32 lanes of a warp; found mask 0x%08x", file, line, arrived);
  WarpProducts& w = of_this_warp();
  for (unsigned lane = 0; lane < WARP; lane++)
    if (w.started[lane] != w.queue.size() || w.committed[lane] != w.groups.size())
      fail_warp(
          "wgmma_wait (%s:%u) needs the same from all lanes of a warp, and lane %u has started %u products in %u "
          "groups, others %zu in %zu",
          file, line, lane, w.started[lane], w.committed[lane], w.queue.size(), w.groups.size());
  const auto& mine = *static_cast<const Awaited*>(arguments[linear_thread % WARP]);
  const unsigned left = std::min<size_t>(mine.groups, w.groups.size()), over = w.groups.size() - left;
  const unsigned count = over ? w.groups[over - 1] : 0;
  make(w.queue.data(), w.queue.data() + count);
  for (unsigned i = 0; i < count; i++) check_product_made(w.queue[i]);
  w.queue.erase(w.queue.begin(), w.queue.begin() + count);
  w.groups.erase(w.groups.begin(), w.groups.begin() + over);
  for (unsigned& end : w.groups) end -= count;
  for (unsigned lane = 0; lane < WARP; lane++) w.started[lane] -= count, w.committed[lane] -= over;
  check_sums(w, mine, wait.site);
}

void end_block(Worker& worker, const char* format, Site site) {
  worker.failure.kind = FailureKind::warp;
  snprintf(worker.failure.text, sizeof worker.failure.text, format, site.file_name(), site.line());
  note_place(worker.failure);
}

}  // namespace

unsigned long long describe_matrix(const void* p, unsigned leading, unsigned stride, bool swizzled, Site site) {
  Async& async = the_async();
  const auto* start = static_cast<const char*>(p);
  if (!async.window) async.window = start - WINDOW / 2;
  if (start < async.window || start >= async.window + WINDOW)
    fail("matrix_descriptor (%s:%u): the matrix is not in shared memory", site.file_name(), site.line());
  if (leading > LARGEST_DISTANCE || stride > LARGEST_DISTANCE)
    fail("matrix_descriptor (%s:%u): distances of %u and %u bytes; it holds at most %zu", site.file_name(), site.line(),
         leading, stride, LARGEST_DISTANCE);
  return (start - async.window) >> 4 | (unsigned long long)(leading >> 4) << 16 |
         (unsigned long long)(stride >> 4) << 32 | (unsigned long long)swizzled << 62;
}

// The lanes of a warp have met at a setmaxnreg, or some have returned.
void count_registers(void* const* arguments, unsigned arrived) {
  const Wait& wait = this_worker->warps[linear_thread / WARP].fibers[__builtin_ctz(arrived)]->wait;
  if (arrived != ALL_LANES)
    fail_warp("setmaxnreg (%s:%u) needs all 32 lanes of a warp; found mask 0x%08x", wait.site.file_name(),
              wait.site.line(), arrived);
  WarpProducts& w = of_this_warp();
  w.registers = (w.registers ^ *static_cast<const int*>(arguments[linear_thread % WARP])) * 0x9e3779b97f4a7c15 + 1;
  w.latest_registers = wait.site;
}

void set_registers(int count, bool more, Site site) {
  if (linear_thread / WARPGROUP * WARPGROUP + WARPGROUP > this_worker->total)
    fail_warp(
        "setmaxnreg (%s:%u) is for all four warps of a warpgroup, but the last warpgroup of a block of %u threads "
        "has fewer",
        site.file_name(), site.line(), this_worker->total);
  int change = more ? count : -count;
  warp_barrier(ALL_LANES, &change, count_registers, "setmaxnreg", site);
}

void product_start(float* d, const unsigned* a, const ProductCall& call, Site site) {
  count_event(call.a ? "wgmma_m64k16" : "wgmma_m64k16, a in registers", CALL, nullptr, call.columns);
  const unsigned lane = linear_thread % WARP;
  WarpProducts& w = of_this_warp();
  auto is_first = [&] { return w.started[lane] == w.queue.size(); };
  if (is_first()) {
    if (linear_thread / WARPGROUP * WARPGROUP + WARPGROUP > this_worker->total)
      fail_warp(
          "wgmma_m64k16 (%s:%u) is a product of four warps, but the last warpgroup of a block of %u threads has "
          "fewer",
          site.file_name(), site.line(), this_worker->total);
    Product product = describe_product(call, a, site, CALL);
    check_product_reads(product);  // other threads may run during it
    if (is_first()) {
      check_product_started(product);
      w.queue.push_back(product);
      w.history = mixed(w.history, call, site);
      w.latest = site;
    } else {
      check_product_read_again(w.queue[w.started[lane]]);
    }
  }
  Product& p = w.queue[w.started[lane]++];
  const char* other = p.site.line() != site.line()                     ? "is at another product"
                      : p.call.a != call.a || p.call.b != call.b       ? "passes another descriptor"
                      : mixed(0, p.call, site) != mixed(0, call, site) ? "makes another product"
                                                                       : nullptr;
  if (other)
    fail_warp("wgmma_m64k16 (%s:%u) needs the same from all lanes of a warp, and lane %u %s", site.file_name(),
              site.line(), lane, other);
  check_registers(p, d, a, CALL);
  p.d[lane] = d;
  if (a) memcpy(p.registers[lane], a, sizeof p.registers[lane]);
}

void product_commit(Site site) {
  const unsigned lane = linear_thread % WARP;
  WarpProducts& w = of_this_warp();
  const unsigned group = w.committed[lane]++;
  if (group == w.groups.size()) {
    for (unsigned i = group ? w.groups.back() : 0; i < w.started[lane]; i++) check_product_committed(w.queue[i]);
    w.groups.push_back(w.started[lane]);
  }
  if (w.groups[group] != w.started[lane])
    fail_warp(
        "wgmma_commit (%s:%u) needs the same from all lanes of a warp, and lane %u closes a group after %u products, "
        "others after %u",
        site.file_name(), site.line(), lane, w.started[lane], w.groups[group]);
}

void product_wait(unsigned groups, const float* d, Site site) {
  Awaited awaited{groups, d, CALL};
  warp_barrier(ALL_LANES, &awaited, finish, "wgmma_wait", site);
}

void forget_products(Worker& worker) {
  for (WarpProducts& w : worker.async->products) {
    w.queue.clear();
    w.groups.clear();
    std::fill_n(w.started, WARP, 0);
    std::fill_n(w.committed, WARP, 0);
    w.history = w.registers = 0;
  }
  worker.async->window = nullptr;
}

void end_products(Worker& worker) {
  if (worker.failure.kind != FailureKind::none) return;
  const WarpProducts* const all = worker.async->products;
  for (unsigned i = 0; i < worker.total / WARP; i++) {
    if (!all[i].queue.empty()) {
      const Product& left = all[i].queue[0];
      end_block(worker, "wgmma_m64k16 (%s:%u): the block ends without waiting for this product", left.site);
      check_product_left(left);
      return;
    }
    const WarpProducts& first = all[i / 4 * 4];
    if (all[i].history != first.history)
      return end_block(worker,
                       "wgmma_m64k16 (%s:%u) is a product of all four warps of a warpgroup, but they did not start the "
                       "same products with the same descriptors",
                       first.history ? first.latest : all[i].latest);
    if (all[i].registers != first.registers)
      return end_block(worker,
                       "setmaxnreg (%s:%u) is for all four warps of a warpgroup, but they did not call the same",
                       first.registers ? first.latest_registers : all[i].latest_registers);
  }
}

}  // namespace emulator
