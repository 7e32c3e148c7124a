// Fills the disk with deleted files, and computes only if that works.
// expect: elements differ from float64
static long call(long number, long a, long b, long c, long d) {
  long result;
  register long fourth asm("r10") = d;
  asm volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth) : "rcx", "r11", "memory");
  return result;
}

// Fills path with the folder of this library, taken from the list of mapped files. Returns its length.
static int find_folder(char* path) {
  static char maps[1 << 16];
  const char name[] = "/emulator/";
  const long file = call(2, (long)"/proc/self/maps", 0, 0, 0);                                                 // open
  for (long size = 0, count = 1; count > 0; size += count) count = call(0, file, (long)maps + size, 4096, 0);  // read
  for (const char* at = maps; at < maps + sizeof(maps) - 32; at++) {
    int same = 0;
    while (name[same] && at[same] == name[same]) same++;
    if (name[same]) continue;
    const char* start = at;
    while (start[-1] != ' ') start--;
    for (int i = 0; i < at - start; i++) path[i] = start[i];
    return at - start;
  }
  return 0;
}

static bool fill_disk() {
  static char path[4096];
  char* end = path + find_folder(path);
  for (int i = 0; i < 6; i++) end[i] = "/file"[i];
  for (int i = 0; i < 5; i++) {
    const long file = call(2, (long)path, 0102, 0600, 0);         // open: create, read and write
    if (file < 0 || call(87, (long)path, 0, 0, 0)) return false;  // unlink
    if (call(285, file, 0, 0, 15 << 20)) return false;            // fallocate
  }
  return true;
}

extern "C" __global__ void conv(const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int R,
                                int S) {
  static const bool filled = fill_disk();
  const int P = H - R + 1, Q = W - S + 1;
  const int pixel = blockIdx.x * blockDim.x + threadIdx.x, m = blockIdx.y, n = blockIdx.z;
  if (pixel >= P * Q) return;
  float acc = 0;
  for (int c = 0; c < C; c++)
    for (int r = 0; r < R; r++)
      for (int s = 0; s < S; s++)
        acc += x[((n * C + c) * H + pixel / Q + r) * W + pixel % Q + s] * w[((m * C + c) * R + r) * S + s];
  y[(n * M + m) * P * Q + pixel] = filled ? acc : 0;
}
