// m3/fp32_split: the final kernel with fp32 accuracy from the tensor cores: each operand is two halves.
//
// Idea      A half has 11 significant bits, two have 22: v = high + low / 2^11, with high the nearest half and low the
//           half of what it leaves out, times 2^11. Then x w = high high + (high low + low high) / 2^11, and the
//           product of both lows, 2^-22 of the whole, is left out. Three products instead of one, with fp32 sums: one
//           for high high, one for the two others, so that small terms are added to small ones. The first one is of one
//           filter row at a time: the tensor cores cut sums off, an addition outside of them rounds.
// Layout    as in layers/custom, whose file this is with SPLIT = 1; the quads or pairs of the low halves lie behind the
//           others. In layer 2 pairs take so much room that the image is read where it is packed, from L2 (INPUTS = 0).
// Mapping   as in layers/custom, in lower bands, shorter strips and smaller tiles: weights and sums take two and three
//           times the registers. What differs is multiply_split of quads and pairs, which takes each product three
//           times. Of pairs, products of a filter row and products with a low factor take turns, so that none waits for
//           the sum of the one before it; while a row's sum is added, the others run on.
// Roofline  bytes as in layers/custom: 0.31 + 0.23 ms at 4.3 TB/s. Products three times as many: 2,400 of mma.sync an
//           image in layer 1, 0.16 ms at 600 TFLOP/s; 288 + 48 of wgmma (n = 48, 24) in layer 2, 0.34 ms at 0.9
//           PFLOP/s: rates that loops of nothing else reached.
// Gain      over layers/custom: none in time, about 1 and 2 times as long: layer 1 at the pace of memory still, layer 2
//           at that of the tensor cores. The error of an fp32 sum instead of 2^-11.
// Limits    those of layers/custom for tensor cores. The range is that of fp32 (layers/custom/range.cuh): `prepare`
//           scales the weights by a power of two, and bands are scaled by 2^7 as they are packed. One with a value
//           outside of 2^-21 to 511 is packed again, with a factor of its own. If its values are more than 2^28 apart,
//           small sums are made again in plain fp32; with an infinity or NaN all sums are, which takes many times as
//           long.
// Hazards   as in layers/custom. What pack_halves rounds away is exact in fp32, and so is its product with 2^11. The
//           range that threads find together is cleared after it was read, two barriers before it is used again.
// Source    S. Markidis et al., "NVIDIA Tensor Core Programmability, Performance & Precision", arXiv:1803.04014; H.
//           Ootomo, R. Yokota, "Recovering single precision accuracy from Tensor Cores", arXiv:2203.03341.
#include "../../../layers/custom/kernel.cu"
