#include "turns.h"

#include <link.h>

#include <algorithm>

#include "checks.h"
#include "counts.h"
#include "share.h"

namespace emulator {

OwnMemory own_memory(const void* code) {
  struct Search {
    uintptr_t code;
    OwnMemory found;
  } search{reinterpret_cast<uintptr_t>(code), {}};
  auto look = [](dl_phdr_info* info, size_t, void* data) {
    auto& s = *static_cast<Search*>(data);
    bool here = false;
    size_t bytes = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
      const auto& part = info->dlpi_phdr[i];
      const uintptr_t start = info->dlpi_addr + part.p_vaddr;
      here |= part.p_type == PT_LOAD && s.code >= start && s.code < start + part.p_memsz;
      if (part.p_type == PT_TLS) bytes = part.p_memsz;
    }
    if (here && info->dlpi_tls_data) s.found = {static_cast<char*>(info->dlpi_tls_data), bytes};
    return int(here);
  };
  dl_iterate_phdr(look, &search);
  return search.found;
}

// All workers together have room for as many blocks as an H100 runs at once.
Turns::Turns(Worker& first, OwnMemory shared) : first_(first), shared_(shared) {
  const Share& share = the_share();
  most_ = 132 * std::clamp(2048 / first.total, 1u, 16u) / share.launch.workers + 1;
}

Turns::~Turns() {
  this_worker = &first_;
  for (Worker* w : further_) {
    count_launch_ended(*w);
    if (stack_overflowed(*w, nullptr)) note_overflow(first_.failure);
  }
}

// Another one for a block; nullptr: there is no memory for its stacks. It exists as long as the process.
Worker* Turns::spare() {
  if (idle_.empty()) {
    static thread_local std::vector<Worker*> made;
    const size_t number = suspended_.size() - 1;
    if (number >= made.size()) made.push_back(new Worker);
    if (!reserve_stacks(*made[number], false)) return nullptr;
    release_fibers(*made[number]);  // an earlier launch may have ended in the middle of its block
    const Launch& l = the_share().launch;
    count_launch_started(*made[number], *l.module, l.shared_bytes);
    idle_.push_back(made[number]);
    further_.push_back(made[number]);
  }
  Worker* w = idle_.back();
  idle_.pop_back();
  if (w == &first_) return w;
  w->first = &first_;
  w->run = first_.run;
  w->arguments = first_.arguments;
  w->total = first_.total;
  w->cluster = nullptr;
  w->rank = 0;
  w->abandoned = false;
  w->failure.kind = FailureKind::none;
  return w;
}

bool Turns::run(const uint3& block) {
  Worker* w = spare();
  if (!w) {
    first_.failure = {FailureKind::no_memory, {}, {}, 0, 0, "no memory for the stacks of a block"};
    return false;
  }
  this_worker = w;
  blockIdx = block;
  if (any_) check_block_chosen(*w, true);
  w->suspended = false;
  w->in_kernel = true;
  run_block(*w);
  return ended(*w, block);
}

bool Turns::ended(Worker& w, const uint3& block) {
  w.in_kernel = false;
  if (w.suspended) {
    suspended_.push_back({&w, block, {shared_.start, shared_.start + shared_.bytes}});
    any_ = true;
    check_block_suspended(w);
    return true;
  }
  check_block_ended(w);
  idle_.push_back(&w);
  if (w.failure.kind == FailureKind::none) return true;
  if (&w != &first_) first_.failure = w.failure;
  return false;
}

bool Turns::go_on() {
  for (size_t i = suspended_.size(); i > 0; i--) {
    const Suspended s = std::move(suspended_.front());
    suspended_.pop_front();
    memcpy(shared_.start, s.shared.data(), shared_.bytes);
    this_worker = s.worker;
    blockIdx = s.block;
    check_block_chosen(*s.worker, false);
    s.worker->in_kernel = true;
    resume_block(*s.worker);
    if (!ended(*s.worker, s.block)) return false;
  }
  return true;
}

}  // namespace emulator
