// Device memory between guard regions, and the variables of a module.
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstring>

#include "checks.h"

namespace {

constexpr size_t PAGE = 4096, NARROW_GUARD = 1 << 20, ALIGNMENT = 256;  // cudaMalloc aligns to 256 bytes

size_t data_bytes(size_t bytes) { return (bytes + PAGE - 1) / PAGE * PAGE; }
size_t start_in_data(size_t bytes) { return (data_bytes(bytes) - bytes) / ALIGNMENT * ALIGNMENT; }

}  // namespace

size_t emulator::guard_bytes() {
#ifdef EMULATOR_CHECKED
  // As far as a 32-bit index of floats reaches: a wild index is then nearest to the array that it belongs to. This is
  // address space only. If that is limited (ulimit -v), less must do.
  static const size_t bytes = [] {
    constexpr size_t wide = size_t(16) << 30, all = 64 * wide;
    void* probe = mmap(nullptr, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (probe == MAP_FAILED) return NARROW_GUARD;
    munmap(probe, all);
    return wide;
  }();
  return bytes;
#else
  return NARROW_GUARD;
#endif
}

namespace {

// Memory between guard regions: a smaller overrun at either end faults instead of changing something else.
char* reserve(size_t bytes) {
  const size_t data = data_bytes(bytes), guard = emulator::guard_bytes(), all = data + 2 * guard;
  void* base = mmap(nullptr, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return nullptr;
  char* start = static_cast<char*>(base) + guard;
  if (mprotect(start, data, PROT_READ | PROT_WRITE) != 0) {
    munmap(base, all);
    return nullptr;
  }
  return start;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

// Memory filled with bytes 0xFF that ends, up to alignment, where a guard region begins. nullptr if there is none.
void* emulator_allocate(size_t bytes) {
  char* start = reserve(bytes);
  if (!start) return nullptr;
  memset(start, 0xff, data_bytes(bytes));
  return start + start_in_data(bytes);
}

// Zeros. Only pages that are touched take memory.
void* emulator_allocate_sparse(size_t bytes) {
  char* start = reserve(bytes);
  return start ? start + start_in_data(bytes) : nullptr;
}

void emulator_free(void* memory, size_t bytes) {
  emulator::check_freed(static_cast<char*>(memory));
  const size_t guard = emulator::guard_bytes();
  munmap(static_cast<char*>(memory) - start_in_data(bytes) - guard, data_bytes(bytes) + 2 * guard);
}

// The size in bytes of the variable at an address from dlsym; 0 if there is none.
size_t emulator_symbol_bytes(void* address) {
  Dl_info info;
  void* entry = nullptr;
  if (!dladdr1(address, &info, &entry, RTLD_DL_SYMENT) || !entry) return 0;
  const auto* symbol = static_cast<const ElfW(Sym)*>(entry);
  return ELF64_ST_TYPE(symbol->st_info) == STT_OBJECT && info.dli_saddr == address ? symbol->st_size : 0;
}

void emulator_unload(void* library) { dlclose(library); }
}
#pragma GCC visibility pop
