// softmax/v0_naive: y[n][l] = exp(x[n][l] - max) / sum, one thread per row.
//
// Idea      All rows are independent, so each thread computes one. The maximum is subtracted first: exp(89) exceeds the
//           range of float.
// Layout    x (N,L), y (N,L), fp32, C order.
// Mapping   thread -> row n. Neighbouring threads read values that are L apart: no load is coalesced.
// Roofline  bytes 8 N L: 100,000 rows of 1,000 move 0.8 GB, 0.19 ms at 4.3 TB/s. Each value is read three times, and a
//           load of a warp touches 32 sectors instead of 4. This takes some 1.2 ms if L1 delivers one sector per clock.
// Gain      none: this is the first rung, with which the others are compared.
// Limits    N at most 2^31 - 1. Long rows are few and leave most of a GPU idle.
// Hazards   none: threads share nothing.
// Source    W. Hwu, D. Kirk, I. El Hajj, "Programming Massively Parallel Processors", 4th ed., chapter 10.
extern "C" __global__ void softmax(const float* x, float* y, int N, int L) {
  const int n = blockIdx.x * blockDim.x + threadIdx.x;
  if (n >= N) return;
  const float* row = x + (long long)n * L;  // 64 bits: N L may exceed 2^31

  float top = row[0];
  for (int l = 1; l < L; l++) top = fmaxf(top, row[l]);
  float sum = 0.0f;
  for (int l = 0; l < L; l++) sum += expf(row[l] - top);
  for (int l = 0; l < L; l++) y[(long long)n * L + l] = expf(row[l] - top) / sum;
}
