// Threads that compute a pass together (ggml-like-tensor/crew.h), and their number (thread_count.h,
// cores.h).
#include "ggml-like-tensor/crew.h"

#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>

#include "ggml-like-tensor/cores.h"
#include "tests/kit/support.h"

using namespace chaski;

namespace {

// Steps with these numbers of chunks. A chunk may run only during its step, and only once.
struct CountedSteps : Steps {
  std::vector<int64_t> sizes;
  std::vector<std::vector<std::atomic<int>>> done;
  std::vector<int64_t> took;
  std::atomic<int> now{-1}, faults{0};
  int64_t opened = 0;
  std::function<void(int, int64_t, int)> work = [](int, int64_t, int) {};
  bool from_file = false;

  explicit CountedSteps(std::vector<int64_t> s) : sizes(std::move(s)), took(sizes.size(), -1) {
    for (const int64_t n : sizes) done.emplace_back(size_t(n));
  }
  int64_t chunks(int step) override {
    if (step != opened++) ++faults;
    now = step;
    return sizes[size_t(step)];
  }
  void run(int step, int64_t chunk, int thread) override {
    if (now != step || chunk < 0 || chunk >= sizes[size_t(step)]) ++faults;
    work(step, chunk, thread);
    ++done[size_t(step)][size_t(chunk)];
    if (now != step) ++faults;
  }
  void over(int step, int64_t nanoseconds) override {
    for (auto& n : done[size_t(step)])
      if (n != 1) ++faults;
    took[size_t(step)] = nanoseconds;
  }
  bool reads_file(int) const override { return from_file; }
  bool complete() const {
    return faults == 0 && opened == int64_t(sizes.size()) &&
           std::all_of(took.begin(), took.end(), [](int64_t t) { return t >= 0; });
  }
};

std::vector<int64_t> odd_sizes(int steps) {
  std::vector<int64_t> sizes;
  for (int i = 0; i < steps; ++i) sizes.push_back(i * 7 % 13 == 0 ? 0 : i * 5 % 17 + 1);
  return sizes;
}

constexpr int64_t kMilli = 1'000'000;

// A machine that gives every thread a core. If it is busy, it gives n threads n - 1 cores, so that
// one of them is late by a slice of 3 ms in every 6 ms.
struct Machine {
  ThreadCount& count;
  int64_t at = 0;
  // Runs steps with 0.1 ms of work for one thread, for this time.
  void work(int64_t nanoseconds, bool busy) {
    for (const int64_t end = at + nanoseconds; at < end;) {
      const int64_t alone = kMilli / 10;
      int64_t took = alone / count.now();
      const int64_t slice = 6 * kMilli, phase = at % slice;
      if (busy && count.now() > 1 && phase >= slice / 2) took += slice - phase;
      at += took;
      count.step(at, took, alone, alone / 20);
    }
  }
};

}  // namespace

TEST_CASE("crew: every chunk of every step runs once, in order, with any number of threads") {
  for (const int threads : {1, 2, 3, 8}) {
    CAPTURE(threads);
    Crew crew(threads, true);
    ThreadCount count(threads, true);
    for (int pass = 0; pass < 50; ++pass) {
      CountedSteps work(odd_sizes(40));
      count.begin(threads);
      crew.run(work, 40, count);
      REQUIRE(work.complete());
    }
    CHECK((count.average() >= 1 && count.average() <= threads));
  }
}

TEST_CASE("crew: a pass without steps, and steps without chunks") {
  Crew crew(3, true);
  ThreadCount count(3, true);
  CountedSteps none({}), zeros({0, 0, 0});
  crew.run(none, 0, count);
  crew.run(zeros, 3, count);
  CHECK(zeros.complete());
}

// A sleeping thread delays the step of its chunk and no earlier step. No thread waits for threads
// without a chunk.
TEST_CASE("crew: a pass does not wait for a thread that never comes") {
  Crew crew(2, true);
  ThreadCount count(2, true);
  std::atomic<bool> release{false};
  std::atomic<int> taken{0};
  CountedSteps first({64});
  // Thread 1, if it wakes at all, takes one chunk and keeps it until thread 0 has done the others.
  first.work = [&](int, int64_t, int thread) {
    ++taken;
    if (thread == 1)
      while (!release && taken < 64) std::this_thread::yield();
  };
  crew.run(first, 1, count);
  release = true;
  CHECK(first.complete());
}

// Thread 0 keeps its first chunk until thread 1 has done all others.
TEST_CASE("crew: a thread takes its own half of a step in order, then the other one") {
  Crew crew(2, true);
  for (const bool reads_file : {false, true}) {
    CAPTURE(reads_file);
    ThreadCount count(2, true);
    std::vector<int64_t> mine[2];
    std::atomic<int> began{0}, done{0};
    CountedSteps work({8});
    work.from_file = reads_file;
    work.work = [&](int, int64_t chunk, int thread) {
      mine[thread].push_back(chunk);
      began |= 1 << thread;
      while (began != 3 || (thread == 0 && done < 7)) std::this_thread::yield();
      ++done;
    };
    crew.run(work, 1, count);
    CHECK(work.complete());
    CHECK(mine[0].size() == 1);
    if (reads_file)
      CHECK(std::is_sorted(mine[1].begin(), mine[1].end()));
    else
      CHECK((mine[0] == std::vector<int64_t>{0} &&
             mine[1] == std::vector<int64_t>{4, 5, 6, 7, 1, 2, 3}));
  }
}

TEST_CASE("crew: work that pays for one thread only is done by the caller") {
  Crew crew(4);
  ThreadCount count(4);
  count.begin(1);
  CountedSteps work({9, 9});
  std::atomic<int> others{0};
  work.work = [&](int, int64_t, int thread) { others += thread != 0; };
  crew.run(work, 2, count);
  CHECK(work.complete());
  CHECK(others == 0);
  CHECK(count.average() == 1);
}

TEST_CASE(
    "crew: one crew serves callers on several threads, whatever number of threads each wants") {
  const std::shared_ptr<Crew> large = Crew::shared(3, true);
  CHECK(Crew::shared(2) == large);
  CHECK(Crew::shared(large->size() + 1) != large);
  std::vector<std::thread> callers;
  std::atomic<int> complete{0};
  for (int caller = 1; caller <= 3; ++caller)
    callers.emplace_back([&, caller] {
      ThreadCount count(caller, true);
      for (int pass = 0; pass < 50; ++pass) {
        CountedSteps work(odd_sizes(20));
        count.begin(caller);
        large->run(work, 20, count);
        complete += work.complete();
      }
    });
  for (std::thread& caller : callers) caller.join();
  CHECK(complete == 150);
}

TEST_CASE("thread count: all threads on a quiet machine") {
  ThreadCount count(4);
  Machine machine{count};
  machine.work(1000 * kMilli, false);
  CHECK(count.now() == 4);
  CHECK(count.average() == 4);
}

TEST_CASE("thread count: one fewer at once if a core is shared, and back when it is not") {
  for (const int most : {2, 4}) {
    CAPTURE(most);
    ThreadCount count(most);
    Machine machine{count};
    machine.work(200 * kMilli, false);
    machine.work(20 * kMilli, true);
    CHECK(count.now() < most);
    machine.work(2000 * kMilli, true);
    ThreadCount seen = count;  // only the time from here on
    const double before = count.average();
    machine.work(2000 * kMilli, true);
    CHECK(count.average() < before);
    machine.work(500 * kMilli, false);
    CHECK(count.now() == most);
    CHECK(seen.most() == most);
  }
}

TEST_CASE("thread count: an occasional late thread costs almost nothing") {
  ThreadCount count(2);
  Machine machine{count};
  for (int i = 0; i < 20; ++i) {
    machine.work(100 * kMilli, false);
    machine.work(4 * kMilli, true);
  }
  CHECK(count.average() > 1.9);
}

TEST_CASE("thread count: fixed does not change, and worth is a bound") {
  ThreadCount fixed(3, true), bounded(3);
  Machine machine{fixed};
  fixed.begin(1);
  machine.work(100 * kMilli, true);
  CHECK(fixed.now() == 3);
  bounded.begin(1);
  CHECK(bounded.now() == 1);
  bounded.begin(1000);
  CHECK(bounded.now() == 3);
}

TEST_CASE("cores: hyperthreads of one core count once, CPUs without a list count each") {
  const std::vector<int> all = {0, 1, 2, 3};
  const auto pairs = [](int cpu) { return std::string(cpu % 2 ? "1,3" : "0,2"); };
  const auto unknown = [](int) { return std::string(); };
  CHECK(count_cores(all, pairs) == 2);
  CHECK(count_cores({0, 2}, pairs) == 1);
  CHECK(count_cores({0, 1}, pairs) == 2);
  CHECK(count_cores(all, unknown) == 4);
  CHECK(physical_cores() >= 1);
  CHECK(physical_cores() <= usable_cores());
}
