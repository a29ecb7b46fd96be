// What chaski bench prints: one table for people, one row per case for programs (JSON and CSV hold
// the same fields).
#pragma once
#include <string>

#include "engine/measure/bench.h"
#include "main/terminal/states_output.h"

namespace chaski {

// What all cases of a run share.
struct BenchRun {
  std::string model, isa, device, load;
  int threads = 0, repetitions = 0;
  double threads_used = 0;
  double weight_bytes = 0;
  std::vector<KvStates> states;  // of each format of keys and values
};

void put_bench_table(const BenchRun& run, const BenchResult& result);
void put_bench_json(const BenchRun& run, const BenchResult& result);
void put_bench_csv(const BenchRun& run, const BenchResult& result);

}  // namespace chaski
