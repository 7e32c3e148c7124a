// Mistakes from the issue trackers of projects that serve language models, each in a small kernel of our own. The table
// is in docs/checking.md.
#include <cuda_fp16.h>

// A token's address in its block of the cache, in 32-bit integers: the product exceeds 2^31.
// launch: 1, 32
extern "C" __global__ void slot_of_the_cache(const float* x, float* y, float* part, int* flags) {
  const int block = 33000 + flags[0], heads = 32, size = 128, block_size = 16;
  const int target = block * heads * size * block_size + threadIdx.x;
  y[target] = x[threadIdx.x];  // expect: out-of-bounds
}

// launch: 1, 32
extern "C" __global__ void pages_of_attention(const float* x, float* y, float* part, int* flags) {
  const int page = 40000 + flags[0], stride = 65536;
  const float* const k = x + page * stride;
  y[threadIdx.x] = k[threadIdx.x];  // expect: out-of-bounds
}

// Rows of a norm: the row's number times its length, both in 32 bits.
// launch: 1, 32
extern "C" __global__ void row_of_a_norm(const float* x, float* y, float* part, int* flags) {
  const int row = 524289 + flags[0], hidden = 4096;
  float sum = 0.0f;
  for (int i = threadIdx.x; i < 64; i += 32) sum += x[row * hidden + i];  // expect: out-of-bounds
  y[threadIdx.x] = sum;
}

// The same with vectors: the index is an int.
// launch: 1, 32
extern "C" __global__ void vectors_of_a_norm(const float* x, float* y, float* part, int* flags) {
  const int id = (300000 + flags[0]) * 8192 + threadIdx.x;
  float4* const residual = (float4*)y;
  residual[id] = make_float4(x[0], x[1], x[2], x[3]);  // expect: out-of-bounds
}

// Two halves of a row: a gate, and the values that it multiplies.
// launch: 1, 32
extern "C" __global__ void gate_of_an_activation(const float* x, float* y, float* part, int* flags) {
  const int token = 149910 + flags[0], d = 14336 / 2;
  const float gate = x[token * 2 * d + threadIdx.x];  // expect: out-of-bounds
  y[threadIdx.x] = gate / (1.0f + expf(-gate)) * x[token * 2 * d + d + threadIdx.x];
}

// A channel's stride is the whole sequence.
// launch: 1, 32
extern "C" __global__ void channel_of_a_scan(const float* x, float* y, float* part, int* flags) {
  const int dim = 4018 + flags[0], stride = 2 * 267264;
  const float* const u = x + dim * stride;
  y[threadIdx.x] = u[threadIdx.x];  // expect: out-of-bounds
}

// A grid with more blocks than the list of experts has entries.
// launch: 5, 32
extern "C" __global__ void experts_of_blocks(const float* x, float* y, float* part, int* flags) {
  const int* const experts = flags + 60;
  const int expert = experts[blockIdx.x];  // expect: out-of-bounds
  if (threadIdx.x == 0) y[blockIdx.x] = x[expert];
}

// Sorted tokens: the last block has fewer tokens than its size.
// launch: 2, 32
extern "C" __global__ void sorted_tokens(const float* x, float* y, float* part, int* flags) {
  const int tokens = 33, *const sorted = flags + 64 - tokens;
  const int token = sorted[blockIdx.x * 32 + threadIdx.x];  // expect: out-of-bounds
  if (token < tokens) y[blockIdx.x * 32 + threadIdx.x] = x[token];
}

// Scales of groups: the number of groups is rounded down when they are written, and up when they are read.
// launch: 1, 32
extern "C" __global__ void scales_of_groups(const float* x, float* y, float* part, int* flags) {
  const float* const scales = x + 1024 - 100 / 16;
  for (int k = threadIdx.x; k < 100; k += 32) y[k] = 2.0f * scales[k / 16];  // expect: out-of-bounds
}

// Counts are padded to a block's size, but the list that they point into is not.
// launch: 1, 32
extern "C" __global__ void padded_ranks(const float* x, float* y, float* part, int* flags) {
  __shared__ int counts[8], starts[9];
  if (threadIdx.x < 8) counts[threadIdx.x] = 0;
  __syncthreads();
  atomicAdd(&counts[threadIdx.x % 8], 1);
  __syncthreads();
  if (threadIdx.x == 0) {
    starts[0] = 0;
    for (int e = 0; e < 8; e++) starts[e + 1] = starts[e] + (counts[e] + 15) / 16 * 16;
  }
  __syncthreads();
  flags[starts[threadIdx.x % 8] + threadIdx.x / 8] = threadIdx.x;  // expect: out-of-bounds
}

// Rows of a tile of 16 for an operand of one row.
// launch: 1, 64
extern "C" __global__ void rows_of_the_operand(const float* x, float* y, float* part, int* flags) {
  __shared__ float4 tile[64];
  const int m = 1, k = 320;
  const float4* const a = (const float4*)(x + 1024 - m * k);
  tile[threadIdx.x] = a[threadIdx.x % 16 + threadIdx.x / 16 * k / 4];  // expect: out-of-bounds
  __syncthreads();
  y[threadIdx.x] = tile[63 - threadIdx.x].x;
}

// The start of a sequence in its table of blocks is not compared with the table's length.
// launch: 1, 32
extern "C" __global__ void start_in_the_table(const float* x, float* y, float* part, int* flags) {
  const int start = 128 + flags[0], block_size = 64, *const table = flags + 62;
  const int block = table[start / block_size];  // expect: out-of-bounds
  y[threadIdx.x] = x[block * 32 + threadIdx.x];
}

// Splits of a sequence, rounded up, times a split's number.
// launch: 4, 32
extern "C" __global__ void splits_of_the_table(const float* x, float* y, float* part, int* flags) {
  const int *const table = flags + 64 - 9, split = (9 + 4 - 1) / 4;
  for (int i = blockIdx.x * split; i < (blockIdx.x + 1) * split; i++) {
    const int block = table[i];  // expect: out-of-bounds
    part[i * 32 + threadIdx.x] = block;
  }
}

// Counters in shared memory are cleared, and used without a barrier.
// launch: 1, 64
extern "C" __global__ void counters_not_cleared_yet(const float* x, float* y, float* part, int* flags) {
  __shared__ int counts[64];
  counts[threadIdx.x] = 0;
  atomicAdd(&counts[(threadIdx.x * 7 + 1) % 64], 1);  // expect: race
  __syncthreads();
  y[threadIdx.x] = counts[threadIdx.x];
}

// Two arrays in one buffer of shared memory: the second one begins inside the first.
// launch: 1, 64
extern "C" __global__ void arrays_that_overlap(const float* x, float* y, float* part, int* flags) {
  __shared__ int memory[64 + 65];
  int* const counts = memory;
  int* const sums = memory + 48;
  counts[threadIdx.x] = flags[threadIdx.x];
  sums[threadIdx.x] = threadIdx.x;  // expect: race
  __syncthreads();
  y[threadIdx.x] = counts[threadIdx.x] + sums[threadIdx.x];
}

// The input's alignment is checked, but not the output's.
// launch: 1, 32
extern "C" __global__ void alignment_of_the_input(const float* x, float* y, float* part, int* flags) {
  const int head = 46, row = threadIdx.x % 4;
  const float* const from = x + row * 48;
  float* const to = y + row * head;
  if (reinterpret_cast<uintptr_t>(from) % 16 == 0) *(float4*)to = *(const float4*)from;  // expect: misaligned
}

// The tail of a vector of values is cleared, including one element past its end.
// launch: 1, 32
extern "C" __global__ void tail_of_a_vector(const float* x, float* y, float* part, int* flags) {
  float4 v = *(const float4*)(x + 4 * threadIdx.x);
  float* const values = reinterpret_cast<float*>(&v);
  for (int j = 0; j <= 4; j++) values[j] = j < 2 + flags[0] ? values[j] : 0.0f;  // expect: out-of-bounds
  y[threadIdx.x] = v.x + v.y + v.z + v.w;
}

// Values beyond the context are multiplied by zero, but were never written.
// launch: 1, 32
extern "C" __global__ void values_beyond_the_context(const float* x, float* y, float* part, int* flags) {
  const int context = 20 + flags[0];
  if (threadIdx.x < context) part[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  float sum = 0.0f;
  for (int i = 0; i < 32; i++) sum += (i < context ? 1.0f : 0.0f) * part[i];  // expect: uninitialised
  y[threadIdx.x] = sum;
}

// A number of elements that passed through a 16-bit int: the rest is not written, but is read.
// launch: 1, 64
extern "C" __global__ void count_cut_off(const float* x, float* y, float* part, int* flags) {
  const unsigned char count = 300 + flags[0];
  for (int i = threadIdx.x; i < count; i += 64) part[i] = 2.0f * x[i];
  __syncthreads();
  for (int i = threadIdx.x; i < 300; i += 64) y[i] = part[i];  // expect: uninitialised
}

// One thread adds to a sum, and another divides by it.
// launch: 1, 64
extern "C" __global__ void winner_of_a_gate(const float* x, float* y, float* part, int* flags) {
  __shared__ float sum;
  if (threadIdx.x == 0) sum = 0.0f;
  __syncthreads();
  if (threadIdx.x == 40) sum += x[40];
  if (threadIdx.x == 0) y[0] = x[0] / (sum + 1.0f);  // expect: race
}
