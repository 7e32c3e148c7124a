// networks/resnet18/v0_transfers: one kernel per layer of a residual network; each result is copied to the host and
// back.
//
// Idea      Many first programs for a GPU run one layer on it and copy the result back. Here the result of each layer
//           is copied to the host, and back as the input of the next layer. The host itself computes nothing, so only
//           the cost of the copies is added.
// Layout    images (N,C,H,W) bytes, halves or fp32; all other arrays fp32, channels first. The kernels are in
//           layers.cuh; the convolutions are those of conv2d_padded/v0_naive.
// Mapping   a thread -> an element of the output; in average_pool and linear a warp -> an element.
// Roofline  ResNet-18, 64 images: 68 results, 2.1 GB to the host and as much back: 86 ms at 50 GB/s. The kernels: 232
//           GFLOP, 3.5 ms at 67 TFLOP/s of fp32; 3 GB in the small layers, 0.7 ms at 4.3 TB/s.
// Gain      none: this is the first rung.
// Limits    sizes are arguments, except the type of the images. Fewer than 2^31 blocks.
// Hazards   none: threads share only the sums of a warp, and a launch or copy starts after the previous one has ended.
// Source    K. He et al., "Deep Residual Learning for Image Recognition", arXiv:1512.03385.
#include "layers.cuh"
