// networks/resnet18/v0_transfers: each layer of a residual network a kernel, and its result goes to the host and back.
//
// Idea      The first thing that one does with a GPU: give it a layer, and take the result. Here each layer's result is
//           copied to the host, and back to be the next layer's input. The host itself does nothing, so that what the
//           copies cost is all that there is to see.
// Layout    images (N,C,H,W) bytes, halves or fp32; all other arrays fp32, channels first. Kernels are in layers.cuh,
//           and convolutions those of conv2d_padded/v0_naive.
// Mapping   a thread -> an element of the output; in average_pool and linear a warp -> an element.
// Roofline  ResNet-18, 64 images: 68 results, 2.1 GB to the host and as much back: 86 ms at 50 GB/s. The kernels: 232
//           GFLOP, 3.5 ms at 67 TFLOP/s of fp32; 3 GB in the small layers, 0.7 ms at 4.3 TB/s.
// Gain      over none: it is the first rung.
// Limits    sizes are arguments, but for the type of the images. Fewer than 2^31 blocks.
// Hazards   none: threads share nothing but a warp's sums, and a launch or copy begins after the one before it has
//           ended.
// Source    K. He et al., "Deep Residual Learning for Image Recognition", arXiv:1512.03385.
#include "layers.cuh"
