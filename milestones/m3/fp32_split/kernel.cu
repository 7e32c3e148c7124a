// m3/fp32_split: the final kernel with fp32 accuracy from the tensor cores: each operand is two halves.
//
// Idea      A half has 11 significant bits, two have 22: v = high + low / 2^11, where high is the nearest half, and low
//           is the remainder times 2^11, as a half. Then x w = high high + (high low + low high) / 2^11; the product of
//           both lows, 2^-22 of the whole, is omitted. There are three products instead of one. The products high high
//           have one fp32 sum, and the other two share another one, so that small terms are added to small ones. Tensor
//           cores truncate sums, whereas an addition outside of them rounds. The tensor cores therefore sum high high
//           over one filter row at a time, and these sums are added in registers.
// Layout    as in layers/custom, whose file this is with SPLIT = 1; the quads or pairs of the low halves follow the
//           others. In layer 2, pairs need so much room that the image is read from L2 where it is packed (INPUTS = 0).
// Mapping   as in layers/custom, but with smaller bands, strips and tiles, because weights need twice and sums three
//           times as many registers. multiply_split of quads and pairs computes each product three times. For pairs,
//           products high high and products with a low factor alternate, so that none waits for the previous sum. While
//           the sum of a filter row is added, the other products continue.
// Roofline  bytes as in layers/custom: 0.31 + 0.23 ms at 4.3 TB/s. There are three times as many products. Layer 1 has
//           2,400 of mma.sync per image, 0.16 ms at 600 TFLOP/s. Layer 2 has 288 + 48 of wgmma (n = 48, 24), 0.34 ms at
//           0.9 PFLOP/s. Loops without other instructions reached these rates.
// Gain      over layers/custom: none in time. Layer 1 takes about as long, because memory still limits it, and layer 2
//           takes about twice as long, because the tensor cores limit it. The error is that of an fp32 sum instead of
//           2^-11.
// Limits    those of layers/custom for tensor cores. The range is that of fp32 (layers/custom/range.cuh): `prepare`
//           scales the weights by a power of two, and bands are scaled by 2^7 when they are packed. A band with a value
//           outside of 2^-21 to 511 is packed again, with its own factor. If its values are more than 2^28 apart, small
//           sums are computed again in plain fp32; with an infinity or NaN all sums are, which takes many times as
//           long.
// Hazards   as in layers/custom. The remainder in pack_halves is exact in fp32, and so is its product with 2^11. All
//           threads of a block add to one shared range. It is cleared when all have read it, two barriers before it is
//           used again.
// Source    S. Markidis et al., "NVIDIA Tensor Core Programmability, Performance & Precision", arXiv:1803.04014; H.
//           Ootomo, R. Yokota, "Recovering single precision accuracy from Tensor Cores", arXiv:2203.03341.
#include "../../../layers/custom/kernel.cu"
