// Ends that a kernel must not reach. Before that, variables of a thread whose address a function is given that is not
// compiled into the kernel: a recursion, or one with an attribute that the emulator does not know.

__device__ void fill(float* values, int from, int to, int depth) {
  if (depth > 0) {
    fill(values, from, to, depth - 1);
    return;
  }
  for (int i = from; i < to; i++) values[i] = i;  // fill goes wrong
}
__attribute__((noipa)) __device__ void set(int* value, long long at) {
  value[at] = 1;  // set goes wrong
}
__attribute__((noipa)) __device__ void swap(float& a, float& b) {
  const float old = a;
  a = b;
  b = old;
}
__device__ void sort(float* values, int count) {
  if (count < 2) return;
  int less = 0;
  for (int i = 1; i < count; i++)
    if (values[i] < values[0]) swap(values[++less], values[i]);
  swap(values[0], values[less]);
  sort(values, less);
  sort(values + less + 1, count - less - 1);
}
struct Sums {
  float value[4];
  int count;
};
__attribute__((noipa)) __device__ void add(Sums* sums, float value) { sums->value[sums->count++ % 4] += value; }
__device__ int deep(int n) {
  volatile int own[64];
  own[n % 64] = n;
  return n == 0 ? own[0] : deep(n - 1) + own[n % 64];
}

// launch: 1, 32
extern "C" __global__ void far_past_the_end(const float* x, float* y, float* part, int* flags) {
  float taps[4];
  fill(taps, 0, 400 + flags[0], 0);  // expect: out-of-bounds in fill
  y[threadIdx.x] = taps[0];
}

// launch: 1, 32
extern "C" __global__ void past_the_end_in_a_recursion(const float* x, float* y, float* part, int* flags) {
  float taps[4];
  fill(taps, 0, 400 + flags[0], 3);  // expect: out-of-bounds in fill
  y[threadIdx.x] = taps[0];
}

// launch: 1, 32
extern "C" __global__ void before_the_start_in_a_recursion(const float* x, float* y, float* part, int* flags) {
  float taps[4];
  fill(taps, flags[0] - 100, 4, 3);  // expect: out-of-bounds in fill
  y[threadIdx.x] = taps[0];
}

// launch: 1, 32
extern "C" __global__ void one_number_as_an_array(const float* x, float* y, float* part, int* flags) {
  int count = 0;
  for (int i = 0; i < 100; i++) set(&count, i + flags[0]);  // expect: out-of-bounds in set
  y[threadIdx.x] = count;
}

// launch: 1, 32
extern "C" __global__ void over_the_frames_of_the_runtime(const float* x, float* y, float* part, int* flags) {
  int count = 0;
  set(&count, 200 + flags[0]);  // expect: out-of-bounds in set
  y[threadIdx.x] = count;
}

// launch: 1, 32
extern "C" __global__ void of_another_thread(const float* x, float* y, float* part, int* flags) {
  __shared__ float* first;
  float own = x[threadIdx.x];
  if (threadIdx.x == 0) first = &own;
  __syncthreads();
  if (threadIdx.x == 1) *first = 2.0f;  // expect: out-of-bounds
  __syncthreads();
  y[threadIdx.x] = own;
}

// launch: 1, 32
extern "C" __global__ void right_use_of_pointers(const float* x, float* y, float* part, int* flags) {
  float values[32], a = x[1], b = x[2];
  int count = 0;
  Sums sums = {};
  fill(values, 0, 32, 3);
  for (int i = 0; i < 32; i++) values[i] = float(i * 7 % 32);
  sort(values, 32);
  swap(a, b);
  set(&count, flags[0]);
  for (int i = 0; i < 9; i++) add(&sums, values[i]);
  __syncthreads();
  y[threadIdx.x] = values[threadIdx.x] + a - b + count + sums.value[sums.count % 4] + deep(20);
}

__device__ float by_kind(int kind) {  // by_kind goes wrong
  if (kind == 0) return 1.0f;
  if (kind == 1) return 2.0f;
  if (kind == 2) return 3.0f;
}

// launch: 1, 32
extern "C" __global__ void kinds_that_have_a_value(float* x, float* y, float* part, int* flags) {
  y[threadIdx.x] = by_kind(threadIdx.x % 3);
}

// launch: 1, 32
extern "C" __global__ void kind_without_a_value(float* x, float* y, float* part, int* flags) {
  y[threadIdx.x] = by_kind(threadIdx.x % 4);  // expect: fault in by_kind
}

// launch: 1, 32
extern "C" __global__ void reaches_what_it_should_not(float* x, float* y, float* part, int* flags) {
  switch (threadIdx.x % 4) {
    case 0:
      y[threadIdx.x] = 1;
      break;
    case 1:
      y[threadIdx.x] = 5;
      break;
    case 2:
      y[threadIdx.x] = 7;
      break;
    default:
      __builtin_unreachable();  // expect: fault
  }
}

// launch: 1, 32
extern "C" __global__ void asserts_what_is_wrong(float* x, float* y, float* part, int* flags) {
  const float value = x[threadIdx.x];
  assert(value < 20);  // expect: fault
  y[threadIdx.x] = value;
}

// launch: 1, 32
extern "C" __global__ void traps(float* x, float* y, float* part, int* flags) {
  const float value = x[threadIdx.x];
  if (value >= 20) __trap();  // expect: fault
  y[threadIdx.x] = value;
}
