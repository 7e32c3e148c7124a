// Part of kernel.cu: operands and result of a product with a vector.

using In = sums::Element<IN_TYPE>;

struct Vector {  // v, c0 and c; a step is the distance between two elements
  const In* v;
  const Out* c0;
  Out* c;
  int v_step, c_step;
  float alpha, beta;

  __device__ __forceinline__ void put(int line, float sum) const {
    sum *= alpha;
    if (beta != 0.0f) sum += beta * float(c0[(long long)line * c_step]);
    c[(long long)line * c_step] = Out(sum);
  }
};

struct alignas(16) Eight {
  In part[8];
};
