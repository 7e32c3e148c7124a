// networks/resnet18/v1_conv_bn: convolutions and norms on the GPU, the rest as far away as the host.
//
// Idea      A norm needs nothing but what its convolution leaves, and needs it at once. With both on the GPU a map
//           travels once, after the norm, to where ReLU, residuals and pools would be done on the host, and comes back
//           for the next convolution. The host's part is again the copies alone: kernels stand in for its work.
// Layout    as networks/resnet18/v0_transfers.
// Mapping   as networks/resnet18/v0_transfers.
// Roofline  ResNet-18, 64 images: 20 maps, 0.64 GB to the host and as much back, 26 ms at 50 GB/s. Kernels: 3.5 ms of
//           FLOPs and 0.7 ms of bytes, as in v0.
// Gain      over networks/resnet18/v0_transfers: 48 of 68 results stay, and 3.4 times less is copied.
// Limits    as networks/resnet18/v0_transfers.
// Hazards   as networks/resnet18/v0_transfers.
// Source    K. He et al., "Deep Residual Learning for Image Recognition", arXiv:1512.03385.
#include "../v0_transfers/layers.cuh"
