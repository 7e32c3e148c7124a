// gemm/cublas: c = alpha a b + beta c0, computed by NVIDIA's library.
//
// Idea      This library has been optimised for years. The rungs are compared with its speed.
// Layout    a (batch,m,k), b (batch,k,n), c0 and c (batch,m,n), row by row or transposed, with gaps. cuBLAS is
//           column-major. It computes the transposed product of the same memory, b by a, so nothing has to be
//           transposed.
// Mapping   chosen by the library: cublasGemmStridedBatchedEx, sums in fp32, no TF32, with its own workspace, so that a
//           graph can record it. It adds to c in place: if c0 is used, it is copied to c first.
// Roofline  m = n = k = 4096: 137 GFLOP, in half 0.14 ms at 990 TFLOP/s, in float 2.05 ms at 67; 101 MB, 0.023 ms at
//           4.3 TB/s.
// Gain      over gemm/v0_naive: the largest gain that can be expected, 0.18 ms in half, 750 TFLOP/s.
// Limits    a GPU only. Sizes and leading dimensions below 2^31. c has the type of a and b, or float. The library is
//           slow if the lines of an operand do not start at multiples of 16 bytes, for example if their length is odd.
// Hazards   none: the stream orders the steps.
// Source    NVIDIA, "cuBLAS Library", sections "cublasGemmStridedBatchedEx()" and "cublasSetWorkspace()".
#include <type_traits>

using Element = std::conditional_t<BYTES == 4, unsigned, unsigned short>;

// Rows are `pitch` elements apart. The gaps between them are not changed.
extern "C" __global__ void copy_rows(const Element* c0, Element* c, long long rows, int n, long long pitch) {
  const int col = blockIdx.x * blockDim.x + threadIdx.x;
  if (col >= n) return;
  for (long long row = blockIdx.y; row < rows; row += gridDim.y) c[row * pitch + col] = c0[row * pitch + col];
}
