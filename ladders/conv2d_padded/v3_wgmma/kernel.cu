#include <mini_dnn/implicit.cuh>

IMPLICIT_KERNEL(convolve, TILE_ROWS, TILE_COLUMNS, TILE_STAGES, TILE_SPLIT, BLOCKS)
