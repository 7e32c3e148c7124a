// Products of a warpgroup: how its warps start them and wait for them; see include/emulator/async_interface.h.
#include <algorithm>
#include <span>

#include "async.h"

#define CALL __builtin_return_address(0)

namespace emulator {

namespace {

constexpr unsigned ALL_LANES = ~0u;
constexpr size_t WINDOW = 1 << 20, LARGEST_DISTANCE = (1 << 18) - 16;  // 14 bits that count units of 16

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

struct Awaited {
  unsigned groups;
  const float* d;
  const void* call;
};

// The sums that a wait is for must not be in flight after it.
void check_sums(const WarpProducts& w, const Awaited& awaited, Site site) {
  for (const Product& p : std::span(w.queue).subspan(w.waited - w.first)) {
    if (!awaited.d || p.d[linear_thread % WARP] != awaited.d) continue;
    check_sums_under_way(p, awaited.call);
    fail("wgmma_wait<%u> (%s:%u): the sums passed to it are still in flight, in the product of line %u", awaited.groups,
         site.file_name(), site.line(), p.site.line());
  }
}

// The lanes of a warp have met at a wait, or some have returned, one of which may run this.
void await(void* const* arguments, unsigned arrived) {
  require_all_lanes(arrived);
  const Site site = this_worker->warps[linear_thread / WARP].fibers[0]->wait.site;
  WarpProducts& w = of_this_warp();
  const unsigned products = w.end(), groups = w.first_group + unsigned(w.groups.size());
  for (unsigned lane = 0; lane < WARP; lane++)
    if (w.started[lane] != products || w.committed[lane] != groups)
      fail_warp(
          "wgmma_wait (%s:%u) needs the same from all lanes of a warp, and lane %u has started %u products in %u "
          "groups, others %u in %u",
          site.file_name(), site.line(), lane, w.started[lane], w.committed[lane], products, groups);
  const auto& mine = *static_cast<const Awaited*>(arguments[linear_thread % WARP]);
  const unsigned left = std::min<size_t>(mine.groups, w.groups.size()), over = w.groups.size() - left;
  if (over) w.waited = w.groups[over - 1];
  w.groups.erase(w.groups.begin(), w.groups.begin() + over);
  w.first_group += over;
  check_sums(w, mine, site);
  make_awaited(linear_thread / WARPGROUP);
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
  require_all_lanes(arrived);
  WarpProducts& w = of_this_warp();
  w.registers = (w.registers ^ *static_cast<const int*>(arguments[linear_thread % WARP])) * 0x9e3779b97f4a7c15 + 1;
  w.latest_registers = this_worker->warps[linear_thread / WARP].fibers[0]->wait.site;
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
  auto is_first = [&] { return w.started[lane] == w.end(); };
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
      w.latest = site;
    } else {
      check_product_read_again(w.at(w.started[lane]));
    }
  }
  Product& p = w.queue[w.started[lane]++ - w.first];
  const char* other = p.site.line() != site.line()               ? "is at another product"
                      : p.call.a != call.a || p.call.b != call.b ? "passes another descriptor"
                      : p.call != call                           ? "makes another product"
                                                                 : nullptr;
  if (other)
    fail_warp("wgmma_m64k16 (%s:%u) needs the same from all lanes of a warp, and lane %u %s", site.file_name(),
              site.line(), lane, other);
  check_registers(p, d, a, CALL);
  p.d[lane] = d;
  if (a) memcpy(p.registers[lane], a, sizeof p.registers[lane]);
  if (++p.lanes < WARP) return;
  w.whole++;
  make_awaited(linear_thread / WARPGROUP);
}

void product_commit(Site site) {
  const unsigned lane = linear_thread % WARP;
  WarpProducts& w = of_this_warp();
  const unsigned group = w.committed[lane]++ - w.first_group;
  if (group == w.groups.size()) {
    for (unsigned i = group ? w.groups.back() : w.waited; i < w.started[lane]; i++)
      check_product_committed(w.queue[i - w.first]);
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
  warp_barrier(ALL_LANES, &awaited, await, "wgmma_wait", site);
  Warpgroup& warpgroup = the_async().warpgroups[linear_thread / WARPGROUP];
  while (warpgroup.made < of_this_warp().waited) {  // another warp has not started all of them
    Fiber* const me = this_worker->current;
    me->wait.mask = 0;
    warpgroup.waiters.push_back(me);
    wait_for_others(*this_worker);
  }
}

void forget_products(Worker& worker) {
  for (WarpProducts& w : worker.async->products) w = {};
  for (Warpgroup& warpgroup : worker.async->warpgroups) warpgroup = {};
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
    if (all[i].registers != first.registers)
      return end_block(worker,
                       "setmaxnreg (%s:%u) is for all four warps of a warpgroup, but they did not call the same",
                       first.registers ? first.latest_registers : all[i].latest_registers);
  }
}

}  // namespace emulator
