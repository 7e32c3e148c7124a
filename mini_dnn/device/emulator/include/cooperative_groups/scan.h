#pragma once
#error "the emulator has no scans: add up tile.shfl_up(sum, d) for d = 1, 2, 4 ... where tile.thread_rank() >= d"
