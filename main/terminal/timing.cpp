#include "main/terminal/timing.h"

#include "engine/shelf/shelf.h"
#include "main/terminal/output.h"

namespace chaski {

namespace {

double read_rate(const GenerateResult& result) {
  return result.decode_seconds > 0 ? double(result.decode_bytes) / result.decode_seconds : 0;
}

// Weights of at most this size stay in a CPU cache, so memory does not limit decoding.
constexpr uint64_t kMostCached = uint64_t{16} << 20;

constexpr double kWorthSaying = 1.1;  // speed-up from drafting that is reported

// Three digits, never an exponent.
std::string rate_text(double rate) {
  return fmt::format("{:.{}f} tok/s", rate, rate < 10 ? 2 : rate < 100 ? 1 : 0);
}
std::string duration_text(double seconds) {
  return seconds < 1 ? fmt::format("{:.3g} ms", 1e3 * seconds) : fmt::format("{:.1f} s", seconds);
}

}  // namespace

double measured_bandwidth(const Engine& engine, const GenerateResult& result) {
  if (result.decode_rate() == 0 || engine.weight_bytes() <= kMostCached) return 0;
  const double bandwidth = engine.memory_bandwidth();
  return read_rate(result) <= bandwidth ? bandwidth : 0;
}

const char* why_it_ended(Finish finish) {
  constexpr const char* kWords[] = {"the model ended it", "ended before a --stop text",
                                    "ended by -n", "ended because the context is full",
                                    "interrupted"};
  return kWords[int(finish)];
}

const char* why_no_draft(NoDraft why) {
  constexpr const char* kWords[] = {"", "the text ended before their gain was known",
                                    "they would cost more time than they gain"};
  return kWords[int(why)];
}

std::string threads_part(const Engine& engine) {
  if (engine.threads_used() == 0) return "";
  return fmt::format("; {:.3g} of {}", engine.threads_used(),
                     counted(uint64_t(engine.threads()), "thread"));
}

std::string experts_part(const Engine& engine) {
  if (const uint64_t streamed = engine.streamed_bytes())
    return fmt::format("; {} of weights were read from the file for every pass",
                       size_text(streamed));
  const auto facts = engine.expert_facts();
  if (!facts || facts->wanted == 0) return "";
  return fmt::format(
      "; {:.0f}% of the chosen experts were in {} of memory, {:.1f} MB a token were read from the "
      "file",
      100 * double(facts->found) / double(facts->wanted), size_text(facts->bytes),
      double(facts->read) / double(facts->tokens) / 1e6);
}

std::string unread_line(const GenerateResult& result) {
  return fmt::format("{} of the prompt's {} known; {}", result.known_tokens,
                     counted(uint64_t(result.prompt_tokens), "token"), why_it_ended(result.finish));
}

std::string timing_line(const GenerateResult& result, double bandwidth, uint64_t seed, bool all) {
  if (result.known_tokens < result.prompt_tokens)
    return fmt::format("{}; seed {}", unread_line(result), seed);
  if (result.cached)
    return fmt::format("prompt {}; answer {}, from --answer-cache; {}; seed {}",
                       counted(result.prompt_tokens, "token"),
                       counted(result.tokens.size(), "token"), why_it_ended(result.finish), seed);
  std::string line = fmt::format("prompt {}, {}", counted(result.prompt_tokens, "token"),
                                 rate_text(result.prompt_rate()));
  if (result.cached_tokens > 0) line += fmt::format(" ({} cached)", result.cached_tokens);
  line += fmt::format("; answer {}", counted(result.tokens.size(), "token"));
  if (result.decode_rate() > 0) line += ", " + rate_text(result.decode_rate());
  if (!result.tokens.empty())
    line += "; first token after " + duration_text(result.first_token_seconds);
  if (bandwidth > 0)
    line += fmt::format("; {:.0f}% of the memory bandwidth of {:.1f} GB/s",
                        100 * read_rate(result) / bandwidth, bandwidth / 1e9);
  if (result.drafted > 0 && (all || result.speed_up >= kWorthSaying)) {
    line += fmt::format("; {} of {} draft tokens accepted", result.accepted, result.drafted);
    if (result.speed_up > 0)
      line += fmt::format(", {:.2f} × the speed without drafting", result.speed_up);
  }
  if (all && result.no_draft != NoDraft::other)
    line += fmt::format("; no draft tokens: {}", why_no_draft(result.no_draft));
  return line + fmt::format("; {}; seed {}", why_it_ended(result.finish), seed);
}

JsonValue result_json(const Engine& engine, const GenerateResult& result, double bandwidth,
                      uint64_t seed) {
  JsonValue json = {
      {"model", engine.path()},
      {"threads", engine.threads()},
      {"threads_used", engine.threads_used()},
      {"isa", engine.isa()},
      {"device", engine.device()},
      {"text", result.text},
      {"answer_ids", result.tokens},
      {"finish", name_of(result.finish)},
      {"complete", result.complete},
      {"cached", result.cached},
      {"prompt_tokens", result.prompt_tokens},
      {"cached_tokens", result.cached_tokens},
      {"answer_tokens", result.tokens.size()},
      {"prompt_tokens_per_second", result.prompt_rate()},
      {"decode_tokens_per_second", result.decode_rate()},
      {"first_token_seconds", result.first_token_seconds},
      {"prompt_seconds", result.prompt_seconds},
      {"decode_seconds", result.decode_seconds},
      {"decode_bytes", result.decode_bytes},
      {"read_gigabytes_per_second", read_rate(result) / 1e9},
      {"drafted_tokens", result.drafted},
      {"accepted_tokens", result.accepted},
      {"drafted_by_place", result.drafted_at},
      {"accepted_by_place", result.accepted_at},
      {"speed_up", result.speed_up},
      {"passes", result.passes},
      {"why", why_it_ended(result.finish)},
      {"dropped_tokens", result.dropped_tokens},
      {"seed", seed},
  };
  if (result.no_draft != NoDraft::other) json["no_guesses"] = why_no_draft(result.no_draft);
  if (bandwidth > 0) {
    json["measured_read_gigabytes_per_second"] = bandwidth / 1e9;
    json["share_of_read_bandwidth"] = read_rate(result) / bandwidth;
  }
  return json;
}

JsonValue begun_json(const Engine& engine, const GenerateResult& so_far, uint64_t seed) {
  JsonValue json = result_json(engine, so_far, 0, seed);
  json["finish"] = "error", json["why"] = "an error ended it";
  json["complete"] = false;
  return json;
}

}  // namespace chaski
