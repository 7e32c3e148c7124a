// networks/resnet18/v2_layers: each layer of a residual network a kernel, all results in the GPU's memory.
//
// Idea      What v0 and v1 lose is the way to the host and back. Here images go there once, and scores come back; what
//           a layer leaves stays where the next one reads it. Convolutions are those of the ladder conv2d_padded; this
//           file has the small layers, one kernel each, written as their formulas are.
// Layout    images (N,C,H,W) bytes, halves or fp32; all other arrays fp32, channels first.
// Mapping   a thread -> an element of the output; in average_pool and linear a warp -> an element.
// Roofline  ResNet-18, 64 images: 232 GFLOP, 3.5 ms at 67 TFLOP/s of fp32. The small layers read and write each map
//           of a convolution two or three times: 3 GB, 0.7 ms at 4.3 TB/s.
// Gain      over networks/resnet18/v1_conv_bn: 20 maps that go to the host and back, 1.3 GB, 26 ms at 50 GB/s.
// Limits    sizes are arguments, but for the type of the images. Fewer than 2^31 blocks.
// Hazards   none: threads share nothing but a warp's sums, and a launch begins after the one before it has ended.
// Source    K. He et al., "Deep Residual Learning for Image Recognition", arXiv:1512.03385.
#include "../v0_transfers/layers.cuh"
