// Output of kernels is stored until the launch ends.
#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>

#include "worker.h"

namespace emulator {

namespace {
constexpr size_t PRINT_BYTES = 1 << 20;  // a GPU's default, too
std::mutex printing;
std::string printed;
bool overflowed;

void keep(const char* text, size_t bytes) {
  this_worker->in_kernel = false;  // a launch must not be cancelled while this thread holds the mutex
  {
    std::lock_guard lock(printing);
    overflowed |= printed.size() + bytes > PRINT_BYTES;
    if (!overflowed) printed.append(text, bytes);
  }
  this_worker->in_kernel = true;
}

// How many arguments a format takes. %n writes to memory without being noticed; CUDA does not have it.
int count_arguments(const char* format) {
  int count = 0;
  while ((format = strchr(format, '%'))) {
    const char* const flags = format + 1;
    format = flags + strspn(flags, "-+ #0'I*.$123456789hlLqjzt");
    if (*format == 'n') fail("printf has no %%n in a kernel; count what is printed in another way");
    count += int(std::count(flags, format, '*')) + (*format && *format != '%');
    if (*format) format++;
  }
  return count;
}

}  // namespace

// As in CUDA, returns the number of arguments, and -1 without a format.
int print(const char* format, ...) {
  if (!format) return -1;
  const int count = count_arguments(format);
  char line[2048];  // on a fiber's stack
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  if (length < 0) return -2;
  keep(line, size_t(length) < sizeof line ? size_t(length) : sizeof line - 1);
  return count;
}

}  // namespace emulator

using namespace emulator;

// The text since the last call, valid until the next one. nullptr: nothing was printed.
extern "C" __attribute__((visibility("default"))) const char* emulator_printed() {
  static std::string text;
  std::lock_guard lock(printing);
  if (printed.empty()) return nullptr;
  text = std::move(printed);
  if (overflowed) text += "[more was printed: only the first MiB of a launch is kept]\n";
  printed.clear();
  overflowed = false;
  return text.c_str();
}
