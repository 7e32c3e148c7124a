// What main.cu needs besides the kernel: checked calls, buffers, streams, the comparison, and the clock.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#define CUDA_CHECK(call) harness::check(call, #call, __FILE__, __LINE__)

namespace harness {

inline void check(cudaError_t status, const char* call, const char* file, int line) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "%s:%d: %s\n  failed: %s\n", file, line, call, cudaGetErrorString(status));
  if (status == cudaErrorNoKernelImageForDevice)
    std::fprintf(stderr, "  It was built for another GPU. Try: make ARCH=89 for compute capability 8.9\n");
  std::exit(2);
}

// ---- Buffers

// An address on the GPU, which converts to a pointer of any type.
struct Pointer {
  void* address;
  template <class Element>
  operator Element*() const {
    return static_cast<Element*>(address);
  }
};

// The i-th number of a random sequence, uniform in [0, 1): 24 bits of a hash. Any part of the sequence can be computed
// separately. mini_dnn used the same numbers, bit for bit, for the answers.
inline double uniform(std::uint64_t sequence, std::uint64_t i) {
  std::uint64_t hash = ((sequence << 40) + i) * 0x9E3779B97F4A7C15;
  hash = (hash ^ hash >> 32) * 0xD6E8FEB86659FD93;
  return double((hash ^ hash >> 32) >> 40) * 0x1p-24;
}

// A value in [low, high). The product is exact, so it does not matter whether the compiler fuses it with the sum.
template <class Element>
Element random(std::uint64_t sequence, std::uint64_t i, float low, float high) {
  return Element(float(low + uniform(sequence, i) * (double(high) - low)));
}

// An array in C order on the GPU, and its copy in page-locked host memory. Both start as NaN (bytes of 0xFF), so that
// unwritten elements are found. A line of the last axis may end with a gap of unused elements.
template <class Element>
struct Buffer : Pointer {
  std::vector<std::size_t> shape;
  std::size_t gap;        // elements
  std::size_t entry = 1;  // elements in one entry of the first axis

  explicit Buffer(std::initializer_list<std::size_t> axes, std::size_t gap = 0) : shape(axes), gap(gap) {
    for (std::size_t axis = 1; axis < shape.size(); axis++) entry *= shape[axis];
    CUDA_CHECK(cudaMalloc(&address, bytes()));
    CUDA_CHECK(cudaMemset(address, 0xFF, bytes()));
    CUDA_CHECK(cudaDeviceSynchronize());  // streams that wait for nothing may use it immediately
  }
  Buffer(const Buffer&) = delete;
  ~Buffer() {
    cudaFree(address);
    cudaFreeHost(copy);
  }

  std::size_t size() const { return shape[0] * entry; }
  std::size_t bytes() const { return size() * sizeof(Element); }
  Pointer operator[](std::size_t first) const {
    return Pointer{static_cast<void*>(static_cast<Element*>(address) + first * entry)};
  }

  // The copy on the host, which is allocated on first use.
  Element* host() {
    if (!copy) {
      CUDA_CHECK(cudaMallocHost(&copy, bytes()));
      std::fill_n(reinterpret_cast<unsigned char*>(copy), bytes(), 0xFF);
    }
    return copy;
  }

  bool in_gap(std::size_t i) const { return gap > 0 && i % shape.back() >= shape.back() - gap; }

  // Fills the host copy with random values, except for gaps.
  Buffer& draw(std::uint64_t sequence, float low, float high) {
    Element* to = host();
    for (std::size_t i = 0; i < size(); i++)
      if (!in_gap(i)) to[i] = random<Element>(sequence, i, low, high);
    return *this;
  }

  void upload() { CUDA_CHECK(cudaMemcpy(address, host(), bytes(), cudaMemcpyHostToDevice)); }
  void download() { CUDA_CHECK(cudaMemcpy(host(), address, bytes(), cudaMemcpyDeviceToHost)); }

  // Copies entries `first` to `last - 1` of the first axis without waiting for the copy.
  void copy_in(std::size_t first, std::size_t last, cudaStream_t stream) {
    const std::size_t part = (last - first) * entry * sizeof(Element);
    CUDA_CHECK(cudaMemcpyAsync((*this)[first], host() + first * entry, part, cudaMemcpyHostToDevice, stream));
  }
  void copy_out(std::size_t first, std::size_t last, cudaStream_t stream) {
    const std::size_t part = (last - first) * entry * sizeof(Element);
    CUDA_CHECK(cudaMemcpyAsync(host() + first * entry, (*this)[first], part, cudaMemcpyDeviceToHost, stream));
  }

 private:
  Element* copy = nullptr;
};

// ---- Streams

struct Streams {
  std::vector<cudaStream_t> streams;
  cudaEvent_t event;
  std::map<std::string, cudaEvent_t> events;

  explicit Streams(int count) : streams(count) {
    for (cudaStream_t& stream : streams) CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  }
  Streams(const Streams&) = delete;
  ~Streams() {
    for (cudaStream_t stream : streams) cudaStreamDestroy(stream);
    cudaEventDestroy(event);
    for (const auto& [name, recorded] : events) cudaEventDestroy(recorded);
  }

  cudaStream_t operator[](int i) const { return streams[i]; }

  // Records an event for all work that stream i has so far. A wait for that name refers to it.
  void record(const std::string& name, int i) {
    if (!events.count(name)) CUDA_CHECK(cudaEventCreateWithFlags(&events[name], cudaEventDisableTiming));
    CUDA_CHECK(cudaEventRecord(events.at(name), streams[i]));
  }
  void wait(const std::string& name, int i) { CUDA_CHECK(cudaStreamWaitEvent(streams[i], events.at(name))); }

  // All other streams wait for the work that stream 0 has so far.
  void fork() {
    CUDA_CHECK(cudaEventRecord(event, streams[0]));
    for (std::size_t i = 1; i < streams.size(); i++) CUDA_CHECK(cudaStreamWaitEvent(streams[i], event));
  }
  // Stream 0 waits for the work that all other streams have so far.
  void join() {
    for (std::size_t i = 1; i < streams.size(); i++) {
      CUDA_CHECK(cudaEventRecord(event, streams[i]));
      CUDA_CHECK(cudaStreamWaitEvent(streams[0], event));
    }
  }
};

// ---- Output

inline void introduce(const char* kernel, const char* problem) {
  int device, driver;
  cudaDeviceProp gpu;
  CUDA_CHECK(cudaGetDevice(&device));
  CUDA_CHECK(cudaGetDeviceProperties(&gpu, device));
  CUDA_CHECK(cudaDriverGetVersion(&driver));
  std::printf("kernel  %s\nproblem %s\n", kernel, problem);
  std::printf("device  %s (sm_%d%d), CUDA %d.%d\n", gpu.name, gpu.major, gpu.minor, driver / 1000, driver % 1000 / 10);
}

template <class Element>
double number(Element value) {
  if constexpr (std::is_arithmetic_v<Element>)
    return double(value);
  else
    return double(float(value));  // for 16-bit types
}

struct Answer {
  std::uint64_t at;  // index of the element
  double expected, bound;
};

// Compares a result in host memory with the answers in `expected-NAME.bin`. Returns whether all of these are within
// their bounds, none of the other elements is NaN, and nothing was written into gaps.
template <class Element>
bool agrees(const char* name, Buffer<Element>& buffer) {
  char path[256];
  std::snprintf(path, sizeof path, "expected-%s.bin", name);
  std::FILE* file = std::fopen(path, "rb");
  if (!file) {
    std::fprintf(stderr, "%s cannot be opened: run the program in its own folder\n", path);
    std::exit(2);
  }
  const Element* found = buffer.host();
  std::size_t nans = 0, strays = 0, answers = 0, wrong = 0;
  for (std::size_t i = 0; i < buffer.size(); i++) {
    const bool nan = std::isnan(number(found[i]));
    if (buffer.in_gap(i))
      strays += !nan;
    else
      nans += nan;
  }
  double largest = 0, nearest = 0;
  for (Answer answer; std::fread(&answer, sizeof answer, 1, file) == 1; answers++) {
    const double value = number(found[answer.at]), error = std::abs(value - answer.expected);
    if (error <= answer.bound) {  // never true for NaN
      largest = std::max(largest, error);
      if (error > 0) nearest = std::max(nearest, error / answer.bound);
    } else if (wrong++ == 0) {
      std::printf("check   %s, element %llu: found %.8g, expected %.8g, at most %.2g off\n", name,
                  (unsigned long long)answer.at, value, answer.expected, answer.bound);
    }
  }
  std::fclose(file);
  if (nans) std::printf("check   %s: %zu of %zu elements are NaN: nobody wrote them?\n", name, nans, buffer.size());
  if (strays) std::printf("check   %s: %zu elements were written into gaps\n", name, strays);
  if (wrong) std::printf("check   %s: %zu of %zu elements differ from float64\n", name, wrong, answers);
  if (answers == 0) std::printf("check   %s: there are no answers in %s\n", name, path);
  if (nans || strays || wrong || answers == 0) return false;
  std::printf("check   %s: %zu of %zu elements agree with float64, max error %.2e, %.0f %% of the bound\n", name,
              answers, buffer.size(), largest, 100 * nearest);
  return true;
}

// Times `steps`, which issue `what` to `stream`: the median of up to 50 runs, or of as many as fit in two seconds. The
// L2 cache is overwritten before each run. This makes it cold, and all launches of a run are queued by the time the
// first one starts, so that pauses of the host between launches do not count.
template <class Steps>
void time(const char* what, Steps steps, cudaStream_t stream, double flops, double bytes) {
  constexpr int warm_up = 5, least = 5, most = 50, flushes = 16;
  int device, l2_bytes;
  CUDA_CHECK(cudaGetDevice(&device));
  CUDA_CHECK(cudaDeviceGetAttribute(&l2_bytes, cudaDevAttrL2CacheSize, device));
  Buffer<unsigned char> flush({2 * std::size_t(l2_bytes)});
  cudaEvent_t start, end;
  CUDA_CHECK(cudaEventCreate(&start));
  CUDA_CHECK(cudaEventCreate(&end));

  std::vector<float> times;
  const auto since = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count(); };
  for (int run = 0; run < warm_up + most && (run < warm_up + least || seconds() < 2); run++) {
    for (int i = 0; i < flushes; i++) CUDA_CHECK(cudaMemsetAsync(flush, 0, flush.bytes(), stream));
    CUDA_CHECK(cudaEventRecord(start, stream));
    steps();
    CUDA_CHECK(cudaEventRecord(end, stream));
    CUDA_CHECK(cudaEventSynchronize(end));
    float ms;
    CUDA_CHECK(cudaEventElapsedTime(&ms, start, end));
    if (run >= warm_up) times.push_back(ms);
  }
  CUDA_CHECK(cudaEventDestroy(start));
  CUDA_CHECK(cudaEventDestroy(end));

  std::sort(times.begin(), times.end());
  const double ms = times[times.size() / 2];
  std::printf("time    %.4g ms (%s), the median of %zu runs (%.4g to %.4g), cold L2 cache\n", ms, what, times.size(),
              times.front(), times.back());
  std::printf("rate    ");
  if (flops > 0) std::printf("%.4g TFLOP/s, ", flops / ms / 1e9);
  std::printf("%.4g GB/s of the bytes that have to move\n", bytes / ms / 1e6);
}

}  // namespace harness
