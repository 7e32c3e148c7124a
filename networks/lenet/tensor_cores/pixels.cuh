// How an image gets into shared memory, as quads (mini_dnn/quads.cuh), from fp32, bytes, or bytes of a smaller image.
// kernel.cu has the sizes.
#pragma once
#include <mini_dnn/quads.cuh>
#ifdef RESIZE
#include <mini_dnn/bilinear.cuh>
#endif

// Offsets in the block's shared memory, in bytes.
constexpr int round_up(int bytes) { return (bytes + 127) / 128 * 128; }
constexpr int AT_IMAGE = 0;
#if defined(RESIZE)
constexpr int AT_WIDE = round_up(bilinear::from_side * bilinear::from_side);
constexpr int AT_QUADS = AT_WIDE + round_up(bilinear::from_side * SIDE);
#elif defined(BYTES)
constexpr int AT_QUADS = 0;
#else
constexpr int BYTES_OF_IMAGE = 4 * SIDE * SIDE;
constexpr int AT_QUADS = round_up(BYTES_OF_IMAGE);
#endif

#if defined(BYTES)
typedef unsigned char Pixel;
// For all 256 values of a byte, this product rounds to the same half as the quotient.
__device__ __forceinline__ float value(Pixel byte) { return byte * (1 / 255.0f); }
#else
typedef float Pixel;
#endif

// These functions convert pixels to quads. The quads are complete after the next barrier.

#if defined(RESIZE)
__device__ void to_quads(char* memory, const Pixel* image) {
  constexpr int SMALL = bilinear::from_side;
  auto* const small = reinterpret_cast<unsigned char*>(memory + AT_IMAGE);
  auto* const wide = reinterpret_cast<unsigned char*>(memory + AT_WIDE);  // (SMALL,SIDE)
  uint2* const quad = reinterpret_cast<uint2*>(memory + AT_QUADS);
  for (int i = threadIdx.x; i < SMALL * SMALL; i += THREADS) small[i] = image[i];
  __syncthreads();  // the small image is complete
  for (int i = threadIdx.x; i < SMALL * SIDE; i += THREADS)
    wide[i] = bilinear::resized(small + i / SIDE * SMALL, 1, i % SIDE);
  __syncthreads();  // its rows have been resized
  for (int i = threadIdx.x; i < QUADS * QUADS; i += THREADS) {
    const int h = i / QUADS * 2, w = i % QUADS * 2;
    float v[4];
    for (int e = 0; e < 4; e++) v[e] = value(bilinear::resized(wide + w + e % 2, SIDE, h + e / 2));
    quad[i] = quads::pack(v);
  }
}
#elif defined(BYTES)
__device__ void to_quads(char* memory, const Pixel* image) {
  uint2* const quad = reinterpret_cast<uint2*>(memory + AT_QUADS);
  for (int i = threadIdx.x; i < QUADS * QUADS; i += THREADS) {
    const Pixel* const at = image + i / QUADS * 2 * SIDE + i % QUADS * 2;
    const uchar2 up = *reinterpret_cast<const uchar2*>(at), down = *reinterpret_cast<const uchar2*>(at + SIDE);
    quad[i] = quads::pack({value(up.x), value(up.y), value(down.x), value(down.y)});
  }
}
#else
__device__ void to_quads(char* memory, const Pixel*) {
  const float* const image = reinterpret_cast<const float*>(memory + AT_IMAGE);
  uint2* const quad = reinterpret_cast<uint2*>(memory + AT_QUADS);
#pragma unroll 4
  for (int i = threadIdx.x; i < QUADS * QUADS; i += THREADS) {
    const float* const at = image + i / QUADS * 2 * SIDE + i % QUADS * 2;
    const float2 up = *reinterpret_cast<const float2*>(at), down = *reinterpret_cast<const float2*>(at + SIDE);
    quad[i] = quads::pack({up.x, up.y, down.x, down.y});
  }
}
#endif

// Starts the copy of an fp32 image; bytes are read when they are packed.
__device__ void start_load(char* memory, const Pixel* image, ptx::mbarrier* landed) {
#if !defined(BYTES)
#ifdef PTX_BULK
  if (threadIdx.x > 0) return;
  ptx::mbarrier_arrive_expect_tx(landed, BYTES_OF_IMAGE);
  ptx::bulk_load(memory + AT_IMAGE, image, BYTES_OF_IMAGE, landed);
#else
  for (int i = 16 * threadIdx.x; i < BYTES_OF_IMAGE; i += 16 * THREADS)
    ptx::cp_async<16>(memory + AT_IMAGE + i, reinterpret_cast<const char*>(image) + i);
  ptx::cp_async_commit();
#endif
#endif
}
