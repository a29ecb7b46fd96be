// What a generation cost, as one line for people and as JSON: run and chat. Rates come from
// engine/generate.h, the limit of the machine from engine/bench/bandwidth.h.
#pragma once
#include <string>

#include "engine/engine.h"
#include "engine/generate.h"
#include "main/json_output.h"

namespace chaski {

// Bytes per second that memory gives, for a comparison with what decoding read. 0 if it was not
// measured, or if the weights stay in a cache, so that it would say nothing. Measuring takes about
// half a second, so it is done only after an answer that took longer than that to decode, or if
// `asked` for (--verbose).
double bandwidth_beside(const Engine& engine, const GenerateResult& result, bool asked);

// In words: "the model ended it".
const char* why_it_ended(Finish finish);

// Threads that worked on it, for --verbose: "; 1.97 of 2 threads".
std::string threads_part(const Engine& engine);
std::string timing_line(const GenerateResult& result, double bandwidth, uint64_t seed);
JsonValue timing_json(const GenerateResult& result, double bandwidth, uint64_t seed);

}  // namespace chaski
