#include "tests/cuda_shim/fibers.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#if defined(CHASKI_ADDRESS_SANITIZER)
#include <sanitizer/asan_interface.h>
#endif
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

// On x86-64 a switch takes a dozen instructions: the callee-saved registers are pushed onto the old
// stack and popped from the new one.
#if defined(__x86_64__)
extern "C" void shim_switch(void** from, void* to);
asm(R"(
.text
.globl shim_switch
.type shim_switch, @function
shim_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size shim_switch, . - shim_switch
)");
#endif

namespace shim {

namespace {

constexpr int kMostThreads = 1024;
// reserves address space; memory is allocated when it is touched
constexpr size_t kStack = 256 * 1024, kGuardPage = 4096;

// The point at which a thread stopped. Other machines than x86-64 switch by ucontext, with two
// system calls.
#if defined(__x86_64__)
struct Context {
  void* stack = nullptr;
};
void prepare(Context& c, char* low, size_t bytes, void (*entry)()) {
  // 16-byte aligned, with a null return address above
  auto* top = reinterpret_cast<void**>(low + bytes) - 2;
  top[0] = reinterpret_cast<void*>(entry), top[1] = nullptr;
  for (int i = 1; i <= 6; ++i) top[-i] = nullptr;
  c.stack = top - 6;
}
void change(Context& from, Context& to) { shim_switch(&from.stack, to.stack); }
#else
struct Context {
  ucontext_t at;
};
void prepare(Context& c, char* low, size_t bytes, void (*entry)()) {
  getcontext(&c.at);
  c.at.uc_stack.ss_sp = low, c.at.uc_stack.ss_size = bytes, c.at.uc_link = nullptr;
  makecontext(&c.at, entry, 0);
}
void change(Context& from, Context& to) { swapcontext(&from.at, &to.at); }
#endif

struct Copy {
  void* to;
  const void* from;
};

enum class State { ready, at_barrier, in_warp, returned };

struct Fiber {
  Context context;
  char* stack = nullptr;
  State state = State::returned;
  uint3 index;
  const char* where = "";
  int barrier_id = 0, barrier_threads = 0;  // 0: all threads that have not returned
  unsigned mask = 0;
  void* mine = nullptr;
  std::vector<std::vector<Copy>> copies;  // committed groups, the last one still open
};

struct Block {
  std::vector<Fiber> fibers = std::vector<Fiber>(kMostThreads);
  int threads = 0;
  int running = -1;
  Context scheduler;
  const std::function<void()>* kernel = nullptr;
  char* shared = nullptr;
  std::string fault;
  int waiting[kMostThreads / 32] = {};  // lanes of each warp that wait for a warp operation
  int wakes = 0;                        // completed barriers and warp operations
  bool started = false;
  bool waited = false;  // a thread of the grid waited for the previous kernels
} block;

Fiber& self() { return block.fibers[size_t(block.running)]; }

void back_to_scheduler() { change(self().context, block.scheduler); }

void entry() {
  (*block.kernel)();
  self().state = State::returned;
  back_to_scheduler();
  std::abort();  // a thread that returned is not resumed
}

void make_stacks() {
  if (block.started) return;
  block.started = true;
  const size_t bytes = kMostThreads * (kStack + kGuardPage);
  auto* all = static_cast<char*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (all == MAP_FAILED) std::perror("cuda shim: stacks"), std::abort();
  for (int i = 0; i < kMostThreads; ++i) {
    mprotect(all + size_t(i) * (kStack + kGuardPage), kGuardPage, PROT_NONE);
    block.fibers[size_t(i)].stack = all + size_t(i) * (kStack + kGuardPage) + kGuardPage;
  }
}

void resume(int i) {
  Fiber& f = block.fibers[size_t(i)];
  block.running = i;
  threadIdx = f.index;
  change(block.scheduler, f.context);
  block.running = -1;
}

// Opens the barriers at which as many threads wait as the barrier needs.
void open_barriers() {
  int alive = 0;
  for (int i = 0; i < block.threads; ++i) alive += block.fibers[size_t(i)].state != State::returned;
  for (int i = 0; i < block.threads; ++i) {
    const Fiber& first = block.fibers[size_t(i)];
    if (first.state != State::at_barrier) continue;
    const int id = first.barrier_id, wanted = first.barrier_threads ? first.barrier_threads : alive;
    int here = 0;
    for (int k = 0; k < block.threads; ++k)
      here += block.fibers[size_t(k)].state == State::at_barrier &&
              block.fibers[size_t(k)].barrier_id == id;
    if (here != wanted) continue;
    for (int k = 0; k < block.threads; ++k)
      if (Fiber& f = block.fibers[size_t(k)]; f.state == State::at_barrier && f.barrier_id == id)
        f.state = State::ready;
    ++block.wakes;
  }
}

std::string stuck() {
  std::string text = "threads wait for one another for ever:";
  const char* last = nullptr;
  unsigned last_mask = 0;
  int listed = 0;
  for (int i = 0; i < block.threads && listed < 8; ++i) {
    const Fiber& f = block.fibers[size_t(i)];
    const char* where = f.state == State::returned ? "has returned" : f.where;
    if (where == last && f.mask == last_mask) continue;
    char line[128];
    if (f.state == State::in_warp)
      std::snprintf(line, sizeof line, " from thread %d on at %s (mask %08x);", i, where, f.mask);
    else
      std::snprintf(line, sizeof line, " from thread %d on %s%s;", i,
                    f.state == State::returned ? "" : "at ", where);
    text += line, last = where, last_mask = f.mask, ++listed;
  }
  text.back() = '.';
  return text;
}

void run_block() {
  std::fill(std::begin(block.waiting), std::end(block.waiting), 0);
  for (int i = 0; i < block.threads; ++i) {
    Fiber& f = block.fibers[size_t(i)];
    f.state = State::ready;
    f.copies.clear();
    prepare(f.context, f.stack, kStack, entry);
  }
  for (;;) {
    const int wakes = block.wakes;
    bool alive = false;
    for (int warp = 0; warp < block.threads; warp += 32)
      // continue a warp as long as its own operations complete
      for (int before = -1; before != block.wakes;) {
        before = block.wakes;
        for (int i = warp; i < warp + 32 && i < block.threads && block.fault.empty(); ++i)
          if (block.fibers[size_t(i)].state == State::ready) resume(i);
      }
    if (!block.fault.empty()) return;
    for (int i = 0; i < block.threads; ++i)
      alive |= block.fibers[size_t(i)].state != State::returned;
    if (!alive) return;
    open_barriers();
    if (wakes == block.wakes) {
      block.fault = stuck();
      return;
    }
  }
}

std::string last_fault_line;

}  // namespace

int lane() { return block.running % 32; }

void barrier(const char* name) {
  Fiber& f = self();
  f.state = State::at_barrier, f.where = name, f.barrier_id = 0, f.barrier_threads = 0, f.mask = 0;
  back_to_scheduler();
}

void named_barrier(int id, int threads) {
  Fiber& f = self();
  f.state = State::at_barrier, f.where = "a named barrier", f.barrier_id = id,
  f.barrier_threads = threads, f.mask = unsigned(id);
  back_to_scheduler();
}

void together(unsigned mask, void* mine, const char* name,
              void (*complete)(void* const* lanes, unsigned mask)) {
  Fiber& f = self();
  const int warp = block.running / 32 * 32;
  // Lanes past the end of the block do not exist, but a mask may name them.
  if (block.threads - warp < 32) mask &= (1u << (block.threads - warp)) - 1;
  if (!(mask >> lane() & 1)) stop("%s: lane %d is not in its own mask %08x", name, lane(), mask);
  f.state = State::in_warp, f.where = name, f.mask = mask, f.mine = mine;
  if (++block.waiting[warp / 32] < __builtin_popcount(mask)) return back_to_scheduler();
  void* lanes[32] = {};
  for (int l = 0; l < 32; ++l) {
    if (!(mask >> l & 1)) continue;
    const Fiber& other = block.fibers[size_t(warp + l)];
    const bool with_us = other.state == State::in_warp && other.mask == mask &&
                         (other.where == name || !std::strcmp(other.where, name));
    if (!with_us) return back_to_scheduler();
    lanes[l] = other.mine;
  }
  complete(lanes, mask);
  for (int l = 0; l < 32; ++l)
    if (mask >> l & 1) block.fibers[size_t(warp + l)].state = State::ready;
  block.waiting[warp / 32] -= __builtin_popcount(mask);
  ++block.wakes;
}

void waited() { block.waited = true; }

void* dynamic_shared() { return block.shared; }

void copy_later(void* shared, const void* global) {
  if ((reinterpret_cast<uintptr_t>(shared) | reinterpret_cast<uintptr_t>(global)) & 15)
    stop("cp.async: addresses are not 16-byte aligned");
  Fiber& f = self();
  if (f.copies.empty()) f.copies.emplace_back();
  f.copies.back().push_back({shared, global});
}
void commit_copies() {
  Fiber& f = self();
  if (f.copies.empty()) f.copies.emplace_back();
  f.copies.emplace_back();
}
void wait_copies(int left) {
  Fiber& f = self();
  // Calls memcpy through a pointer, so that AddressSanitizer checks the copy although this file is
  // built without it.
  static void* (*const volatile copy)(void*, const void*, size_t) = std::memcpy;
  while (int(f.copies.size()) - 1 > left) {
    for (const Copy& c : f.copies.front()) copy(c.to, c.from, 16);
    f.copies.erase(f.copies.begin());
  }
}

void stop(const char* format, ...) {
  char line[256];
  va_list args;
  va_start(args, format);
  std::vsnprintf(line, sizeof line, format, args);
  va_end(args);
  block.fault = line;
  self().state = State::returned;
  back_to_scheduler();
  std::abort();
}

bool run_grid(dim3 grid, dim3 size, size_t shared_bytes, bool dependent,
              const std::function<void()>& kernel) {
  make_stacks();
  block.threads = int(size.x * size.y * size.z);
  block.kernel = &kernel;
  block.fault.clear();
  block.waited = false;
  gridDim = grid, blockDim = size;
  // Allocate exactly the requested size, so that any access beyond it is found.
  void* shared = nullptr;
  if (posix_memalign(&shared, 128, shared_bytes + 1)) std::abort();
  block.shared = static_cast<char*>(shared);
  for (int i = 0; i < block.threads; ++i)
    block.fibers[size_t(i)].index = {unsigned(i) % size.x, unsigned(i) / size.x % size.y,
                                     unsigned(i) / (size.x * size.y)};
  for (unsigned z = 0; z < grid.z && block.fault.empty(); ++z)
    for (unsigned y = 0; y < grid.y && block.fault.empty(); ++y)
      for (unsigned x = 0; x < grid.x && block.fault.empty(); ++x) {
        blockIdx = {x, y, z};
        // floats that are read before they are written are NaN
        std::memset(block.shared, 0xFF, shared_bytes);
        run_block();
      }
  std::free(shared);
  if (dependent && !block.waited && block.fault.empty())
    block.fault = "the kernel never waits for the kernels before it.";
  if (block.fault.empty()) return true;
  last_fault_line = "block (" + std::to_string(blockIdx.x) + ", " + std::to_string(blockIdx.y) +
                    ", " + std::to_string(blockIdx.z) + "): " + block.fault;
  std::fprintf(stderr, "cuda shim: %s\n", last_fault_line.c_str());
#if defined(CHASKI_ADDRESS_SANITIZER)
  for (int i = 0; i < block.threads; ++i)
    __asan_unpoison_memory_region(block.fibers[size_t(i)].stack, kStack);
#endif
  return false;
}

const char* last_fault() { return last_fault_line.c_str(); }

}  // namespace shim
