#pragma once
#error \
    "the emulator has no memcpy_async: let each thread copy elements, and call block.sync(); or use ptx::cp_async(), \
ptx::cp_async_commit() and ptx::cp_async_wait() of <mini_dnn/ptx.cuh>"
