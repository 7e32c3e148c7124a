// attention/v12_accurate: attention/v11_odd_token with errors about as small as those of cuDNN.
//
// Idea      The error of attention/v11_odd_token comes from the rounding of powers to halves. (A power is the
//           exponential of a score minus its row's reference.) cuDNN rounds them, too, but its reference is the largest
//           score so far, whose power is exactly 1. Here, three things make up for that:
//           1. A row gets a new reference if a power is so large that its rounding error alone matters: if a thread's
//              powers of a block add up to more than five times its share in the block that set the reference. With
//              normal scores this is rare, so the loop still computes no maximum.
//           2. The powers of such a block and of the first one are added as floats.
//           3. The powers of 16 of the 96 keys of a block are multiplied without rounding: what rounding takes from a
//              power is a half, too, and is the operand of one more product with the same values. This makes up for the
//              rounding of powers that would be exact with a running maximum.
// Layout    as attention/v11_odd_token.
// Mapping   as attention/v11_odd_token. 144 registers of a thread that multiplies: four for what rounding takes, and
//           one for the limits of its two rows.
// Roofline  as attention/v11_odd_token, and one more product for each twelve: 32 x 12 heads of 1,025 tokens of 64 take
//           0.14 ms at 800 TFLOP/s.
// Gain      over attention/v11_odd_token: at 577 and 1,025 tokens, largest and median errors fall from 1.4 and 1.05
//           times those of cuDNN to 1.0 and 0.99. It was expected to take 2 % longer, and takes more.
// Limits    as attention/v11_odd_token. Wide scores change references often: if their standard deviation is 2 instead
//           of 1, it takes almost half as long again.
// Hazards   as attention/v11_odd_token. If sums and what rounding takes come from one loop, and the sums of lanes are
//           exchanged as halves, the compiler serialises all products (ptxas reports C7511).
// Source    Ootomo and Yokota, "Recovering single precision accuracy from Tensor Cores while surpassing the FP32
//           theoretical peak performance", 2022, for products of what rounding takes.
#include "accurate_rows.cuh"
#include "../v11_odd_token/attend.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    attention(const __grid_constant__ ptx::TensorMap q_map, const __grid_constant__ ptx::TensorMap k_map,
              const __grid_constant__ ptx::TensorMap v_map, const __grid_constant__ ptx::TensorMap o_map,
              const __grid_constant__ ptx::TensorMap odd_q_map, const __grid_constant__ ptx::TensorMap odd_k_map,
              const __grid_constant__ ptx::TensorMap odd_v_map, half* o, int full, int heads, int each, int part,
              float scale) {
  attend<AccurateRows>({q_map, k_map, v_map, odd_q_map, odd_k_map, odd_v_map}, o_map, o, full, heads, {each, part},
                       scale);
}
