// A text in the making: what was asked for, how far it has come, and what of it has been shown. It
// says what it adds to the next forward pass and takes what was drawn there; whoever makes the pass
// (generate.h alone, scheduler.h together with others) has no part in the text. What a session
// lacks of the text is read before anything is drawn, so a request may go on in another session
// after any pass.
#pragma once
#include <atomic>
#include <chrono>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/drafting/drafter.h"
#include "engine/drafting/governor.h"
#include "engine/grammar/grammar.h"
#include "engine/requests/answer_text.h"
#include "engine/sampling/sampler.h"
#include "engine/session/pass.h"

namespace chaski {

// What happens when the context is full: the text ends; or the older half of what stands behind
// the first `keep` tokens, or behind the first four (the attention sinks of Xiao et al. 2023), is
// dropped and the rest is read again. Keys and values that only move would remember what was
// dropped; read again, the text goes on as a run whose prompt is what was kept, bit for bit.
enum class ContextPolicy { stop, shift, sinks };

struct GenerateOptions {
  int max_tokens = -1;  // -1: until the model ends or the context is full
  SamplerOptions sampling;
  // generation ends before any of these; they are not part of the text
  std::vector<std::string> stop;
  // The text is one of this grammar, and ends as soon as nothing may follow; null: any text.
  Grammar* grammar = nullptr;
  bool ignore_end = false;  // go on after an end-of-text token; not with a grammar
  std::vector<TokenId>
      spelled;  // control tokens that are part of the text, as the file spells them
  // GenerateResult::log_probabilities are wanted, with so many most probable tokens beside each
  std::optional<int> scored;
  ContextPolicy context_policy = ContextPolicy::stop;
  int keep = 0;  // tokens that a shift keeps, besides control tokens that begin the prompt
  // told whenever tokens were dropped: how many, and how many stand in front of them and behind
  std::function<void(int dropped, int before, int behind)> on_drop;
  // told how many tokens of the prompt are known, before each portion of it and when all are
  std::function<void(int known, int all)> on_read;
  // told once, why, when the drafter has to be left out from there on: its numbers are not finite
  std::function<void(const std::string& why)> on_drafter_lost;
  Drafter* drafter = nullptr;
  int draft_length = 0;          // guesses at most, the drafter's and the grammar's
  Governor* governor = nullptr;  // chooses how many; null: always as many, some on other branches
  // set by a signal handler: the text ends, and a pass of the CPU is abandoned where it is
  const std::atomic<bool>* interrupt = nullptr;
};

// model's end token, stop string, max_tokens, context, Ctrl-C
enum class Finish { end, stop, length, full, interrupted };
const char* name_of(Finish finish);  // "end", "stop", ...

// Why a drafter whose guesses take time made none: the text ended before the time of a pass was
// known, they would have taken longer than they gain, or it was still reading the text.
enum class NoGuesses { other, early, no_gain, reading };

struct GenerateResult {
  std::string text;
  std::vector<TokenId> tokens;  // drawn, without the end token
  Finish finish = Finish::length;
  bool cached = false;                       // it was given before (answer_cache.h)
  int prompt_tokens = 0, cached_tokens = 0;  // cached: of the prompt, read before
  int known_tokens = 0;                      // of the prompt, when it was over: cached or read
  int dropped_tokens = 0;                    // for room in the context
  int passes = 0, drafted = 0, accepted = 0;
  NoGuesses no_guesses = NoGuesses::other;
  std::vector<int> drafted_at, accepted_at;  // the same by place behind the last token
  double speed_up = 0;                       // by guesses, as their governor sees it; 0: unknown
  double prompt_seconds = 0, decode_seconds = 0, first_token_seconds = 0;
  // weights and KV read while decoding; of weights read for several requests at once, a part
  uint64_t decode_bytes = 0;
  // Of each of the tokens, and of all that was drawn, the end token too, if they were wanted; the
  // mean of nothing is the lowest.
  std::vector<LogProbabilities> log_probabilities;
  double mean_log_probability = -std::numeric_limits<double>::infinity();

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

// Of a prompt: how many control tokens begin it.
size_t leading_controls(const Tokenizer& t, std::span<const TokenId> prompt);

class Request {
 public:
  // Throws Error(prompt_too_long) with both numbers if the context does not hold the prompt and
  // nothing of it may be dropped. The engine and what the options point to outlive this.
  Request(Engine& engine, std::span<const TokenId> prompt, const GenerateOptions& options,
          Sink sink);

  // Whether there is more to do. An interrupt is noticed here, and ends it.
  bool goes_on();
  // What it adds to the next pass: the tokens that `session` lacks, `budget` of them at most and at
  // least one. With the last of them come guesses, as many as pay beside `others` more requests and
  // their `taken` guesses, and draws are wanted. Valid until the next call.
  Extension next(Session& session, int budget, int others = 0, int taken = 0);
  // What was drawn in a pass for so many requests, and the text of it to the sink; nothing of a
  // pass that was abandoned. Throws the draws' error, and what the sink throws. Returns why it is
  // over, if it is.
  std::optional<Finish> take(const Draws& draws, int requests = 1);

  // Whether something has been drawn: all of the prompt was read.
  bool begun() const { return begun_; }
  // prompt and text, without what was dropped
  const std::vector<TokenId>& history() const { return history_; }
  Governor* governor() const { return o_.governor; }
  // To be called once, when it is over.
  GenerateResult finished();
  // Ended by this, which concerns nobody else: a scheduler fills it in.
  std::optional<Error> error;

 private:
  using Clock = std::chrono::steady_clock;
  int room() const { return engine_.context_length() - (int(history_.size()) - 1); }
  int kept() const;  // tokens that are never dropped
  bool drop_half();
  void fit_prompt();
  // Who guesses with numbers that are not finite is asked no more.
  template <class Fn>
  void without_losing_the_text(Fn drafter_does);
  Draft guesses(const Session& session, int pending, int most, int others, int taken);
  std::optional<Finish> take(TokenId token);
  void learn(const Draws& draws);
  void count(size_t taken);
  void show(const std::string& text);

  Engine& engine_;
  const GenerateOptions o_;
  Sink sink_;
  Drafter* drafter_;
  const size_t leading_controls_;  // of the prompt
  std::optional<GrammarText> grammar_;
  Sampler sampler_;
  AnswerText text_;
  std::vector<TokenId> history_;
  std::vector<TokenId> extension_;  // what next() said
  size_t told_ = 0;                 // tokens of the text up to its last
  Draft draft_;                     // and what may come behind it
  bool foretold_ = false;           // by the grammar
  // Guesses at the next token, also those that no pass checks, to learn from.
  std::vector<TokenId> first_;
  int kind_ = -1;
  double drafting_ = 0;     // seconds of the guesses
  bool preparing_ = false;  // the drafter reads before it guesses
  bool asked_ = false;      // for a guess, at some time
  bool read_ = false;       // it had read all when it was asked last
  bool begun_ = false, reached_ = false;
  int scored_ = 0;
  double log_probability_ = 0;
  std::optional<Finish> finish_;
  std::optional<Clock::time_point> started_;
  Clock::time_point decoding_;
  GenerateResult result_;
};

}  // namespace chaski
