// Arrays of a thread that are accessed through a pointer.

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

// Functions that a kernel calls are part of it.
__device__ float sum_of(const float* values, int n) {
  float sum = 0.0f;
  for (int i = 0; i < n; i++) sum += values[i];  // sum_of goes wrong
  return sum;
}
__device__ __noinline__ void fill(float* values, int n, float value) {
  for (int i = 0; i < n; i++) values[i] = value;  // fill goes wrong
}
__device__ __noinline__ int climb(int* stack, int n) {
  stack[n] = n;  // climb goes wrong
  return n == 0 ? stack[0] : climb(stack, n - 1);
}
struct Top {
  float value[4];
  int index[4];
};
__device__ void insert(Top& top, float value, int index) {
  int at = 0;
  while (top.value[at] > value) at++;  // insert goes wrong
  for (int j = 3; j > at; j--) top.value[j] = top.value[j - 1];
  top.value[at] = value;
  top.index[at] = index;
}

// launch: 1, 32
extern "C" __global__ void one_more_than_there_are(const float* x, float* y, float* part, int* flags) {
  float taps[4];
  for (int i = 0; i < 4; i++) taps[i] = x[i + threadIdx.x];
  y[threadIdx.x] = sum_of(taps, 5 + flags[0]);  // expect: out-of-bounds in sum_of
}

// launch: 1, 32
extern "C" __global__ void filled_from_before(const float* x, float* y, float* part, int* flags) {
  float taps[4];
  fill(taps - 1, 5 + flags[0], x[0]);  // expect: out-of-bounds in fill
  y[threadIdx.x] = taps[1] + taps[3];
}

// launch: 1, 32
extern "C" __global__ void a_stack_too_short(const float* x, float* y, float* part, int* flags) {
  int stack[8];
  y[threadIdx.x] = climb(stack, 8 + flags[0]);  // expect: out-of-bounds in climb
}

// launch: 1, 32
extern "C" __global__ void from_one_member_to_the_next(const float* x, float* y, float* part, int* flags) {
  Top top;
  for (int i = 0; i < 4; i++) top.value[i] = 5.0f, top.index[i] = 0;
  insert(top, x[1], 1);  // expect: out-of-bounds in insert
  y[threadIdx.x] = top.value[0];
}

// launch: 1, 32
extern "C" __global__ void functions_within_bounds(const float* x, float* y, float* part, int* flags) {
  float taps[4];
  int stack[8];
  Top top;
  for (int i = 0; i < 4; i++) top.value[i] = -1.0f, top.index[i] = 0;
  for (int i = 0; i < 4; i++) insert(top, x[i], i);
  fill(taps, 4 + flags[0], top.value[3]);
  y[threadIdx.x] = climb(stack, 7 + flags[0]) + sum_of(taps + 1, 3);
}

// launch: 1, 32
extern "C" __global__ void copy_past_the_end(const float* x, float* y, float* part, int* flags) {
  float values[16] = {};
  memcpy(values + 1, x, 64);  // expect: out-of-bounds
  y[threadIdx.x] = values[flags[0]];
}

// launch: 1, 32
extern "C" __global__ void copy_by_an_index(const float* x, float* y, float* part, int* flags) {
  float values[16] = {};
  for (int i = 0; i < 16; i += 3) memcpy(&values[i], x + i, 3 * sizeof(float));  // expect: out-of-bounds
  y[threadIdx.x] = values[flags[0]];
}

// launch: 1, 32
extern "C" __global__ void copy_of_too_much(const float* x, float* y, float* part, int* flags) {
  const float taps[3] = {1.0f, 2.0f, x[0]};
  float4 all;
  memcpy(&all, taps, sizeof all);  // expect: out-of-bounds
  y[threadIdx.x] = all.x + all.y + all.z;
}

__device__ void clear(float* row, int count) {
  memset(row, 0, count * sizeof *row);  // clear goes wrong
}

// launch: 1, 32
extern "C" __global__ void clear_past_the_end(const float* x, float* y, float* part, int* flags) {
  float sums[8];
  clear(sums, 9 + flags[0]);  // expect: out-of-bounds in clear
  y[threadIdx.x] = sums[flags[0]];
}

// launch: 1, 32
extern "C" __global__ void elements_for_bytes(const float* x, float* y, float* part, int* flags) {
  int counts[5];
  for (int i = 0; i < 5; i++) counts[i] = i;
  memmove(counts + 1, counts, sizeof counts);  // expect: out-of-bounds
  y[threadIdx.x] = counts[flags[0]];
}

// launch: 1, 32
extern "C" __global__ void copies_that_fit(const float* x, float* y, float* part, int* flags) {
  float values[16], rows[2][8];
  memcpy(values, x, sizeof values);
  memmove(values + 1 + flags[0], values, 15 * sizeof(float));
  memset(values + 15, 0, sizeof(float));
  memcpy(rows, values, sizeof rows);
  memcpy(&rows[1], values + 8, sizeof rows[1]);
  for (int n = 1; n <= 16; n *= 2) memcpy(values + 16 - n, x, n * sizeof(float));
  memcpy(y + threadIdx.x * 16, rows, sizeof rows);
}

// A function with this attribute is part of its kernel, too, however it is written.
__attribute__((noinline)) __device__ void put(float* values, int at, float value) {
  values[at] = value;  // put goes wrong
}
[[gnu::noinline]] __device__ float take(const float* values, int at) {
  return values[at];  // take goes wrong
}
struct Row {
  float* first;
  __attribute__((__noinline__)) __device__ void set(int at, float value) {
    first[at] = value;  // set goes wrong
  }
};
struct Pair {
  float left[4], right[4];
  __attribute__((noinline)) __device__ void drop(int at) {
    left[at] = 0.0f;  // drop goes wrong
  }
};

// launch: 1, 32
extern "C" __global__ void write_to_the_next_array(const float* x, float* y, float* part, int* flags) {
  float taps[4], next[4];
  for (int i = 0; i < 4; i++) put(taps, i, x[i]), put(next, i, x[i]);
  put(taps, 5 + flags[0], 1.0f);  // expect: out-of-bounds in put
  y[threadIdx.x] = taps[flags[1]] + next[flags[2]];
}

// launch: 1, 32
extern "C" __global__ void read_of_the_next_array(const float* x, float* y, float* part, int* flags) {
  float taps[4], next[4];
  for (int i = 0; i < 4; i++) taps[i] = x[i], next[i] = x[i + 4];
  y[threadIdx.x] = take(taps, 4 + flags[0]) + next[flags[1]];  // expect: out-of-bounds in take
}

// launch: 1, 32
extern "C" __global__ void next_array_by_a_method(const float* x, float* y, float* part, int* flags) {
  float taps[4], next[4];
  for (int i = 0; i < 4; i++) taps[i] = x[i], next[i] = x[i + 4];
  Row row = {taps};
  row.set(5 + flags[0], 1.0f);  // expect: out-of-bounds in set
  y[threadIdx.x] = taps[flags[1]] + next[flags[2]];
}

// launch: 1, 32
extern "C" __global__ void next_member_by_a_method(const float* x, float* y, float* part, int* flags) {
  Pair pair = {};
  pair.drop(4 + flags[0]);  // expect: out-of-bounds in drop
  y[threadIdx.x] = pair.left[flags[1]] + pair.right[flags[2]];
}

// launch: 1, 32
extern "C" __global__ void arrays_side_by_side(const float* x, float* y, float* part, int* flags) {
  float taps[4], next[4];
  Pair pair = {};
  Row row = {taps};
  for (int i = 0; i < 4; i++) put(taps, i, x[i]), put(next, i, x[i]), row.set(i, take(next, i)), pair.drop(i);
  put(&pair.left[2], 1 + flags[0], 1.0f);
  y[threadIdx.x] = take(taps, 3 + flags[0]) + take(next, flags[1]) + pair.left[3] + pair.right[flags[2]];
}
