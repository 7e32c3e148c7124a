// Part of kernel.cu: an operand that threads load.

// An operand whose lines may start anywhere. `whole` is the number of its elements in whole pieces of eight.
struct Lines {
  const lines::Bits* from;
  int lines, length, pitch;
  long long whole;
};
