// Functions of the runtime library for the emulated asynchronous copies, mbarriers and products (ptx.h).
//
// A copy takes effect when a thread waits for it, and not before: earlier reads see the previous contents. Each thread
// has groups of cp.async and groups of bulk stores. Bulk loads belong to the mbarrier that counts their bytes.
#pragma once
#include "multiply.h"
#include "runtime_interface.h"
#include "tensor_map.h"

#pragma GCC visibility push(default)
namespace emulator {

// Ends the launch if an address or a size is not a multiple of `unit`.
void require_multiple(size_t value, size_t unit, const char* what, Site site);

void copy_async(void* shared, const void* global, unsigned bytes, unsigned valid);
void copy_async_commit();
void copy_async_wait(unsigned groups);

void barrier_init(void* barrier, unsigned arrivals, Site site);
void barrier_arrive(void* barrier, unsigned expected_bytes, Site site);
bool barrier_try_wait(void* barrier, unsigned parity, Site site);  // false: after other threads have run
void barrier_wait(void* barrier, unsigned parity, Site site);

void bulk_load(void* shared, const void* global, unsigned bytes, void* barrier, Site site);
void bulk_store(void* global, const void* shared, unsigned bytes);

// Boxes of a tensor map. Loads are bulk loads and stores are bulk stores of the whole box, inside the tensor or not.
struct BoxPlace {
  int x, y, z;  // of the first element
  // For a map of windows: the image, and how far to the right and down the pixel is in each window.
  int n = 0, right = 0, down = 0;
};
void check_map(const TensorMap& map, unsigned axes, const char* what, Site site);
void check_windows(const TensorMap& map, const char* what, Site site);  // checks that it is a map of windows
void tensor_load(void* shared, const TensorMap& map, BoxPlace at, void* barrier, Site site);
void tensor_store(const TensorMap& map, BoxPlace at, const void* shared);

void bulk_commit();
void bulk_wait(unsigned groups, bool only_read);

// Products of a warpgroup. They begin to read shared memory and to add to d when one of its warps waits for their
// group, and not before. `columns` is at most MAX_COLUMNS, and d has columns / 2 floats. Descriptors have a format of
// their own, but as on a GPU, adding bytes >> 4 moves them forward.
constexpr int MAX_COLUMNS = 256;
struct ProductCall {  // all lanes of a warp pass the same values
  unsigned long long a = 0, b = 0;
  int columns = 0;
  bool accumulate = false, transposed_a = false, transposed_b = false;
  Element element = Element::half;
  bool operator==(const ProductCall&) const = default;
};
unsigned long long describe_matrix(const void* p, unsigned leading, unsigned stride, bool swizzled, Site site);
// `a`: four registers, or null if the descriptor of a is used.
void product_start(float* d, const unsigned* a, const ProductCall& call, Site site);
void product_commit(Site site);
void product_wait(unsigned groups, const float* d, Site site);  // d: the sums that will be used, or null

// Called by all lanes of all warps of a warpgroup. It has no other effect.
void set_registers(int count, bool more, Site site);

// No effect here, because copies take effect later, at their waits. Checked mode checks that there is a fence.
#ifdef EMULATOR_CHECKED
void note_proxy_fence();
void note_register_fence();
#else
inline void note_proxy_fence() {}
inline void note_register_fence() {}
#endif

// The launches ahead have ended: see checked/ahead.cpp.
#ifdef EMULATOR_CHECKED
void note_grid_wait();
#else
inline void note_grid_wait() {}
#endif

}  // namespace emulator
#pragma GCC visibility pop
