// What a generation cost, as one line for people and as JSON: run and chat. Rates come from
// engine/generate.h, the limit of the machine from engine/bench/bandwidth.h.
#pragma once
#include <string>

#include "engine/engine.h"
#include "engine/generate.h"
#include "main/json_output.h"

namespace chaski {

// The read bandwidth beside which decoding is judged, in bytes per second, 0 if it was not
// measured or says nothing: weights that stay in a cache. Measuring takes about half a second, so
// it is done only after an answer that took longer than that to decode, or when asked (--verbose).
double bandwidth_beside(const Engine& engine, const GenerateResult& result, bool asked);

// Threads that worked on it, for --verbose: "; 1.97 of 2 threads".
std::string threads_part(const Engine& engine);
std::string timing_line(const GenerateResult& result, double bandwidth, uint64_t seed);
JsonValue timing_json(const GenerateResult& result, double bandwidth, uint64_t seed);

}  // namespace chaski
