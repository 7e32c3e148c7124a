"""mini_dnn: a small network framework whose convolutions run in CUDA kernels that you can read."""
