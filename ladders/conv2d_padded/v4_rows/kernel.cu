#include <mini_dnn/implicit_rows.cuh>

IMPLICIT_ROWS_KERNEL(convolve)
