// Asynchronous copies, mbarriers and products of a worker's block, and the calls by which checked mode learns of them.
#pragma once
#include <memory>
#include <vector>

#include "scheduler.h"

#include "../include/emulator/async_interface.h"
#include "box.h"
#include "matrix.h"

namespace emulator {

constexpr unsigned WARPGROUP = 4 * WARP;  // threads

// A product copies nothing, but reads its operands.
enum class CopyKind : int { cp_async, bulk_load, bulk_store, tensor_load, tensor_store, product, store_async };
const char* copy_name(CopyKind kind, bool multicast);  // the name of its function
inline bool is_store(CopyKind kind) { return kind == CopyKind::bulk_store || kind == CopyKind::tensor_store; }

// A copy that has been started. It is in flight until it is forgotten.
struct Copy {
  char* to;
  const char* from;
  unsigned bytes, valid;  // bytes after the valid ones become zero
  CopyKind kind;
  unsigned thread;  // that started it
  const void* call;
  unsigned id;                               // for the checks
  std::vector<char> held;                    // by a bulk store that has read its source, and by a store_async
  std::shared_ptr<const Box> box = nullptr;  // for a tensor copy
  bool multicast = false;                    // to several blocks of a cluster; this is the copy of one of them

  char* shared() const { return is_store(kind) ? const_cast<char*>(from) : to; }
  template <class Visit>
  void each_piece(Visit visit) const {
    if (box) return box->each_piece(shared(), visit);
    visit(Piece{shared(), is_store(kind) ? to : const_cast<char*>(from), bytes, 0, valid});
  }
};

// The copies of one kind that a thread has started: closed groups, oldest first, and those since the last commit.
struct Groups {
  std::vector<std::vector<Copy>> closed;
  std::vector<Copy> open;
  size_t held = 0;  // closed groups of stores whose sources have been read: the oldest ones
};

// What the checks record for an mbarrier.
#ifdef EMULATOR_CHECKED
struct Clock;  // checked/clocks.h
struct BarrierNotes {
  unsigned waited = 0;     // the number of its phases that a thread has waited for
  unsigned thread, phase;  // of the last arrival from another block of the cluster: the thread and the phase
  uint64_t block, pc;
  uint32_t epoch = 0;  // when; 0: none
  unsigned maker = 0;  // the thread that initialised it
  uint32_t made = 0;   // when
  uint64_t made_pc = 0;
  unsigned number = 0;                     // among the mbarriers of its block
  std::shared_ptr<Clock> arrived;          // what the arrivals so far pass on
  std::shared_ptr<const Clock> complete;   // those for complete phases
  std::shared_ptr<const Clock> passed_on;  // what the last thread of the block that arrived knew
};
#else
struct BarrierNotes {};
#endif

struct Barrier {
  void* address;
  unsigned arrivals, pending;
  unsigned phase;           // number of complete phases
  uint64_t expected_bytes;  // of the current phase
  std::vector<Copy> copies;
  struct Waiter {
    Fiber* fiber;
    unsigned parity;
  };
  std::vector<Waiter> waiters;
  Worker* block;  // in whose shared memory it is
  BarrierNotes notes = {};

  uint64_t copied_bytes() const {
    uint64_t sum = 0;
    for (const Copy& copy : copies) sum += copy.bytes;
    return sum;
  }
};

// A product that a warp has started, for its 16 rows. All fields but `d` and `registers` are the same for all lanes.
struct Product {
  ProductCall call;
  Matrix a, b;  // a: only if it is in shared memory
  bool a_in_registers;
  Site site;
  unsigned thread;  // that arrived first
  const void* pc;
  unsigned id;         // for the checks
  unsigned lanes = 0;  // that have started it
  float* d[WARP];
  unsigned registers[WARP][4];

  // One for each 16 bytes of shared memory that it reads.
  template <class Visit>
  void each_chunk(Visit visit) const {
    if (!a_in_registers) a.each_chunk(visit);
    b.each_chunk(visit);
  }
};

// A warp's sums while products are computed, columns by rows: a vector of rows times an element of b is added to a
// vector.
typedef float Sums[MAX_COLUMNS / 8][8][16];

// The products that a warp has started and has not waited for, oldest first. Its lanes arrive one after the other: the
// first lane to start a product appends it, and the others join. Products and groups have numbers, from 0 on.
struct WarpProducts {
  std::vector<Product> queue;
  std::vector<unsigned> groups;                       // for each commit, the number of products started until then
  unsigned first = 0, first_group = 0;                // numbers of the first ones in these
  unsigned started[WARP] = {}, committed[WARP] = {};  // by each lane: products and groups
  unsigned whole = 0, waited = 0;                     // products that all lanes have started, and waited for
  Site latest;
  uint64_t registers = 0;  // a hash of its calls of setmaxnreg
  Site latest_registers;

  unsigned end() const { return first + unsigned(queue.size()); }
  const Product& at(unsigned number) const { return queue[number - first]; }
};

struct Warpgroup {
  unsigned made = 0;            // products that have been computed
  std::vector<Fiber*> waiters;  // lanes that wait for products that another warp has not started
};

struct Async {
  bool used = false;             // by this block
  const char* window = nullptr;  // 1 MB that contains its shared memory: addresses in descriptors are relative to it
  WarpProducts products[MAX_THREADS / WARP];
  Warpgroup warpgroups[MAX_THREADS / WARPGROUP];
  alignas(64) Sums sums;  // of the products that are being computed
  Groups loads[MAX_THREADS], stores[MAX_THREADS];
  std::vector<Barrier> barriers;
};

Async& the_async();  // of this thread's block
void land(const Copy& copy);
// Ends the launch if `p` is in the shared memory of another block than the mbarrier.
void require_same_block(const Barrier& barrier, const void* p, const char* what, Site site);
// For operations on an mbarrier that other blocks of the cluster may also perform.
Barrier& find_barrier_anywhere(void* address, const char* what, Site site, const void* call);
// Begins the next phase if this one is complete. Copies arrive then, so someone must be waiting for them (`wanted`).
void settle(Barrier& barrier, bool wanted);
void forget_copies(Worker& worker);  // and mbarriers
void end_copies(Worker& worker);     // may set worker.failure

// Computes products that a warp of a warpgroup waits for, if all of its warps have started them.
void make_awaited(unsigned warpgroup);
// Of a block that is stuck. Ends the launch if a warp waits for a product that another one has returned without.
void require_products(const Worker& worker);
void forget_products(Worker& worker);
void end_products(Worker& worker);  // may set worker.failure

inline void async_block_started(Worker& worker) {
  if (worker.async && worker.async->used) forget_copies(worker), forget_products(worker);
}
inline void async_block_ended(Worker& worker) {
  if (worker.async && worker.async->used) end_copies(worker), end_products(worker);
}

#ifdef EMULATOR_CHECKED
// Ends the launch if it is not a multiple
void check_multiple(size_t value, size_t unit, const char* what, const void* call);
void check_copy_started(Copy& copy);
void check_copy_counted(const Copy& copy, Barrier& barrier);
void check_copy_committed(const Copy& copy);
void check_copy_landed(const Copy& copy);  // and is no longer in flight
void check_store_complete(const Copy& copy);
void check_copy_left(const Copy& copy);  // nobody had waited for it at the end of the block
void check_barrier_made(void* barrier, const void* call);
void check_barrier_used(void* barrier, const char* what, const void* call);
void note_barrier_made(Barrier& barrier);
void check_barrier_fenced(const Barrier& barrier, const Copy& copy);
void check_arrived(Barrier& barrier);
void check_waited(Barrier& barrier, unsigned thread);  // of its block, for all complete phases
void check_phase_completed(Barrier& barrier);
void check_product_reads(const Product& product);
void check_registers(const Product& product, const float* d, const unsigned* a, const void* call);  // of this thread
void note_sums_made(const Product& product);
void note_sums_waited(const Product& product);
void check_product_started(Product& product);
void check_product_read_again(const Product& product);  // another lane was first
void check_product_committed(const Product& product);
void check_product_made(const Product& product);
void check_product_waited(const Product& product);                         // by its warp, and it is made
void check_product_left(const Product& product);                           // at the end of the block
void check_sums_under_way(const Product& product, const void* wait_call);  // ends the launch
#else
inline void check_multiple(size_t, size_t, const char*, const void*) {}
inline void check_copy_started(Copy&) {}
inline void check_copy_counted(const Copy&, Barrier&) {}
inline void check_copy_committed(const Copy&) {}
inline void check_copy_landed(const Copy&) {}
inline void check_store_complete(const Copy&) {}
inline void check_copy_left(const Copy&) {}
inline void check_barrier_made(void*, const void*) {}
inline void check_barrier_used(void*, const char*, const void*) {}
inline void note_barrier_made(Barrier&) {}
inline void check_barrier_fenced(const Barrier&, const Copy&) {}
inline void check_arrived(Barrier&) {}
inline void check_waited(Barrier&, unsigned) {}
inline void check_phase_completed(Barrier&) {}
inline void check_product_reads(const Product&) {}
inline void check_registers(const Product&, const float*, const unsigned*, const void*) {}
inline void check_product_started(Product&) {}
inline void check_product_read_again(const Product&) {}
inline void check_product_committed(const Product&) {}
inline void check_product_made(const Product&) {}
inline void check_product_waited(const Product&) {}
inline void check_product_left(const Product&) {}
inline void check_sums_under_way(const Product&, const void*) {}
#endif

}  // namespace emulator
