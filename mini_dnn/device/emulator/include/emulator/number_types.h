// Which types CUDA's functions for atomics and warps take.
#pragma once
#include <type_traits>

namespace emulator {

template <class T, class... Types>
constexpr bool is_one_of = (std::is_same_v<T, Types> || ...);

template <class T>
constexpr bool is_number = std::is_arithmetic_v<T> || (std::is_enum_v<T> && std::is_convertible_v<T, int>);

// half.h and bfloat.h have the types for which these are true.
template <class T>
constexpr bool is_half = false;
template <class T>
constexpr bool is_half_pair = false;

}  // namespace emulator
