"""Kernels that use code of the host, which only g++ accepts, and kernels that use code of the GPU."""

# ruff: noqa: E501


def kernel(body: str) -> str:
    return f'extern "C" __global__ void conv(const float* x, float* y, int n) {{\n  {body}\n}}\n'


def store(value: str) -> str:
    return kernel(f"if (threadIdx.x < n) y[threadIdx.x] = {value};  // expect: compile")


HOST_CODE = {
    "a helper": "float twice(float v) { return 2 * v; }\n" + store("twice(x[0])"),
    "a static helper": "static inline float twice(float v) { return 2 * v; }\n" + store("twice(x[0])"),
    "a template": "template <class T>\nT twice(T v) { return 2 * v; }\n" + store("twice<float>(x[0])"),
    "a helper in a namespace": "namespace a {\nfloat twice(float v) { return 2 * v; }\n}\n"
    + store("a::twice(x[0])"),
    "a helper of a helper": "float twice(float v) { return 2 * v; }\n__device__ float both(float v) {\n"
    "  return v + twice(v);  // expect: compile\n}\n" + kernel("y[0] = both(x[0]);"),
    "a member": "struct Sum {\n  float v;\n  float get() const { return v; }\n};\n"
    + store("Sum{x[0]}.get()"),
    "constexpr, of a thread's number": "constexpr int up(int a, int b) { return (a + b - 1) / b; }\n"
    + store("x[up(threadIdx.x, 2)]"),
    "a number": "int size = 16;\n" + store("size * x[0]"),
    "a static number": "static float bias = 0.5f;\n" + store("x[0] + bias"),
    "an array": "float taps[3] = {1, 2, 1};\n" + store("taps[n] * x[0]"),
    "a constant array": "const float taps[3] = {1, 2, 1};\n" + store("taps[n] * x[0]"),
    "a sum that is kept": "float total;\n" + kernel("total += x[0];  // expect: compile"),
    "rand": "#include <cstdlib>\n" + store("x[0] * rand()"),
    "std::max": "#include <algorithm>\n" + store("std::max(x[0], 0.0f)"),
}
GPU_CODE = {
    "macros": "#define ON __host__ __device__\nON float twice(float v) { return 2 * v; }\n"
    + kernel("y[0] = twice(x[0]);"),
    "declared before": "namespace a {\n__device__ float twice(float v);\n}\n"
    "__device__ float a::twice(float v) { return 2 * v; }\n" + kernel("y[0] = a::twice(x[0]);"),
    "known numbers": "constexpr int N = 4;\nconst float HALF = 0.5f;\nenum { A = 3 };\nstatic const int M = 2;\n"
    + kernel("y[0] = N * HALF + A + M;"),
    "code that only the host uses": "int count = 3;\ninline int grown(int v) { return v + count; }\n"
    "constexpr int up(int a, int b) { return (a + b - 1) / b; }\nconstexpr int TILES = up(5, 2);\n"
    + kernel("float count = x[0]; y[0] = count + TILES;"),
    "members": "struct V {\n  float v;\n  __device__ V(float v) : v(v) {}\n  __device__ float get() { return v; }\n"
    "  __device__ V operator+(V o) { return V(v + o.v); }\n};\n"
    + kernel("y[0] = (V(x[0]) + V(x[1])).get();"),
    "a lambda": kernel("auto twice = [](float v) { return 2 * v; };\n  y[0] = twice(x[0]);"),
    "a parameter of that name": "float scale = 2;\n__device__ float by(float v, float scale) { return v * scale; }\n"
    + kernel("y[0] = by(x[0], 2);"),
    "variables of the GPU": "__device__ float kept[4];\n__constant__ int sizes[2] = {1, 2};\n"
    "__device__ const float taps[2] = {1, 2};\n"
    + kernel("kept[0] = x[0]; y[0] = kept[0] * sizes[1] * taps[0];"),
    "what only the emulator sees": "#ifdef MINI_DNN_EMULATOR\ninline float twice(float v) { return 2 * v; }\n#else\n"
    "__device__ float twice(float v) { return 2 * v; }\n#endif\n" + kernel("y[0] = twice(x[0]);"),
    "functions of CUDA": "#include <cmath>\n"
    + kernel("y[0] = std::sqrt(x[0]) + max(n, 1) + fminf(x[0], 1);"),
}
