// emulator.h has read ptx.h already. These are asynchronous copies of a thread, under the names that CUDA's samples
// use.
#pragma once

EMULATOR_ACCESS void __pipeline_memcpy_async(void* shared, const void* global, size_t bytes, size_t zeros = 0,
                                             emulator::Site site = emulator::Site::current()) {
  const int valid = int(bytes - zeros);
  if (bytes == 4)
    emulator::ptx::cp_async<4>(shared, global, valid, site);
  else if (bytes == 8)
    emulator::ptx::cp_async<8>(shared, global, valid, site);
  else if (bytes == 16)
    emulator::ptx::cp_async<16>(shared, global, valid, site);
  else
    emulator::fail("__pipeline_memcpy_async (%s:%u) copies 4, 8 or 16 bytes, not %zu", site.file_name(), site.line(),
                   bytes);
}
EMULATOR_ACCESS void __pipeline_commit() { emulator::ptx::cp_async_commit(); }
EMULATOR_ACCESS void __pipeline_wait_prior(size_t groups) { emulator::copy_async_wait(unsigned(groups)); }
