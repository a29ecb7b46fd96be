// What a generation cost, as one line for people and as JSON: run and chat. Rates come from
// engine/requests/generate.h, the limit of the machine from engine/machine/bandwidth.h.
#pragma once
#include <string>

#include "engine/requests/generate.h"
#include "engine/session/engine.h"
#include "main/terminal/json_output.h"

namespace chaski {

// Bytes per second that memory gives, as bench measured them, for a comparison with what decoding
// read. 0 if they were never measured, or if the weights stay in a cache, so that it would say
// nothing.
double measured_bandwidth(const Engine& engine, const GenerateResult& result);

// The help of --json where a text comes of it.
constexpr const char* kJsonOfText =
    "JSON on standard output (docs/json.md); its \"finish\" is end, stop, length, full or "
    "interrupted";

// In words: "the model ended it".
const char* why_it_ended(Finish finish);

// Why nobody guessed whom --draft names; "": somebody did, or nobody is named.
const char* why_no_guesses(NoGuesses why);

// Threads that worked on it, for --verbose: "; 1.97 of 2 threads".
std::string threads_part(const Engine& engine);
// Of a text that was over before its prompt was read: what was read, and no rate.
std::string unread_line(const GenerateResult& result);
// `all`: also of guesses that gained nothing.
std::string timing_line(const GenerateResult& result, double bandwidth, uint64_t seed, bool all);
// A text, and the same about it: of run and chat.
JsonValue result_json(const Engine& engine, const GenerateResult& result, double bandwidth,
                      uint64_t seed);

}  // namespace chaski
