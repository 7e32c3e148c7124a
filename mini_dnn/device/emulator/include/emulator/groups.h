// CUDA's cooperative groups, as far as kernels that are launched normally can use them.
#pragma once
#include "builtins.h"
#include "lane_masks.h"
#include "warp.h"

namespace emulator {

namespace cooperative_groups {

namespace details {
// For functions that a group lacks. `yes` is never true, and it is only evaluated if the function is used.
template <class...>
constexpr bool never = false;
constexpr int NOT_HERE = 0;
}  // namespace details

// The threads of a block, or the lanes of a warp in `mask`.
class thread_group {
 public:
  void sync(Site site = Site::current()) const {
    mask_ ? warp_barrier(mask_, nullptr, nullptr, "thread_group::sync", site) : block_barrier(site);
  }
  unsigned long long num_threads() const {
    return mask_ ? __builtin_popcount(mask_) : blockDim.x * blockDim.y * blockDim.z;
  }
  unsigned long long size() const { return num_threads(); }
  unsigned long long thread_rank() const { return mask_ ? rank_in(mask_) : linear_thread; }
  bool is_valid() const { return true; }

 protected:
  explicit thread_group(unsigned mask) : mask_(mask) {}
  unsigned mask_;  // 0: the whole block
  friend thread_group tiled_partition(const thread_group& parent, unsigned size);
};

class thread_block : public thread_group {
 public:
  thread_block() : thread_group(0) {}
  static void sync(Site site = Site::current()) { block_barrier(site); }
  static unsigned num_threads() { return blockDim.x * blockDim.y * blockDim.z; }
  static unsigned size() { return num_threads(); }
  static unsigned thread_rank() { return linear_thread; }
  static dim3 group_index() { return {blockIdx.x, blockIdx.y, blockIdx.z}; }
  static dim3 thread_index() { return {threadIdx.x, threadIdx.y, threadIdx.z}; }
  static dim3 dim_threads() { return blockDim; }
  static dim3 group_dim() { return blockDim; }
  template <int here = details::NOT_HERE>
  static int barrier_arrive() {
    static_assert(here, "the emulator has no barrier_arrive(): use block.sync() in place of barrier_wait()");
    return 0;
  }
};
inline thread_block this_thread_block() { return {}; }

class coalesced_group;
namespace reductions {
template <class T, class Op>
T reduce(const coalesced_group& group, const T& value, const Op& op, Site site = Site::current());
}

// The lanes of a warp that called coalesced_threads() together.
class coalesced_group : public thread_group {
 public:
  void sync(Site site = Site::current()) const { warp_barrier(mask_, nullptr, nullptr, "coalesced_group::sync", site); }
  unsigned num_threads() const { return __builtin_popcount(mask_); }
  unsigned size() const { return num_threads(); }
  unsigned thread_rank() const { return rank_in(mask_); }
  unsigned meta_group_rank() const { return 0; }
  unsigned meta_group_size() const { return 1; }

  template <class T>
  T shfl(T value, unsigned rank, Site site = Site::current()) const {
    return shuffle(mask_, value, rank < size() ? lane_at(mask_, rank) : lane(), "coalesced_group::shfl", site);
  }
  template <class T>
  T shfl_up(T value, unsigned delta, Site site = Site::current()) const {
    const unsigned rank = thread_rank();
    return shuffle(mask_, value, delta > rank ? lane() : lane_at(mask_, rank - delta), "coalesced_group::shfl_up",
                   site);
  }
  template <class T>
  T shfl_down(T value, unsigned delta, Site site = Site::current()) const {
    const unsigned rank = thread_rank();
    const unsigned source = delta < size() - rank ? lane_at(mask_, rank + delta) : lane();
    return shuffle(mask_, value, source, "coalesced_group::shfl_down", site);
  }
  int any(int predicate, Site site = Site::current()) const {
    return emulator::ballot(mask_, predicate, "coalesced_group::any", site) != 0;
  }
  int all(int predicate, Site site = Site::current()) const {
    return emulator::ballot(mask_, !predicate, "coalesced_group::all", site) == 0;
  }
  unsigned ballot(int predicate, Site site = Site::current()) const {
    return packed(emulator::ballot(mask_, predicate, "coalesced_group::ballot", site), mask_);
  }
  template <class T>
  unsigned match_any(T value, Site site = Site::current()) const {
    return packed(__match_any_sync(mask_, value, site), mask_);
  }

 private:
  explicit coalesced_group(unsigned mask) : thread_group(mask) {}
  friend coalesced_group coalesced_threads(Site site);
  template <class T, class Op>
  friend T reductions::reduce(const coalesced_group& group, const T& value, const Op& op, Site site);
};
inline coalesced_group coalesced_threads(Site site = Site::current()) { return coalesced_group(converged_lanes(site)); }

// `Size` neighbouring lanes of a warp.
template <unsigned Size, class Parent = void>
class thread_block_tile;

template <unsigned Size>
class thread_block_tile<Size, void> : public thread_group {
  static_assert(
      Size && !(Size & (Size - 1)) && Size <= 32,
      "the emulator has tiles of 1, 2, 4, 8, 16 or 32 threads: a larger group is the block, this_thread_block(), "
      "and what its tiles share goes through shared memory");

 public:
  void sync(Site site = Site::current()) const {
    warp_barrier(mask_, nullptr, nullptr, "thread_block_tile::sync", site);
  }
  static constexpr unsigned num_threads() { return Size; }
  static constexpr unsigned size() { return Size; }
  static unsigned thread_rank() { return lane() % Size; }
  unsigned meta_group_rank() const { return meta_rank_; }
  unsigned meta_group_size() const { return meta_size_; }

  template <class T>
  T shfl(T value, int rank, Site site = Site::current()) const {
    return shuffle(mask_, value, first() | (rank & (Size - 1)), "thread_block_tile::shfl", site);
  }
  template <class T>
  T shfl_up(T value, unsigned delta, Site site = Site::current()) const {
    return shuffle(mask_, value, thread_rank() < delta ? lane() : lane() - delta, "thread_block_tile::shfl_up", site);
  }
  template <class T>
  T shfl_down(T value, unsigned delta, Site site = Site::current()) const {
    return shuffle(mask_, value, delta < Size - thread_rank() ? lane() + delta : lane(), "thread_block_tile::shfl_down",
                   site);
  }
  template <class T>
  T shfl_xor(T value, unsigned bits, Site site = Site::current()) const {
    return shuffle(mask_, value, bits < Size ? lane() ^ bits : lane(), "thread_block_tile::shfl_xor", site);
  }
  int any(int predicate, Site site = Site::current()) const {
    return emulator::ballot(mask_, predicate, "thread_block_tile::any", site) != 0;
  }
  int all(int predicate, Site site = Site::current()) const {
    return emulator::ballot(mask_, !predicate, "thread_block_tile::all", site) == 0;
  }
  unsigned ballot(int predicate, Site site = Site::current()) const {
    return emulator::ballot(mask_, predicate, "thread_block_tile::ballot", site) >> first();
  }
  template <class T>
  unsigned match_any(T value, Site site = Site::current()) const {
    return __match_any_sync(mask_, value, site) >> first();
  }

 protected:
  thread_block_tile(unsigned meta_rank, unsigned meta_size)
      : thread_group(tile_mask(Size)), meta_rank_(meta_rank), meta_size_(meta_size) {}

 private:
  static unsigned first() { return lane() & ~(Size - 1); }
  unsigned meta_rank_, meta_size_;
};

template <unsigned Size, class Parent>
class thread_block_tile : public thread_block_tile<Size, void> {
  using thread_block_tile<Size, void>::thread_block_tile;
  template <unsigned Part>
  friend thread_block_tile<Part, thread_block> tiled_partition(const thread_block& parent);
  template <unsigned Part, unsigned Whole, class Of>
  friend thread_block_tile<Part, thread_block_tile<Whole, Of>> tiled_partition(
      const thread_block_tile<Whole, Of>& parent);
};

template <unsigned Size>
thread_block_tile<Size, thread_block> tiled_partition(const thread_block& parent) {
  return {linear_thread / Size, (parent.size() + Size - 1) / Size};
}
template <unsigned Size, unsigned Whole, class Of>
thread_block_tile<Size, thread_block_tile<Whole, Of>> tiled_partition(const thread_block_tile<Whole, Of>& parent) {
  static_assert(Size <= Whole, "a part of a tile is not larger than the tile: tiled_partition of this_thread_block()");
  return {parent.thread_rank() / Size, Whole / Size};
}
template <unsigned Size>
thread_block_tile<1, thread_block> tiled_partition(const coalesced_group&) {
  static_assert(details::never<thread_block_tile<Size>>,
                "the emulator cannot partition a coalesced group: partition this_thread_block(), before the branch");
  return tiled_partition<1>(thread_block());
}
// The same with a size that is only known at run time.
inline thread_group tiled_partition(const thread_group& parent, unsigned size) {
  if (!size || size > 32 || size & (size - 1))
    fail("tiled_partition(..., %u): a tile has 1, 2, 4, 8, 16 or 32 threads", size);
  const unsigned mask = tile_mask(size);
  if (parent.mask_ && (mask & ~parent.mask_))
    fail("tiled_partition(..., %u): the group to be partitioned has %u threads", size, unsigned(parent.num_threads()));
  return thread_group(mask);
}

// All threads of the launch. They cannot wait for each other.
class grid_group {
 public:
  static bool is_valid() { return false; }
  static unsigned long long num_blocks() { return (unsigned long long)gridDim.x * gridDim.y * gridDim.z; }
  static unsigned long long num_threads() { return num_blocks() * thread_block::size(); }
  static unsigned long long size() { return num_threads(); }
  static unsigned long long block_rank() {
    return blockIdx.x + (unsigned long long)gridDim.x * (blockIdx.y + (unsigned long long)gridDim.y * blockIdx.z);
  }
  static unsigned long long thread_rank() { return block_rank() * thread_block::size() + linear_thread; }
  static dim3 block_index() { return {blockIdx.x, blockIdx.y, blockIdx.z}; }
  static dim3 dim_blocks() { return gridDim; }
  static dim3 group_dim() { return gridDim; }
  template <int here = details::NOT_HERE>
  static void sync() {
    static_assert(here,
                  "this_grid().sync() needs a cooperative launch, which plans do not support: end the kernel where "
                  "the grid has to synchronise, and launch the rest as the next step of the plan");
  }
};
inline grid_group this_grid() { return {}; }

template <class Group>
void sync(const Group& group, Site site = Site::current()) {
  if constexpr (requires { group.sync(site); })
    group.sync(site);
  else
    group.sync();
}
template <class Group>
auto thread_rank(const Group& group) {
  return group.thread_rank();
}
template <class Group>
auto group_size(const Group& group) {
  return group.size();
}

}  // namespace cooperative_groups
}  // namespace emulator
