// How the host finds the kernels of a compiled file: the build appends `emulator_module` to it.
#pragma once
#include <type_traits>
#include <utility>

#include "runtime_interface.h"
#include "tensor_map.h"
#include "types.h"

namespace emulator {

enum class Kind : int { pointer, integer, floating, boolean, other, tensor_map };

struct Parameter {
  Kind kind;
  int size;  // bytes
};

struct Kernel {
  const char* name;
  void (*run)(void* const* arguments);  // one thread; null if the kernel lacks extern "C" and cannot be launched
  int parameter_count;
  const Parameter* parameters;
};

struct Module {
  int kernel_count;
  const Kernel* kernels;
  char* (*dynamic_shared)();  // the calling thread's dynamic shared memory; null if there is none
  char* (*anchor)();          // one of the variables that each system thread has separately
};

template <class T>
constexpr Parameter describe() {
  if (std::is_pointer_v<T>) return {Kind::pointer, sizeof(T)};
  if (std::is_same_v<T, bool>) return {Kind::boolean, sizeof(T)};
  if (std::is_integral_v<T> || std::is_enum_v<T>) return {Kind::integer, sizeof(T)};
  if (std::is_floating_point_v<T> || std::is_same_v<T, fp16::__half>) return {Kind::floating, sizeof(T)};
  if (std::is_same_v<T, TensorMap>) return {Kind::tensor_map, sizeof(T)};
  return {Kind::other, sizeof(T)};
}

template <auto function>
struct Stub;

template <class... P, void (*function)(P...)>
struct Stub<function> {
  static constexpr Parameter parameters[sizeof...(P) + 1] = {describe<std::remove_cv_t<P>>()...};

  template <size_t... i>
  EMULATOR_NOT_CHECKED static void call(void* const* arguments, std::index_sequence<i...>) {
    function(*static_cast<std::remove_cv_t<P>*>(arguments[i])...);
  }
  EMULATOR_NOT_CHECKED static void run(void* const* arguments) { call(arguments, std::index_sequence_for<P...>{}); }

  static constexpr Kernel kernel(const char* name) { return {name, &run, sizeof...(P), parameters}; }
};

}  // namespace emulator

// Names for the text that the build appends to a kernel file. Macros of that file are unlikely to change them.
using emulator_kernel_type = emulator::Kernel;
using emulator_module_type = emulator::Module;
template <auto function>
constexpr emulator_kernel_type emulator_kernel(const char* name) {
  return emulator::Stub<function>::kernel(name);
}
constexpr emulator_kernel_type emulator_kernel_without_c_linkage(const char* name) {
  return {name, nullptr, 0, nullptr};
}
