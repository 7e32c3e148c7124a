// Values that mini_dnn/quads.cuh computes at compile time, and the assignment of columns.
#include <mini_dnn/quads.cuh>

typedef quads::Filter<C, M, R, S> Filter;

extern "C" __global__ void sizes(int* out) {
  out[0] = Filter::width, out[1] = Filter::height, out[2] = Filter::tile_m;
  out[3] = Filter::rows, out[4] = Filter::steps;
}

// One thread: the number of jobs, and how often each column of each strip is assigned.
extern "C" __global__ void cover(int* count, int* visits, int strips, int columns) {
  const quads::Jobs jobs(strips, columns);
  *count = jobs.count;
  for (int job = 0; job < jobs.count; job++)
    for (int n = 0; n < quads::tile_n; n++) {
      const quads::Place place(jobs, job, n);
      if (place.strip < strips && place.column < columns) visits[place.strip * columns + place.column]++;
    }
}
