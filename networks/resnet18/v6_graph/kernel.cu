#include "../v5_fused/kernel.cu"
