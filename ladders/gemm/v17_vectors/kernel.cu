// gemm/v17_vectors: the product of a matrix and a vector in fp32, by the kernels of gemm/v10_small.
//
// Idea      gemm/v13_split turns each float into two halves, so that tensor cores can multiply it. That pays if an
//           element is used often. In a product with a vector, each element of the matrix is used once: splitting reads
//           it, writes as many bytes, and the product reads them again. Here, each float is loaded once and multiplied
//           by an FMA. The kernels are those of gemm/v10_small. A piece of 16 bytes has four floats instead of eight
//           halves, so as many bytes are in flight.
// Layout    as gemm/v8_final.
// Mapping   Columns: a cluster for a strip of 64, 128 or 256 of them, whose up to 8 blocks share k. Rows: a warp each.
// Roofline  1 x 4096 x 4096: 67 MB, 0.0200 ms at 3.35 TB/s, and 34 MFLOP.
// Gain      over gemm/v10_small: floats, too. Expected over gemm/v13_split, in us on an H100: 1 x 4096 x 4096, 121 to
//           24; 4096 x 1 x 4096, 106 to 24. cuBLAS takes 24.7 and 28.0. Found: 24.8 and 24.2.
// Limits    fp32, and m or n of 1. sm_90a, as blocks of a cluster send their sums by st.async.
// Hazards   as gemm/v10_small.
// Source    as gemm/v10_small.
#include <mini_dnn/sums.cuh>

using Out = sums::Element<OUT_TYPE>;

#include "../v10_small/vectors.cuh"
