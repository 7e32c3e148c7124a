// Virtual functions of objects that a kernel creates.

struct Shape {
  __device__ virtual float area() const = 0;
  __device__ virtual ~Shape() {}
  float scale = 1.0f;
};
struct Square : Shape {
  float side;
  __device__ Square(float s) : side(s) {}
  __device__ float area() const override { return scale * side * side; }
};
struct Circle : Shape {
  float r;
  __device__ Circle(float radius) : r(radius) {}
  __device__ float area() const override { return scale * 3.0f * r * r; }
};
__device__ __noinline__ float total(const Shape* const* shapes, int n) {
  float sum = 0.0f;
  for (int i = 0; i < n; i++) sum += shapes[i]->area();
  return sum;
}

// launch: 1, 32
extern "C" __global__ void objects_of_two_classes(const float* x, float* y, float* part, int* flags) {
  Square square(x[threadIdx.x]);
  Circle circle(x[threadIdx.x + 1]);
  const Shape* shapes[2] = {&square, &circle};
  if (flags[0]) shapes[0] = &circle;
  y[threadIdx.x] = total(shapes, 2 + flags[1]);
}

// launch: 1, 32
extern "C" __global__ void objects_of_a_block(const float* x, float* y, float* part, int* flags) {
  __shared__ alignas(16) unsigned char bytes[sizeof(Circle)];
  __shared__ Shape* shape;
  if (threadIdx.x == 0) {
    if (flags[0])
      shape = new (bytes) Circle(x[1]);
    else
      shape = new (bytes) Square(x[2]);
  }
  __syncthreads();
  y[threadIdx.x] = shape->area();
}

// launch: 1, 32
extern "C" __global__ void objects_too_early(const float* x, float* y, float* part, int* flags) {
  __shared__ alignas(16) unsigned char bytes[sizeof(Circle)];
  __shared__ Shape* shape;
  if (threadIdx.x == 0) {
    if (flags[0])
      shape = new (bytes) Circle(x[1]);
    else
      shape = new (bytes) Square(x[2]);
  }
  y[threadIdx.x] = shape->area();  // expect: race
}

struct Table {
  float values[4];
  int count = 4;
  __device__ virtual float at(int i) const { return values[i]; }  // Table goes wrong
};
struct Reversed : Table {
  __device__ float at(int i) const override { return values[3 - i]; }
};

// launch: 1, 32
extern "C" __global__ void beyond_a_member(const float* x, float* y, float* part, int* flags) {
  Table table;
  Reversed reversed;
  for (int i = 0; i < 4; i++) table.values[i] = reversed.values[i] = x[i];
  const Table* const used = flags[0] ? &reversed : &table;
  y[threadIdx.x] = used->at(4 + flags[0]);  // expect: out-of-bounds in Table
}

// launch: 1, 32
extern "C" __global__ void no_object(const float* x, float* y, float* part, int* flags) {
  Shape* shapes[2];
  for (int i = flags[0]; i < 2; i++) shapes[i] = (Shape*)(y + 8 * i);
  y[threadIdx.x] = shapes[flags[0]]->area();  // expect: uninitialised
}
