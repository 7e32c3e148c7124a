// Arrays of a thread, used by a pointer.

// launch: 1, 32
extern "C" __global__ void past_the_end(const float* x, float* y, float* part, int* flags) {
  float taps[4];
  float* const p = taps;
  for (int i = 0; i <= 4; i++) p[i] = x[i + threadIdx.x];  // expect: out-of-bounds
  for (int i = 0; i < 4; i++) y[threadIdx.x * 4 + i] = p[i];
}

// launch: 1, 32
extern "C" __global__ void cast_to_vectors(const float* x, float* y, float* part, int* flags) {
  __align__(16) float values[6];
  for (int i = 0; i < 6; i++) values[i] = x[i];
  const float4* const pairs = (const float4*)values;
  const int i = 1 + flags[0];
  y[threadIdx.x] = pairs[i].w;  // expect: out-of-bounds
}

// launch: 1, 32
extern "C" __global__ void rows_by_pointer(const float* x, float* y, float* part, int* flags) {
  float rows[2][3];
  for (int i = 0; i < 6; i++) rows[i / 3][i % 3] = x[i];
  const float* const all = &rows[0][0];
  y[threadIdx.x] = all[6 + flags[0]];  // expect: out-of-bounds
}

// launch: 1, 32
extern "C" __global__ void stack_of_bytes(const float* x, float* y, float* part, int* flags) {
  unsigned char stack[8] = {};
  unsigned char* const top = stack;
  for (int i = 0; i < 8; i++) top[i] = i;
  const int n = 8 + flags[0];
  top[n] = 1;  // expect: out-of-bounds
  y[threadIdx.x] = stack[flags[0]];
}

// launch: 1, 32
extern "C" __global__ void whole_arrays(const float* x, float* y, float* part, int* flags) {
  float rows[2][4];
  float* const all = &rows[0][0];
  for (int i = 0; i < 8; i++) all[i] = x[i];
  ((float4*)y)[threadIdx.x] = make_float4(all[0], rows[1][3], all[7], all[flags[0]]);
}

// launch: 1, 32
extern "C" __global__ void one_past_is_no_access(const float* x, float* y, float* part, int* flags) {
  float values[4];
  for (float* p = values; p != values + 4; p++) *p = x[p - values];
  float sum = 0.0f;
  for (const float* p = values + 3; p >= values; p--) sum += *p;
  y[threadIdx.x] = sum;
}
