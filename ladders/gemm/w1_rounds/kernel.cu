// gemm/w1_rounds
#include "../v11_ahead/kernel.cu"
