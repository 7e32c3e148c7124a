// Arrays at the end of a structure that is accessed through a pointer.
struct Tile {
  int n;
  float a[8];
};
struct Outer {
  Tile in;
  int last;
};

// launch: 1, 32
extern "C" __global__ void last_member_of_a_shared_structure(float* x, float* y, float* part, int* flags) {
  __shared__ Tile tiles[33];
  Tile* t = &tiles[threadIdx.x];
  for (int j = 0; j <= 8; j++) t->a[j] = x[j];  // expect: out-of-bounds
  y[threadIdx.x] = t->a[3];
}

// launch: 1, 32
extern "C" __global__ void last_member_by_a_pointer(float* x, float* y, float* part, int* flags) {
  Outer o = {};
  Outer* p = x[0] < 0 ? nullptr : &o;
  for (int j = 0; j < 9; j++) p->in.a[j] = x[j];  // expect: out-of-bounds
  y[threadIdx.x] = o.in.a[3] + o.last;
}

// launch: 1, 32
extern "C" __global__ void rows_of_a_structure(float* x, float* y, float* part, int* flags) {
  struct M {
    float v[4][4];
  };
  M* m = reinterpret_cast<M*>(x) + threadIdx.x % 8;
  float sum = 0;
  for (int j = 0; j < 16; j++) sum += m->v[j / 4][j % 4];
  float* flat = &m->v[0][0];
  for (int j = 0; j < 16; j++) sum += flat[j];
  y[threadIdx.x] = sum;
}

// launch: 1, 32
extern "C" __global__ void a_row_too_long(float* x, float* y, float* part, int* flags) {
  struct M {
    float v[4][4];
  };
  M* m = reinterpret_cast<M*>(x) + threadIdx.x % 8;
  float sum = 0;
  for (int j = 0; j < 8; j++) sum += m->v[3][j];  // expect: out-of-bounds
  y[threadIdx.x] = sum;
}
