// Products of a warp, mma.sync: see include/emulator/multiply.h.
#include "../include/emulator/bfloat_bits.h"
#include "../include/emulator/half_bits.h"
#include "../include/emulator/multiply.h"
#include "worker.h"

namespace emulator {

namespace {

// n adjacent numbers.
template <Element element, int n>
void widen(const void* bits, float* floats) {
  if constexpr (element == Element::half)
    halves_to_floats<n>(bits, floats);
  else if constexpr (element == Element::bfloat)
    bfloats_to_floats<n>(bits, floats);
  else
    for (int i = 0; i < n; i++) {
      const uint32_t kept = static_cast<const uint32_t*>(bits)[i] & ~0x1fffu;  // the low bits are not read
      memcpy(floats + i, &kept, sizeof kept);
    }
}

// Registers of 16 rows: rows of their first numbers, and of their second ones if there are two.
template <Element element>
void widen_registers(const uint32_t (&registers)[16], float (*rows)[16]) {
  if constexpr (element == Element::tf32) {
    widen<element, 16>(registers, rows[0]);
  } else {
    alignas(32) uint16_t low[16], high[16];
    for (int i = 0; i < 16; i++) low[i] = registers[i], high[i] = registers[i] >> 16;
    widen<element, 16>(low, rows[0]);
    widen<element, 16>(high, rows[1]);
  }
}

// A register holds consecutive k, those of lane (g, t) starting at register t. Registers of a go down eight rows first,
// then on to the next quarter or half of k.
template <Element element, int k>
void make(void* const* products) {
  constexpr int in_register = element == Element::tf32 ? 1 : 2, registers = k / in_register;
  // Transposed: rows are as long as vectors, or as k.
  alignas(64) uint32_t a_bits[registers][16], b_bits[8][registers];
  alignas(64) float a[k][16], b[8][k], d[8][16];
  for (int lane = 0; lane < WARP; lane++) {
    const auto& mine = *static_cast<const WarpProduct*>(products[lane]);
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < registers / 4; i++) {
      a_bits[4 * i + t][g] = mine.a[2 * i];
      a_bits[4 * i + t][g + 8] = mine.a[2 * i + 1];
      b_bits[g][4 * i + t] = mine.b[i];
    }
    for (int i = 0; i < 4; i++) d[2 * t + i % 2][g + i / 2 * 8] = mine.d[i];
  }
  for (int i = 0; i < registers; i++) widen_registers<element>(a_bits[i], a + i * in_register);
  widen<element, 8 * k>(b_bits, b[0]);
  multiply(d, b, a, element);
  for (int lane = 0; lane < WARP; lane++) {
    float* mine = static_cast<const WarpProduct*>(products[lane])->d;
    for (int i = 0; i < 4; i++) mine[i] = d[2 * (lane % 4) + i % 2][lane / 4 + i / 2 * 8];
  }
}

}  // namespace

void mma_sync(void* const* products, unsigned arrived) {
  require_all_lanes(arrived);
  const auto& first = *static_cast<const WarpProduct*>(products[0]);
  if (first.element == Element::tf32)
    make<Element::tf32, 8>(products);
  else if (first.element == Element::bfloat)
    make<Element::bfloat, 16>(products);
  else if (first.k == 8)
    make<Element::half, 8>(products);
  else
    make<Element::half, 16>(products);
}

}  // namespace emulator
