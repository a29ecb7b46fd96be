// The one loop that makes text: a prompt goes in, bytes come out. A drafter guesses k tokens ahead;
// one pass checks them all, and they are taken up to the first that is not what the model draws
// itself. The text is therefore the same, byte for byte, with a drafter and without (compare
// Leviathan et al. 2023, where it is the same only in distribution).
#pragma once
#include <atomic>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/drafter.h"
#include "engine/governor.h"
#include "engine/sampler.h"
#include "engine/session.h"

namespace chaski {

struct GenerateOptions {
  int max_tokens = -1;  // -1: until the model ends or the context is full
  SamplerOptions sampling;
  // generation ends before any of these; they are not part of the text
  std::vector<std::string> stop;
  bool ignore_end = false;  // go on after an end-of-text token
  Drafter* drafter = nullptr;
  int draft_length = 0;          // guesses at most
  Governor* governor = nullptr;  // chooses how many; null: always as many as that
  // set by a signal handler: stop after the current pass
  const std::atomic<bool>* interrupt = nullptr;
};

// model's end token, stop string, max_tokens, context, Ctrl-C
enum class Finish { end, stop, length, full, interrupted };
const char* name_of(Finish finish);  // "end", "stop", ...

struct GenerateResult {
  std::string text;
  std::vector<TokenId> tokens;  // drawn, without the end token
  Finish finish = Finish::length;
  int prompt_tokens = 0, cached_tokens = 0, passes = 0, drafted = 0, accepted = 0;
  std::vector<int> drafted_at, accepted_at;  // the same by place behind the last token
  double speed_up = 0;                       // by guesses, as their governor sees it; 0: unknown
  double prompt_seconds = 0, decode_seconds = 0, first_token_seconds = 0;
  uint64_t decode_bytes = 0;  // weights and KV read while decoding

  double prompt_rate() const {
    return prompt_seconds > 0 ? (prompt_tokens - cached_tokens) / prompt_seconds : 0;
  }
  // The first token belongs to the prompt's time.
  double decode_rate() const {
    return decode_seconds > 0 && tokens.size() > 1 ? double(tokens.size() - 1) / decode_seconds : 0;
  }
};

// Takes the text as it comes: whole UTF-8 characters only, and never an empty view.
using Sink = std::function<void(std::string_view text)>;

// Generates what comes after `prompt`. What the session holds of the prompt already is not
// evaluated again; what else it holds is forgotten. Throws what Session::extend throws.
GenerateResult generate(Session& session, std::span<const TokenId> prompt,
                        const GenerateOptions& options, const Sink& sink);

}  // namespace chaski
