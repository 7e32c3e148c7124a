#pragma GCC system_header
__attribute__((no_sanitize("thread"))) static float unseen(const float* x, int at) { return x[at] * 0; }
