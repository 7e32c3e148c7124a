#include "../../../layers/custom/kernel.cu"
