// The assert of kernels: it ends the launch with a message, but not the process. There is no include guard: as in C,
// each inclusion looks at NDEBUG again.
#undef assert
#ifdef NDEBUG
#define assert(condition) ((void)0)
#else
#define assert(condition) ((condition) ? (void)0 : emulator::fail_assertion(#condition, __FILE__, __LINE__))
#endif
