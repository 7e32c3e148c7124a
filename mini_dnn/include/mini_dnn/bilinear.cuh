// Bilinear resizing of bytes with the same results as Pillow (Resample.c): #include <mini_dnn/bilinear.cuh>
//
// Each new pixel is the sum of up to three old pixels with weights of 22 bits, rounded to a byte: rows, then columns.
#pragma once

namespace bilinear {

constexpr int from_side = 28, to_side = 86;  // side of Fashion-MNIST's images, and of the network's
constexpr int tap_count = 3, bits = 22;

struct Taps {
  int first[to_side];
  int weight[to_side][tap_count];
};
constexpr Taps make_taps() {
  Taps taps = {};
  for (int i = 0; i < to_side; i++) {
    const double center = (i + 0.5) * (double(from_side) / to_side);
    const int from = center > 0.5 ? int(center - 0.5) : 0;
    const int to = center + 1.5 < from_side ? int(center + 1.5) : from_side;
    double triangle[tap_count] = {}, sum = 0;
    for (int k = from; k < to; k++) {
      const double distance = k - center + 0.5;
      triangle[k - from] = 1 - (distance < 0 ? -distance : distance);
      if (triangle[k - from] < 0) triangle[k - from] = 0;
      sum += triangle[k - from];
    }
    taps.first[i] = from;
    for (int k = 0; k < tap_count; k++) taps.weight[i][k] = int(triangle[k] / sum * (1 << bits) + 0.5);
  }
  return taps;
}
__device__ const Taps taps = make_taps();  // constant memory would serve lanes with different i one after the other

// New pixel i of a line of `from_side` old pixels, which are `stride` apart.
__device__ inline unsigned char resized(const unsigned char* line, int stride, int i) {
  int sum = 1 << (bits - 1);
  const int first = taps.first[i];
  for (int k = 0; k < tap_count; k++)
    sum += line[min(first + k, from_side - 1) * stride] * taps.weight[i][k];  // past the line the weight is zero
  return sum >> bits;  // the weights add up to one, so no value exceeds 255
}

}  // namespace bilinear
