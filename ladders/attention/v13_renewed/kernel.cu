// attention/v13_renewed: attention/v12_accurate without its further products: only the largest errors are smaller.
//
// Idea      The largest errors of attention/v11_odd_token are in rows in which one power is a large part of the sum:
//           its rounding error is not small beside those of many others. (A power is the exponential of a score minus
//           its row's reference.) If a thread's powers of a block add up to more than five times its share of the
//           block that set the reference, the row gets a new one, as in attention/v12_accurate: the largest power
//           is then 1, which halves represent exactly. With normal scores, this happens in one of a thousand blocks of
//           a warp. It needs a limit for each row. What attention/v12_accurate does for the median is left out: it
//           multiplies what rounding takes from a sixth of the powers, which needs further products and registers.
// Layout    as attention/v11_odd_token. Its tile of a warpgroup is the base of that of attention/v12_accurate.
// Mapping   as attention/v11_odd_token: three warpgroups multiply, and other warps load and compute the odd query.
// Roofline  as attention/v11_odd_token: 32 x 12 heads of 1,025 tokens of 64 take 0.13 ms at 800 TFLOP/s.
// Gain      over attention/v12_accurate: 5 % at 577 and 1,025 tokens, with the same largest errors, at most 1.2 times
//           those of cuDNN. Medians are those of attention/v11_odd_token, 1.05 times those of cuDNN, and it takes 3 %
//           longer than that.
// Limits    as attention/v11_odd_token. Wide scores change references often: if their standard deviation is 2 instead
//           of 1, it takes half as long again.
// Hazards   as attention/v11_odd_token. The powers of the first block must be added as floats: a sum of halves beside
//           a power of 1 is wrong by more than the powers are.
// Source    Milakov and Gimelshein, "Online normalizer calculation for softmax", arXiv:1805.02867, for references that
//           change.
#include "../v11_odd_token/attend.cuh"
#include "../v12_accurate/renewed_rows.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    attention(const __grid_constant__ ptx::TensorMap q_map, const __grid_constant__ ptx::TensorMap k_map,
              const __grid_constant__ ptx::TensorMap v_map, const __grid_constant__ ptx::TensorMap o_map,
              const __grid_constant__ ptx::TensorMap odd_q_map, const __grid_constant__ ptx::TensorMap odd_k_map,
              const __grid_constant__ ptx::TensorMap odd_v_map, half* o, int full, int heads, int each, int part,
              float scale) {
  attend<RenewedRows>({q_map, k_map, v_map, odd_q_map, odd_k_map, odd_v_map}, o_map, o, full, heads, {each, part},
                      scale);
}
