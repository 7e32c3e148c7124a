// Heap memory of kernels: malloc and free, new and delete. The linker redirects their calls to these functions, so that
// a kernel can only free what a kernel has allocated.
#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <new>
#include <unordered_map>

#include "checks.h"

namespace emulator {

namespace {

constexpr size_t HEAP_BYTES = 8 << 20;  // a GPU's default without cudaDeviceSetLimit; here, for each launch

struct Block {
  size_t bytes;
  unsigned launch;
};
std::mutex mutex;
std::unordered_map<char*, Block> blocks;
size_t used = 0;  // by blocks of this launch
unsigned launch = 0;

// A launch must not be cancelled while this thread holds the mutex.
struct Uncancelled {
  Uncancelled() { this_worker->in_kernel = false; }
  ~Uncancelled() { this_worker->in_kernel = true; }
};

char* take(size_t bytes, size_t alignment) {
  const Uncancelled uncancelled;
  const std::lock_guard lock(mutex);
  if (bytes > HEAP_BYTES - used) return nullptr;
  const size_t margin = heap_margin(bytes);
  char* const memory = static_cast<char*>(aligned_alloc(alignment, (bytes + 2 * margin + alignment) & -alignment));
  if (!memory) return nullptr;
  blocks[memory + margin] = {bytes, launch};
  used += bytes;
  return memory + margin;
}

// Returns false if it is not a block.
bool give_back(char* p) {
  const Uncancelled uncancelled;
  const std::lock_guard lock(mutex);
  const auto found = blocks.find(p);
  if (found == blocks.end()) return false;
  const auto [bytes, since] = found->second;
  if (since == launch) used -= bytes;
  blocks.erase(found);
  if (!keep_freed(p)) free(p - heap_margin(bytes));
  return true;
}

void* allocate(size_t bytes, size_t alignment, const void* pc) {
  char* const p = take(bytes, alignment);
  if (p) check_allocated(p, bytes, pc);
  return p;
}

void release(void* p, const void* pc) {
  if (!p) return;
  check_release(static_cast<char*>(p), pc);
  if (!give_back(static_cast<char*>(p)))
    fail("free or delete of an address that malloc or new did not return, or that was freed before");
}

constexpr size_t ALIGNMENT = 16;  // of malloc in CUDA

}  // namespace

void start_heap() {
  const std::lock_guard lock(mutex);
  used = 0;
  launch++;
}

}  // namespace emulator

using namespace emulator;

#define PC __builtin_return_address(0)
#define NEW(name)                                                                  \
  void* __wrap_##name(size_t bytes) { return allocate(bytes, ALIGNMENT, PC); }     \
  void* __wrap_##name##St11align_val_t(size_t bytes, std::align_val_t alignment) { \
    return allocate(bytes, std::max(ALIGNMENT, size_t(alignment)), PC);            \
  }
#define DELETE(name)                                                                 \
  void __wrap_##name(void* p) { release(p, PC); }                                    \
  void __wrap_##name##m(void* p, size_t) { release(p, PC); }                         \
  void __wrap_##name##St11align_val_t(void* p, std::align_val_t) { release(p, PC); } \
  void __wrap_##name##mSt11align_val_t(void* p, size_t, std::align_val_t) { release(p, PC); }

#pragma GCC visibility push(default)
extern "C" {
void* __wrap_malloc(size_t bytes) { return allocate(bytes, ALIGNMENT, PC); }
void __wrap_free(void* p) { release(p, PC); }
NEW(_Znwm)  // operators new, new[], delete and delete[] by their mangled names
NEW(_Znam)
DELETE(_ZdlPv)
DELETE(_ZdaPv)
}
#pragma GCC visibility pop
