// networks/resnet18/v3_shared: networks/resnet18/v2_layers with convolutions in shared-memory tiles.
//
// Idea      The 20 convolutions take nearly all of the time. One name in variant.py determines how they are computed:
//           conv2d_padded/v1 replaces v0. All sums are still in fp32, and scores agree with float64 to a millionth.
// Layout    as networks/resnet18/v2_layers.
// Mapping   as there; in a convolution, a block -> 64 pixels of all images and 64 channels.
// Roofline  ResNet-18, 64 images: 232 GFLOP, 3.5 ms at 67 TFLOP/s of fp32. The small layers: 3 GB, 0.7 ms at 4.3 TB/s.
// Gain      over networks/resnet18/v2_layers: a factor of 5 in convolutions, the gain of conv2d_padded/v1 over v0; none
//           in the small layers.
// Limits    as networks/resnet18/v2_layers.
// Hazards   as networks/resnet18/v2_layers.
// Source    S. Chetlur et al., "cuDNN: Efficient Primitives for Deep Learning", arXiv:1410.0759.
#include "../v0_transfers/layers.cuh"
