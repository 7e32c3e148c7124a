// layers/fused: convolution, ReLU and max-pool in one kernel: layers/custom with a reduction in its registers.
//
// Idea      The largest array of the network is the output of the convolution, which the next layers read only to make
//           it smaller. Here it never leaves the registers: the sums of a window belong to one thread, or to two
//           threads whose lane numbers differ in one bit. Only the pooled output is stored.
// Layout    as in layers/custom, whose file this is with POOL > 0, except y (N,M,PP,PQ) with PP = ceil(P / POOL), PQ =
//           ceil(Q / POOL): truncated windows at the lower and right edges count. Slabs are also pooled.
// Mapping   as in layers/custom. A strip has whole windows, whose rows are processed one after the other by the same
//           thread. The thread keeps the maxima of two windows, and combines them with those of its neighbours where
//           windows end: see pool().
// Roofline  bytes 4 (N C H W + M K + N M PP PQ): 0.13 + 0.07 ms at 4.3 TB/s for the course's layers, N = 10,000.
//           Products as in layers/custom: 0.06 + 0.11 ms.
// Gain      over layers/custom and separate pooling: the output is neither stored nor read again by the pool. 0.42 and
//           0.31 of the bytes of layers/custom remain.
// Limits    POOL 1, 2 or 4; the other limits are those of layers/custom, where conv_direct processes such shapes.
// Hazards   as in layers/custom. Pixels beyond the edge must not change a maximum. Maxima start at 0, the minimum after
//           ReLU. Rows beyond the edge are skipped, and columns beyond it repeat the last quad.
// Source    as layers/custom; __shfl_xor_sync: CUDA C++ Programming Guide, "Warp Shuffle Functions".
#include "../custom/kernel.cu"
