// Products of a warpgroup that are made when they are waited for: include/emulator/async_interface.h.
#include <algorithm>

#include "../include/emulator/half_bits.h"
#include "../include/emulator/multiply.h"
#include "async.h"

#define CALL __builtin_return_address(0)

namespace emulator {

namespace {

constexpr unsigned WARPGROUP = 4 * WARP, ALL_LANES = ~0u;
constexpr size_t WINDOW = 1 << 20, LARGEST_DISTANCE = (1 << 18) - 16;  // what 14 bits count by 16

// Sums of a warp while products are made, columns by rows: a vector of rows times an element of b is a vector of sums.
typedef float Sums[MAX_COLUMNS / 8][8][16];

// Calls move(element of d of the lane, element of sums) for all of them; fragments as of mma_m16n8k16.
template <class Move>
void each_sum(const Product& p, Sums& sums, Move move) {
  for (int lane = 0; lane < WARP; lane++) {
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < p.columns / 8; i++)
      for (int j = 0; j < 4; j++) move(p.d[lane][4 * i + j], sums[i][2 * t + j % 2][g + j / 2 * 8]);
  }
}

void read_a(const Product& p, float (&a)[16][16]) {
  alignas(64) uint16_t halves[16][16];  // k by rows
  for (int lane = 0; lane < WARP; lane++) {
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; i++) {
      const int row = g + i % 2 * 8, k = 2 * t + i / 2 * 8;
      halves[k][row] = p.a[lane][i];
      halves[k + 1][row] = p.a[lane][i] >> 16;
    }
  }
  for (int k = 0; k < 16; k++) halves_to_floats<16>(halves[k], a[k]);
}

void multiply_into(const Product& p, Sums& sums) {
  alignas(64) float a[16][16], b[8][16];
  read_a(p, a);
  for (int i = 0; i < p.columns / 8; i++) {
    for (int j = 0; j < 8; j++)
      for (int half = 0; half < 2; half++) halves_to_floats<8>(p.core_matrix(i, half) + 16 * j, b[j] + 8 * half);
    multiply<8, 16, 16>(sums[i], a, [&](int j, int k) { return b[j][k]; });
  }
}

bool same_sums(const Product& p, const Product& q) { return p.columns == q.columns && !memcmp(p.d, q.d, sizeof p.d); }

// Makes products [first, last). Those to the same sums, one after the other, leave them where they are.
void make(const Product* first, const Product* last) {
  alignas(64) Sums sums;
  for (const Product* p = first; p != last; p++) {
    if (!p->accumulate)
      memset(sums, 0, sizeof sums);
    else if (p == first || !same_sums(p[-1], *p))
      each_sum(*p, sums, [](float mine, float& sum) { sum = mine; });
    multiply_into(*p, sums);
    if (p + 1 == last || !same_sums(*p, p[1])) each_sum(*p, sums, [](float& mine, float sum) { mine = sum; });
  }
}

WarpProducts& of_this_warp() { return the_async().products[linear_thread / WARP]; }

// The product that a descriptor stands for: fields as on a GPU, but for the address, which has two bits more here.
Product describe_product(unsigned long long b, int columns, bool accumulate, Site site, const void* call) {
  const size_t address = b & 0xffff, leading = b >> 16 & 0x3fff, stride = b >> 32 & 0x3fff;  // in units of 16 bytes
  return {.descriptor = b,
          .b = the_async().window + 16 * address,
          .leading = 16 * leading,
          .stride = 16 * stride,
          .columns = columns,
          .accumulate = accumulate,
          .site = site,
          .thread = linear_thread,
          .call = call};
}

struct Waiting {
  unsigned groups;
  const float* d;
  const void* call;
};

// The sums that a wait is for must not be under way after it.
void check_sums(const WarpProducts& w, const Waiting& waiting, Site site) {
  for (const Product& p : w.queue) {
    if (p.d[linear_thread % WARP] != waiting.d) continue;
    check_sums_under_way(p, waiting.call);
    fail("wgmma_wait<%u> (%s:%u): the sums that it is given are still under way, in the product of line %u",
         waiting.groups, site.file_name(), site.line(), p.site.line());
  }
}

// The lanes of a warp have met at a wait, or some have returned, of which one may run this.
void finish(void* const* arguments, unsigned arrived) {
  const unsigned first = __builtin_ctz(arrived);
  const Wait& wait = this_worker->warps[linear_thread / WARP].fibers[first]->wait;
  const char* file = wait.site.file_name();
  const unsigned line = wait.site.line();
  if (arrived != ALL_LANES)
    fail_warp("wgmma_wait (%s:%u) needs all 32 lanes of a warp; mask 0x%08x came", file, line, arrived);
  WarpProducts& w = of_this_warp();
  for (unsigned lane = 0; lane < WARP; lane++)
    if (w.started[lane] != w.queue.size() || w.committed[lane] != w.groups.size())
      fail_warp(
          "wgmma_wait (%s:%u) needs the same from all lanes of a warp, and lane %u has started %u products in %u "
          "groups, others %zu in %zu",
          file, line, lane, w.started[lane], w.committed[lane], w.queue.size(), w.groups.size());
  const auto& mine = *static_cast<const Waiting*>(arguments[linear_thread % WARP]);
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

unsigned long long describe_matrix(const void* b, unsigned leading, unsigned stride, Site site) {
  Async& async = the_async();
  const auto* start = static_cast<const char*>(b);
  if (!async.window) async.window = start - WINDOW / 2;
  if (start < async.window || start >= async.window + WINDOW)
    fail("matrix_descriptor (%s:%u): the matrix is not in shared memory", site.file_name(), site.line());
  if (leading > LARGEST_DISTANCE || stride > LARGEST_DISTANCE)
    fail("matrix_descriptor (%s:%u): distances of %u and %u bytes; it holds at most %zu", site.file_name(), site.line(),
         leading, stride, LARGEST_DISTANCE);
  return (start - async.window) >> 4 | (unsigned long long)(leading >> 4) << 16 |
         (unsigned long long)(stride >> 4) << 32;
}

void product_start(float* d, const unsigned (&a)[4], unsigned long long b, int columns, bool accumulate, Site site) {
  const unsigned lane = linear_thread % WARP;
  WarpProducts& w = of_this_warp();
  auto is_first = [&] { return w.started[lane] == w.queue.size(); };
  if (is_first()) {
    if (linear_thread / WARPGROUP * WARPGROUP + WARPGROUP > this_worker->total)
      fail_warp("wgmma_m64k16 (%s:%u) is a product of four warps, and a block of %u threads ends with less",
                site.file_name(), site.line(), this_worker->total);
    Product product = describe_product(b, columns, accumulate, site, CALL);
    check_product_reads(product);  // other threads may run in it
    if (is_first()) {
      check_product_started(product);
      w.queue.push_back(product);
      w.history = (w.history ^ b ^ site.line() ^ uint64_t(columns + accumulate) << 48) * 0x9e3779b97f4a7c15 + 1;
      w.latest = site;
    }
  }
  Product& p = w.queue[w.started[lane]++];
  const char* other = p.site.line() != site.line()                         ? "is at another product"
                      : p.descriptor != b                                  ? "passes another descriptor"
                      : p.columns != columns || p.accumulate != accumulate ? "makes another product"
                                                                           : nullptr;
  if (other)
    fail_warp("wgmma_m64k16 (%s:%u) needs the same from all lanes of a warp, and lane %u %s", site.file_name(),
              site.line(), lane, other);
  p.d[lane] = d;
  memcpy(p.a[lane], a, sizeof a);
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
  Waiting waiting{groups, d, CALL};
  warp_barrier(ALL_LANES, &waiting, finish, "wgmma_wait", site);
}

void forget_products(Worker& worker) {
  for (WarpProducts& w : worker.async->products) {
    w.queue.clear();
    w.groups.clear();
    std::fill_n(w.started, WARP, 0);
    std::fill_n(w.committed, WARP, 0);
    w.history = 0;
  }
  worker.async->window = nullptr;
}

void end_products(Worker& worker) {
  if (worker.failure.kind != FailureKind::none) return;
  const WarpProducts* const all = worker.async->products;
  for (unsigned i = 0; i < worker.total / WARP; i++) {
    if (!all[i].queue.empty()) {
      const Product& left = all[i].queue[0];
      end_block(worker, "wgmma_m64k16 (%s:%u): the block ends, and nobody has waited for this product", left.site);
      check_product_left(left);
      return;
    }
    const WarpProducts& first = all[i / 4 * 4];
    if (all[i].history != first.history)
      return end_block(worker,
                       "wgmma_m64k16 (%s:%u) is a product of all four warps of a warpgroup, and they have not made the "
                       "same ones, with the same descriptors",
                       first.history ? first.latest : all[i].latest);
  }
}

}  // namespace emulator
