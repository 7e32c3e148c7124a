// layers/fused: convolution, ReLU and max-pool in one kernel; layers/custom with another way out of its registers.
//
// Idea      The largest array of the network is the convolution's output, which the next layers only read to make it
//           smaller. Here it never leaves registers: a window of the pool lies in the sums of one thread, or of two or
//           four whose lanes differ in one or two bits, and only the pooled output is stored.
// Layout    as in layers/custom, whose file this is with POOL > 0, but for y (N,M,PP,PQ) with PP = ceil(P / POOL), PQ =
//           ceil(Q / POOL): windows that the lower and right edges cut short count. Slabs are pooled, too.
// Mapping   as in layers/custom. A strip has whole windows, whose rows come one after the other to the same thread: it
//           keeps their maxima, two of them, and where windows end it takes those of its neighbours, see pool().
// Roofline  bytes 4 (N C H W + M K + N M PP PQ): 0.13 + 0.07 ms at 4.3 TB/s for the course's layers, N = 10,000.
//           Products 800 + 2,184 an image: 0.05 + 0.15 ms at the 600 TFLOP/s that mma.sync reached in a loop of
//           nothing else.
// Gain      over layers/custom and pooling elsewhere: the output's way out, and the pool's own traffic, which is that
//           output once more. 0.42 and 0.31 of layers/custom's bytes are left.
// Limits    POOL 1, 2 or 4; other limits are those of layers/custom, and conv_direct takes such shapes.
// Hazards   as in layers/custom. Pixels past the edge must not win: maxima begin at 0, the least that ReLU leaves, rows
//           past the edge are not looked at, and columns past it repeat the last quad.
// Source    as layers/custom; __shfl_xor_sync: CUDA C++ Programming Guide, "Warp Shuffle Functions".
#include "../custom/kernel.cu"
