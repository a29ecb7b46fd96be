// The output of chaski bench: a table for people; JSON and CSV, with the same fields, for programs.
#pragma once
#include <string>

#include "engine/measure/bench.h"
#include "main/terminal/states_output.h"

namespace chaski {

// The common data of all cases of a run.
struct BenchRun {
  std::string model, isa, device, load;
  int threads = 0, repetitions = 0;
  double threads_used = 0;
  double weight_bytes = 0;
  std::vector<KvStates> states;  // one for each format of keys and values
};

void put_bench_table(const BenchRun& run, const BenchResult& result);
void put_bench_json(const BenchRun& run, const BenchResult& result);
void put_bench_csv(const BenchRun& run, const BenchResult& result);

}  // namespace chaski
