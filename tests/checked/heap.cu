// Memory that kernels allocate on the heap: malloc and free, new and delete.

struct Node {
  float value;
  Node* next;
};
struct Shape {
  __device__ virtual float area() const = 0;
  __device__ virtual ~Shape() {}
};
struct Square : Shape {
  float side;
  __device__ Square(float s) : side(s) {}
  __device__ float area() const override { return side * side; }
};
struct Circle : Shape {
  float r;
  __device__ Circle(float radius) : r(radius) {}
  __device__ float area() const override { return 3.0f * r * r; }
};

// launch: 2, 64
extern "C" __global__ void list_of_a_thread(const float* x, float* y, float* part, int* flags) {
  Node* first = nullptr;
  for (int i = 0; i < 4; i++) first = new Node{x[threadIdx.x + i], first};
  float sum = 0.0f;
  for (const Node* n = first; n; n = n->next) sum += n->value;
  while (first) {
    Node* next = first->next;
    delete first;
    first = next;
  }
  y[blockIdx.x * 64 + threadIdx.x] = sum;
}

// launch: 2, 64
extern "C" __global__ void tile_of_a_block(const float* x, float* y, float* part, int* flags) {
  __shared__ float* tile;
  __shared__ bool* seen;
  if (threadIdx.x == 0) {
    tile = (float*)malloc(64 * sizeof(float));
    seen = new bool[64];
  }
  __syncthreads();
  if (!tile) return;
  tile[threadIdx.x] = x[threadIdx.x];
  seen[threadIdx.x] = x[threadIdx.x] > 1.0f;
  __syncthreads();
  y[blockIdx.x * 64 + threadIdx.x] = tile[63 - threadIdx.x] + seen[(threadIdx.x + 1) % 64];
  __syncthreads();
  if (threadIdx.x == 63) {
    free(tile);
    delete[] seen;
  }
}

// launch: 2, 32
extern "C" __global__ void objects_of_the_heap(const float* x, float* y, float* part, int* flags) {
  Shape* shape = flags[threadIdx.x] ? (Shape*)new Circle(x[1]) : new Square(x[threadIdx.x]);
  y[blockIdx.x * 32 + threadIdx.x] = shape->area();
  delete shape;
}

// launch: 2, 32
extern "C" __global__ void more_than_there_is(const float* x, float* y, float* part, int* flags) {
  int* all = (int*)malloc(9 << 20);
  y[blockIdx.x * 32 + threadIdx.x] = all ? 1.0f : x[threadIdx.x];
  free(all);
}

// launch: 4, 32
extern "C" __global__ void left_and_handed_on(const float* x, float* y, float* part, int* flags) {
  __shared__ float* mine;
  if (threadIdx.x == 0) {
    mine = new float[32];
    for (int i = 0; i < 32; i++) mine[i] = 1.0f;
  }
  __syncthreads();
  atomicAdd(mine + threadIdx.x / 2, x[threadIdx.x]);
  __syncthreads();
  y[blockIdx.x * 32 + threadIdx.x] = mine[threadIdx.x];
}

// launch: 1, 32
extern "C" __global__ void beyond_the_heap(const float* x, float* y, float* part, int* flags) {
  float* own = new float[8];
  for (int i = 0; i <= 8; i++) own[i] = x[i];  // expect: out-of-bounds
  y[threadIdx.x] = own[threadIdx.x % 8];
  delete[] own;
}

// launch: 1, 32
extern "C" __global__ void before_the_heap(const float* x, float* y, float* part, int* flags) {
  float* own = (float*)malloc(8 * sizeof(float));
  for (int i = 0; i < 8; i++) own[i] = x[i];
  y[threadIdx.x] = own[flags[threadIdx.x] - 1];  // expect: out-of-bounds
  free(own);
}

// launch: 1, 32
extern "C" __global__ void used_after_delete(const float* x, float* y, float* part, int* flags) {
  Node* node = new Node{x[threadIdx.x], nullptr};
  delete node;
  y[threadIdx.x] = node->value;  // expect: out-of-bounds
}

// launch: 1, 32
extern "C" __global__ void freed_by_each(const float* x, float* y, float* part, int* flags) {
  __shared__ float* tile;
  if (threadIdx.x == 0) tile = (float*)malloc(32 * sizeof(float));
  __syncthreads();
  tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = tile[31 - threadIdx.x];
  __syncthreads();
  free(tile);  // expect: out-of-bounds
}

// launch: 1, 32
extern "C" __global__ void free_of_a_part(const float* x, float* y, float* part, int* flags) {
  float* own = (float*)malloc(8 * sizeof(float));
  own[1] = x[threadIdx.x];
  y[threadIdx.x] = own[1];
  free(own + 1);  // expect: out-of-bounds
}

// launch: 1, 64
extern "C" __global__ void freed_too_early(const float* x, float* y, float* part, int* flags) {
  __shared__ float* tile;
  if (threadIdx.x == 0) tile = (float*)malloc(64 * sizeof(float));
  __syncthreads();
  tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = tile[threadIdx.x] + (threadIdx.x == 40 ? tile[0] : 0.0f);
  if (threadIdx.x == 63) free(tile);  // expect: race
}

// launch: 1, 32
extern "C" __global__ void unset_on_the_heap(const float* x, float* y, float* part, int* flags) {
  float* own = new float[8];
  for (int i = 0; i < 7; i++) own[i] = x[i];
  y[threadIdx.x] = own[threadIdx.x % 8];  // expect: uninitialised
  delete[] own;
}

// launch: 1, 64
extern "C" __global__ void tile_of_the_heap_too_early(const float* x, float* y, float* part, int* flags) {
  __shared__ float* tile;
  if (threadIdx.x == 0) tile = new float[64]();
  __syncthreads();
  tile[threadIdx.x] = x[threadIdx.x];
  y[threadIdx.x] = tile[63 - threadIdx.x];  // expect: race
  __syncthreads();
  if (threadIdx.x == 0) delete[] tile;
}
