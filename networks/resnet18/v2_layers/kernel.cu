// networks/resnet18/v2_layers: one kernel per layer of a residual network, all results in GPU memory.
//
// Idea      v0 and v1 spend most of their time on copies. Here images are copied to the GPU once, and scores are copied
//           back; each result stays in GPU memory, where the next layer reads it. Convolutions are those of the ladder
//           conv2d_padded. This file has the small layers, one kernel each.
// Layout    images (N,C,H,W) bytes, halves or fp32; all other arrays fp32, channels first.
// Mapping   a thread -> an element of the output; in average_pool and linear a warp -> an element.
// Roofline  ResNet-18, 64 images: 232 GFLOP, 3.5 ms at 67 TFLOP/s of fp32. The small layers read and write each feature
//           map of a convolution two or three times: 3 GB, 0.7 ms at 4.3 TB/s.
// Gain      over networks/resnet18/v1_conv_bn: no copies of 20 feature maps to the host and back, 1.3 GB, 26 ms at 50
//           GB/s.
// Limits    sizes are arguments, except the type of the images. Fewer than 2^31 blocks.
// Hazards   none: threads share only the sums of a warp, and a launch starts after the previous one has ended.
// Source    K. He et al., "Deep Residual Learning for Image Recognition", arXiv:1512.03385.
#include "../v0_transfers/layers.cuh"
