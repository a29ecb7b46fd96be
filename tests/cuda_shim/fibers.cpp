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

#include "tests/cuda_shim/modes.h"

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

enum class State { ready, at_barrier, in_warp, at_wait, returned };

struct Fiber {
  Context context;
  char* stack = nullptr;
  State state = State::returned;
  uint3 index;
  const char* where = "";
  int barrier_id = 0, barrier_threads = 0;  // 0: all threads that have not returned
  unsigned mask = 0;
  void* mine = nullptr;
  bool waited = false;         // for the previous kernels
  std::vector<Copy> copies;    // that did not happen yet
  std::vector<size_t> groups;  // the end in `copies` of each committed group
};

// The numbers first..first + n - 1, in random order if threads run in random order.
struct Turns {
  int order[32], n, next = 0, first;
  explicit Turns(int n, int first = 0) : n(n), first(first) {
    for (int i = 0; i < n; ++i) order[i] = i;
    if (!modes().shuffled) return;
    for (int i = n - 1; i > 0; --i) std::swap(order[i], order[modes().random(uint32_t(i) + 1)]);
  }
};

// A block that runs, with stacks for its threads. Several may run in turns.
struct Block {
  std::vector<Fiber> fibers = std::vector<Fiber>(kMostThreads);
  const Grid* grid = nullptr;
  uint3 index;
  int threads = 0;
  int running = -1;
  bool held = false;  // threads stop at wait_for_previous()
  Context scheduler;
  char* shared = nullptr;
  std::vector<char> statics;  // static shared memory while another block runs
  std::string fault;
  int waiting[kMostThreads / 32] = {};  // lanes of each warp that wait for a warp operation
  Turns turns{0};                       // of the warp that runs: its threads, each once
  int wakes = 0;                        // completed barriers and warp operations
};
Block* now = nullptr;     // the block whose thread runs
Block* loaded = nullptr;  // the block whose static shared memory is in place

Fiber& self() { return now->fibers[size_t(now->running)]; }

// The next thread of the warp that can go on, or -1.
int next_thread(Block& block) {
  Turns& t = block.turns;
  while (t.next < t.n && block.fault.empty())
    if (const int i = t.first + t.order[t.next++]; block.fibers[size_t(i)].state == State::ready)
      return i;
  return -1;
}
void run_thread(Block& block, Context& from, int i) {
  block.running = i;
  threadIdx = block.fibers[size_t(i)].index;
  change(from, block.fibers[size_t(i)].context);
}

// Stops the running thread. The next one of its warp runs; after the last one, the scheduler.
void leave() {
  Fiber& f = self();
  if (const int i = next_thread(*now); i >= 0) return run_thread(*now, f.context, i);
  now->running = -1;
  change(f.context, now->scheduler);
}

void entry() {
  now->grid->kernel();
  Fiber& f = self();
  f.state = State::returned;
  if (now->grid->dependent && !f.waited && now->fault.empty())
    now->fault =
        "thread " + std::to_string(now->running) + " never waits for the kernels before it.";
  leave();
  std::abort();  // a thread that returned is not resumed
}

// Static shared memory (__shared__ of cuda_runtime.h) is a section of its own. AddressSanitizer
// guards its variables, so it is moved by instructions, not by memcpy.
extern "C" char __start_shim_shared[], __stop_shim_shared[];
size_t statics_size() { return size_t(__stop_shim_shared - __start_shim_shared); }
#if defined(__x86_64__)
void move_bytes(char* to, const char* from, size_t n) {
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n)::"memory");
}
void fill_bytes(char* to, char value, size_t n) {
  asm volatile("rep stosb" : "+D"(to), "+c"(n) : "a"(value) : "memory");
}
#else
void move_bytes(char* to, const char* from, size_t n) {
  for (size_t i = 0; i < n; ++i) const_cast<volatile char*>(to)[i] = from[i];
}
void fill_bytes(char* to, char value, size_t n) {
  for (size_t i = 0; i < n; ++i) const_cast<volatile char*>(to)[i] = value;
}
#endif

std::vector<std::unique_ptr<Block>>& idle_blocks() {
  static std::vector<std::unique_ptr<Block>> all;
  return all;
}
std::unique_ptr<Block> take_block() {
  if (!idle_blocks().empty()) {
    auto block = std::move(idle_blocks().back());
    idle_blocks().pop_back();
    return block;
  }
  auto block = std::make_unique<Block>();
  const size_t bytes = kMostThreads * (kStack + kGuardPage);
  auto* all = static_cast<char*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (all == MAP_FAILED) std::perror("cuda shim: stacks"), std::abort();
  for (int i = 0; i < kMostThreads; ++i) {
    mprotect(all + size_t(i) * (kStack + kGuardPage), kGuardPage, PROT_NONE);
    block->fibers[size_t(i)].stack = all + size_t(i) * (kStack + kGuardPage) + kGuardPage;
  }
  return block;
}

// Makes a block the one that runs. `fresh`: its static shared memory is poisoned.
void enter(Block& block, bool fresh) {
  now = &block;
  gridDim = block.grid->blocks, blockDim = block.grid->threads, blockIdx = block.index;
  if (loaded != &block) {
    if (loaded) {
      loaded->statics.resize(statics_size());
      move_bytes(loaded->statics.data(), __start_shim_shared, statics_size());
    }
    loaded = &block;
    if (!fresh) move_bytes(__start_shim_shared, block.statics.data(), statics_size());
  }
  if (fresh) fill_bytes(__start_shim_shared, char(0xFF), statics_size());
}

// Opens the barriers at which as many threads wait as the barrier needs.
void open_barriers(Block& block) {
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

std::string stuck(const Block& block) {
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

void begin(Block& block, const Grid& grid, uint3 index, bool held) {
  block.grid = &grid, block.index = index, block.held = held;
  block.threads = int(grid.threads.x * grid.threads.y * grid.threads.z);
  block.fault.clear();
  std::fill(std::begin(block.waiting), std::end(block.waiting), 0);
  // Allocate exactly the requested size, so that any access beyond it is found.
  void* shared = nullptr;
  if (posix_memalign(&shared, 128, std::max<size_t>(grid.shared, 1))) std::abort();
  block.shared = static_cast<char*>(shared);
  std::memset(block.shared, 0xFF, grid.shared);  // floats that are read too early are NaN
  const dim3 size = grid.threads;
  for (int i = 0; i < block.threads; ++i) {
    Fiber& f = block.fibers[size_t(i)];
    f.index = {unsigned(i) % size.x, unsigned(i) / size.x % size.y,
               unsigned(i) / (size.x * size.y)};
    f.state = State::ready;
    f.waited = false;
    f.copies.clear(), f.groups.clear();
    // Not all at the same place of a page, where a warp's 32 stacks map to few sets of the L1
    // cache.
    prepare(f.context, f.stack, kStack - size_t(i % 32) * 320, entry);
  }
  enter(block, true);
}
void end(std::unique_ptr<Block> block) {
  std::free(block->shared);
  block->shared = nullptr;
  if (loaded == block.get()) loaded = nullptr;
  idle_blocks().push_back(std::move(block));
}

// Continues every thread that can go on, once. Returns false if the block has ended: its threads
// have returned, there is a fault, or all of them are held.
bool step(Block& block) {
  const int wakes = block.wakes;
  const int warps = (block.threads + 31) / 32;
  const Turns warp_turns(warps);
  for (int w = 0; w < warps; ++w) {
    const int warp = 32 * warp_turns.order[w];
    // continue a warp as long as its own operations complete
    for (int before = -1; before != block.wakes;) {
      before = block.wakes;
      block.turns = Turns(std::min(32, block.threads - warp), warp);
      if (const int i = next_thread(block); i >= 0) run_thread(block, block.scheduler, i);
    }
  }
  if (!block.fault.empty()) return false;
  int alive = 0, held = 0;
  for (int i = 0; i < block.threads; ++i) {
    const State s = block.fibers[size_t(i)].state;
    alive += s != State::returned, held += s == State::at_wait;
  }
  if (alive == held) return false;
  open_barriers(block);
  if (wakes != block.wakes) return true;
  if (held == 0) block.fault = stuck(block);  // else it waits for threads that are held
  return false;
}

std::string last_fault_line;

}  // namespace

int lane() { return now->running % 32; }

void barrier(const char* name) {
  Fiber& f = self();
  f.state = State::at_barrier, f.where = name, f.barrier_id = 0, f.barrier_threads = 0, f.mask = 0;
  leave();
}

void named_barrier(int id, int threads) {
  Fiber& f = self();
  f.state = State::at_barrier, f.where = "a named barrier", f.barrier_id = id,
  f.barrier_threads = threads, f.mask = unsigned(id);
  leave();
}

void together(unsigned mask, void* mine, const char* name,
              void (*complete)(void* const* lanes, unsigned mask)) {
  Fiber& f = self();
  const int warp = now->running / 32 * 32;
  // Lanes past the end of the block do not exist, but a mask may name them.
  if (now->threads - warp < 32) mask &= (1u << (now->threads - warp)) - 1;
  if (!(mask >> lane() & 1)) stop("%s: lane %d is not in its own mask %08x", name, lane(), mask);
  f.state = State::in_warp, f.where = name, f.mask = mask, f.mine = mine;
  if (++now->waiting[warp / 32] < __builtin_popcount(mask)) return leave();
  void* lanes[32] = {};
  for (int l = 0; l < 32; ++l) {
    if (!(mask >> l & 1)) continue;
    const Fiber& other = now->fibers[size_t(warp + l)];
    const bool with_us = other.state == State::in_warp && other.mask == mask &&
                         (other.where == name || !std::strcmp(other.where, name));
    if (!with_us) return leave();
    lanes[l] = other.mine;
  }
  complete(lanes, mask);
  for (int l = 0; l < 32; ++l)
    if (mask >> l & 1) now->fibers[size_t(warp + l)].state = State::ready;
  now->waiting[warp / 32] -= __builtin_popcount(mask);
  ++now->wakes;
}

void wait_for_previous() {
  Fiber& f = self();
  f.waited = true;
  if (!now->held) return;
  f.state = State::at_wait, f.where = "wait_for_previous";
  leave();
}

void* dynamic_shared() { return now->shared; }

// Calls memcpy through a pointer, so that AddressSanitizer checks the copy although this file is
// built without it.
static void copy_bytes(const Copy& c) {
  static void* (*const volatile copy)(void*, const void*, size_t) = std::memcpy;
  copy(c.to, c.from, 16);
}
void copy_later(void* shared, const void* global) {
  if ((reinterpret_cast<uintptr_t>(shared) | reinterpret_cast<uintptr_t>(global)) & 15)
    stop("cp.async: addresses are not 16-byte aligned");
  Modes& m = modes();
  if (m.copies == Copies::at_once || (m.copies == Copies::random && m.random(2) == 0))
    return copy_bytes({shared, global});
  self().copies.push_back({shared, global});
}
void commit_copies() { self().groups.push_back(self().copies.size()); }
void wait_copies(int left) {
  Fiber& f = self();
  const auto ended = int64_t(f.groups.size()) - left;
  if (ended <= 0) return;
  const size_t copies = f.groups[size_t(ended) - 1];
  for (size_t i = 0; i < copies; ++i) copy_bytes(f.copies[i]);
  f.copies.erase(f.copies.begin(), f.copies.begin() + int64_t(copies));
  f.groups.erase(f.groups.begin(), f.groups.begin() + ended);
  for (size_t& end : f.groups) end -= copies;
}

void stop(const char* format, ...) {
  char line[256];
  va_list args;
  va_start(args, format);
  std::vsnprintf(line, sizeof line, format, args);
  va_end(args);
  now->fault = line;
  self().state = State::returned;
  leave();
  std::abort();
}

struct Running::Impl {
  Grid grid;
  std::vector<uint32_t> order;  // of the blocks; empty: as they are numbered
  size_t next = 0, count;
  std::unique_ptr<Block> first;  // held at its waits
  std::string fault;
  uint3 fault_at;

  explicit Impl(const Grid& g) : grid(g), count(size_t(g.blocks.x) * g.blocks.y * g.blocks.z) {
    if (modes().shuffled) {
      for (size_t i = 0; i < count; ++i) order.push_back(uint32_t(i));
      for (size_t i = count; i > 1; --i)
        std::swap(order[i - 1], order[modes().random(uint32_t(i))]);
    }
    if (!grid.dependent) return;
    first = start(true);
    while (step(*first)) {
    }
  }
  std::unique_ptr<Block> start(bool held) {
    const unsigned i = unsigned(order.empty() ? next : order[next]);
    ++next;
    auto block = take_block();
    begin(
        *block, grid,
        {i % grid.blocks.x, i / grid.blocks.x % grid.blocks.y, i / (grid.blocks.x * grid.blocks.y)},
        held);
    return block;
  }
  void close(std::unique_ptr<Block> block) {
    if (fault.empty() && !block->fault.empty()) fault = block->fault, fault_at = block->index;
#if defined(CHASKI_ADDRESS_SANITIZER)
    if (!block->fault.empty())
      for (int i = 0; i < block->threads; ++i)
        __asan_unpoison_memory_region(block->fibers[size_t(i)].stack, kStack);
#endif
    end(std::move(block));
  }
  void run() {
    std::vector<std::unique_ptr<Block>> turns;  // blocks that run in turns
    if (first) {
      first->held = false;
      for (int i = 0; i < first->threads; ++i)
        if (Fiber& f = first->fibers[size_t(i)]; f.state == State::at_wait) f.state = State::ready;
      turns.push_back(std::move(first));
    }
    const size_t together = modes().shuffled ? 2 : 1;
    while (fault.empty() && (!turns.empty() || next < count)) {
      while (turns.size() < together && next < count) turns.push_back(start(false));
      for (size_t i = 0; i < turns.size();) {
        enter(*turns[i], false);
        if (turns[i]->fault.empty() && step(*turns[i])) {
          ++i;
          continue;
        }
        close(std::move(turns[i]));
        turns.erase(turns.begin() + long(i));
      }
    }
    for (auto& block : turns) close(std::move(block));
  }
};

Running::Running(const Grid& grid) : impl_(std::make_unique<Impl>(grid)) {}
Running::~Running() {
  if (impl_->first) impl_->close(std::move(impl_->first));
}

bool Running::finish() {
  impl_->run();
  if (impl_->fault.empty()) return true;
  const uint3 at = impl_->fault_at;
  last_fault_line = "block (" + std::to_string(at.x) + ", " + std::to_string(at.y) + ", " +
                    std::to_string(at.z) + "): " + impl_->fault;
  std::fprintf(stderr, "cuda shim: %s\n", last_fault_line.c_str());
  return false;
}

const char* last_fault() { return last_fault_line.c_str(); }

}  // namespace shim
