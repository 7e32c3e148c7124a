// attention/v0_naive: o[i] = sum over j of exp(s[i][j] - max) v[j] / sum, s = scale q k^T; one thread per element of o.
//
// Idea      All elements of o are independent. A thread iterates over the keys twice: first to find the largest score
//           of its query, then to compute the exponentials and their sum, and to add each exponential times a value of
//           v.
// Layout    q, k, v and o (B,H,T,D), or parts of one array (B,T,3,H,D) and o (B,T,H,D); halves or floats, sums in
//           float. One kernel supports both: entries, heads and tokens have strides, and the numbers of a token are
//           adjacent. `part` is the distance from q to k, and from k to v.
// Mapping   threadIdx.x -> element of o, row by row, in a piece of THREADS elements; blockIdx.x -> piece, head after
//           head. Each of the D threads of a row computes the same scores.
// Roofline  32 x 12 heads of 1,025 tokens of 64: 103 GFLOP, 0.10 ms at 990 TFLOP/s (halves); 202 MB, 0.047 ms at 4.3
//           TB/s. However, each score is computed 64 times in each of the two passes: 6.7 TFLOP, 100 ms at 67 TFLOP/s
//           (float). Each FMA also needs two loads, which are the same for all threads of a warp: some 800 ms.
// Gain      none: this is the first rung, with which the others are compared.
// Limits    a grid has at most 2^31 - 1 pieces.
// Hazards   none: threads share nothing. The exponential of a large score could overflow, which the first pass
//           prevents.
// Source    A. Vaswani et al., "Attention is all you need", arXiv:1706.03762, section 3.2.1.
#include <cuda_fp16.h>

#include <type_traits>

using Number = std::conditional_t<IN_HALF, half, float>;

extern "C" __global__ void __launch_bounds__(THREADS)
    attention(const Number* q, const Number* k, const Number* v, Number* o, int H, int T, float scale, int part,
              long long entry, long long head, long long token, long long o_entry, long long o_head,
              long long o_token) {
  const int pieces = (int)(((long long)T * D + THREADS - 1) / THREADS);  // of a head
  const long long at = blockIdx.x % pieces * (long long)THREADS + threadIdx.x;
  const int of = blockIdx.x / pieces, b = of / H, h = of % H, i = (int)(at / D), col = (int)(at % D);
  if (i >= T) return;
  q += b * entry + h * head + i * token;
  k += part + b * entry + h * head;
  v += 2 * part + b * entry + h * head + col;
  const int keys = CAUSAL ? i + 1 : T;

  float top = -INFINITY, sum = 0.0f, acc = 0.0f;
  for (int j = 0; j < keys; j++) {
    float s = 0.0f;
    for (int l = 0; l < D; l++) s += float(q[l]) * float(k[j * token + l]);
    top = fmaxf(top, scale * s);
  }
  for (int j = 0; j < keys; j++) {
    float s = 0.0f;
    for (int l = 0; l < D; l++) s += float(q[l]) * float(k[j * token + l]);
    const float power = expf(scale * s - top);
    sum += power;
    acc += power * float(v[j * token]);
  }

  o[b * o_entry + h * o_head + i * o_token + col] = Number(acc / sum);
}
