// Timing of a generation as one line and as JSON, for run and chat. The rates come from
// engine/requests/generate.h, the limit of the machine from engine/machine/bandwidth.h.
#pragma once
#include <string>

#include "engine/requests/generate.h"
#include "engine/session/engine.h"
#include "main/terminal/json_output.h"

namespace chaski {

// The memory bandwidth in bytes per second as bench measured it, to compare with the bytes that
// decoding read. 0 if it was not measured, or if the weights fit into a CPU cache.
double measured_bandwidth(const Engine& engine, const GenerateResult& result);

// The help of --json for commands that generate text.
constexpr const char* kJsonOfText =
    "JSON on standard output (docs/json.md); its \"finish\" is end, stop, length, full, "
    "interrupted or error";

// In words: "the model ended it".
const char* why_it_ended(Finish finish);

// Why the drafter proposed nothing, in words; "" for NoDraft::other.
const char* why_no_draft(NoDraft why);

// The threads used on average, for --verbose: "; 1.97 of 2 threads".
std::string threads_part(const Engine& engine);
// For --verbose, of a model whose experts are not all in memory: "; 81% of the chosen experts were
// in 1.2 GB of memory, 14.5 MB a token were read from the file". The same for streamed weights.
// Else "".
std::string experts_part(const Engine& engine);
// For a text that ended before its prompt was read: how much was read.
std::string unread_line(const GenerateResult& result);
// `all`: report draft tokens even if they gained nothing.
std::string timing_line(const GenerateResult& result, double bandwidth, uint64_t seed, bool all);
// The text and its timing.
JsonValue result_json(const Engine& engine, const GenerateResult& result, double bandwidth,
                      uint64_t seed);
// The same for a text that an error ended. `so_far` has the text, its tokens and how many tokens
// the prompt has.
JsonValue begun_json(const Engine& engine, const GenerateResult& so_far, uint64_t seed);

}  // namespace chaski
