#include "../custom/kernel.cu"
