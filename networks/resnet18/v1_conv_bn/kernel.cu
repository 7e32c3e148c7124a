// networks/resnet18/v1_conv_bn: convolutions and norms on the GPU, without a copy between them.
//
// Idea      Only the norm uses the output of its convolution. If both are on the GPU, a feature map is copied to the
//           host once, after the norm, and back for the next convolution. A real program would compute ReLU, residuals
//           and pools on the host in between. Here, as in v0, the host only copies, and kernels compute them.
// Layout    as networks/resnet18/v0_transfers.
// Mapping   as networks/resnet18/v0_transfers.
// Roofline  ResNet-18, 64 images: 20 feature maps, 0.64 GB to the host and as much back, 26 ms at 50 GB/s. Kernels: 3.5
//           ms for FLOPs and 0.7 ms for bytes, as in v0.
// Gain      over networks/resnet18/v0_transfers: 48 of 68 results stay on the GPU, so the copies are 3.4 times smaller.
// Limits    as networks/resnet18/v0_transfers.
// Hazards   as networks/resnet18/v0_transfers.
// Source    K. He et al., "Deep Residual Learning for Image Recognition", arXiv:1512.03385.
#include "../v0_transfers/layers.cuh"
