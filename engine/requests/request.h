// One generation: its prompt, its options and the text so far. A request says what it adds to the
// next forward pass, and takes the tokens drawn there. The passes are made by generate.h for one
// request, or by scheduler.h for many. A request can continue in another session after any pass:
// tokens that the session does not have are read before the next draw. Not thread-safe; only the
// interrupt flag may be set from another thread or a signal handler.
#pragma once
#include <atomic>
#include <chrono>
#include <functional>
#include <limits>
#include <memory>
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

// What happens when the context is full.
//   stop   the text ends
//   shift  the first `keep` tokens stay; the older half of the others is dropped
//   sinks  the same with the first four tokens (attention sinks: Xiao et al. 2023)
// The kept tokens are read again, because moved keys and values would still depend on the dropped
// ones. So the text continues bit for bit as in a run whose prompt is the kept tokens.
enum class ContextPolicy { stop, shift, sinks };

// What decides the text of a request together with its prompt and grammar. Values only: the answer
// cache hashes all of them.
struct RequestSettings {
  int max_tokens = -1;  // -1: until the model ends or the context is full
  SamplerOptions sampling;
  // Generation ends before any of these strings. They are not part of the text.
  std::vector<std::string> stop;
  bool ignore_end = false;  // continue after an end-of-text token; not with a grammar
  // Control tokens that are shown in the text. Others are left out.
  std::vector<TokenId> spelled;
  // Stop strings match nothing from one of these tokens to the next one that resumes.
  std::vector<TokenId> pauses_stop;
  TokenId resumes_stop = -1;
  // Asks for GenerateResult::log_probabilities, with this number of most probable tokens each.
  std::optional<int> scored;
  ContextPolicy context_policy = ContextPolicy::stop;
  int keep = 0;  // tokens that a shift keeps; control tokens at the start of the prompt stay too
};

// The objects that a request works with. They must outlive it. Apart from the grammar, they do not
// change the text.
struct RequestWiring {
  // The text fits this grammar, and ends as soon as nothing can follow. null: any text.
  Grammar* grammar = nullptr;
  // The same for a caller without a compiled grammar. Ignored if `grammar` is set. A Request
  // compiles them; LoadedModel::grammar() keeps what it has compiled.
  std::shared_ptr<const Rules> rules = nullptr;
  // Called after tokens were dropped, with the number of tokens kept before and after them.
  std::function<void(int dropped, int before, int after)> on_drop;
  // Called before each portion of the prompt and after the last one: `known` of `all` are read.
  std::function<void(int known, int all)> on_read;
  // Called with each token of the text when it is drawn, before the text that it completes, and
  // with its log probabilities if they were asked for.
  std::function<void(TokenId token, const LogProbabilities* log_probabilities)> on_token;
  // Called once if the drafter's numbers are not finite or its KV cache needs memory that is not
  // there. Generation continues without it.
  std::function<void(const std::string& why)> on_drafter_lost;
  Drafter* drafter = nullptr;
  int draft_length = 0;  // most draft tokens in one pass, from the drafter or the grammar
  // Chooses the number of draft tokens; null: always draft_length, a part of them on branches.
  Governor* governor = nullptr;
  // Set by a signal handler. The text ends; a running pass of the CPU is abandoned.
  const std::atomic<bool>* interrupt = nullptr;
  // The same from a second writer. Only engine/requests/serving.h looks at it.
  const std::atomic<bool>* also_interrupt = nullptr;
  // The seed was drawn at random, so the same text is hardly asked for again. Only
  // engine/requests/disk_cache.h looks at it.
  bool random_seed = false;
  // While it is set, a Scheduler gives the request no passes: its receiver is slow.
  const std::atomic<bool>* hold = nullptr;
};

struct GenerateOptions : RequestSettings, RequestWiring {};

// The model's end token, a stop string, max_tokens, a full context, or the interrupt flag.
enum class Finish { end, stop, length, full, interrupted };
const char* name_of(Finish finish);  // "end", "stop", ...

// Why a drafter proposed nothing: the text ended within the first passes, which have no draft
// because they measure how long a pass takes (early); or draft tokens would cost more time than
// they gain.
enum class NoDraft { other, early, no_gain };

struct GenerateResult {
  std::string text;
  std::vector<TokenId> tokens;  // drawn, without the end token
  Finish finish = Finish::length;
  bool complete = true;                      // false: the text does not satisfy the grammar
  bool cached = false;                       // comes from the answer cache (answer_cache.h)
  int prompt_tokens = 0, cached_tokens = 0;  // cached: prompt tokens that the session had already
  int known_tokens = 0;                      // prompt tokens that were cached or read at the end
  int dropped_tokens = 0;                    // dropped because the context was full
  int passes = 0, drafted = 0, accepted = 0;
  NoDraft no_draft = NoDraft::other;
  std::vector<int> drafted_at, accepted_at;  // the same by distance from the last token
  double speed_up = 0;  // from speculation, estimated by the governor; 0: unknown
  double prompt_seconds = 0, decode_seconds = 0, first_token_seconds = 0;
  // Bytes of weights and KV cache read while decoding. Weights read for several requests at once
  // are divided among them.
  uint64_t decode_bytes = 0;
  std::vector<LogProbabilities> log_probabilities;  // of each token, if they were asked for
  // Over all draws, the end token too; -inf if there was none.
  double mean_log_probability = -std::numeric_limits<double>::infinity();

  double prompt_rate() const {
    return prompt_seconds > 0 ? (prompt_tokens - cached_tokens) / prompt_seconds : 0;
  }
  // Without the first token: it is drawn in the last pass of the prompt.
  double decode_rate() const {
    return decode_seconds > 0 && tokens.size() > 1 ? double(tokens.size() - 1) / decode_seconds : 0;
  }
};

// Called with the text while it is generated: whole UTF-8 characters, never an empty view.
using Sink = std::function<void(std::string_view text)>;

// The number of control tokens at the start of a prompt.
size_t leading_controls(const Tokenizer& t, std::span<const TokenId> prompt);

class Request {
 public:
  // Throws Error(prompt_too_long) if the prompt does not fit into the context and no tokens may be
  // dropped. The engine and everything the options point to must outlive the request.
  Request(Engine& engine, std::span<const TokenId> prompt, const GenerateOptions& options,
          Sink sink);

  // False when the request has ended. Checks the interrupt flag, which ends it.
  bool goes_on();
  // What the request adds to the next pass: tokens of its text that `session` does not have, at
  // least one and at most `budget`. If they reach the end of the text, a draw is asked for, and
  // draft tokens are added: as many as pay in a pass with `others` more requests and their
  // `others_drafted` draft tokens. Valid until the next call.
  Extension next(Session& session, int budget, int others = 0, int others_drafted = 0);
  // Takes the draws of a pass for `requests` requests and sends their text to the sink. An
  // abandoned pass changes nothing. Throws the error of the draws, and what the sink throws.
  // Returns why the request ended, if it has.
  std::optional<Finish> take(const Draws& draws, int requests = 1);

  // True once the prompt is read and the first token is drawn.
  bool begun() const { return begun_; }
  // Prompt and text, without dropped tokens.
  const std::vector<TokenId>& history() const { return history_; }
  Governor* governor() const { return o_.governor; }
  bool held() const { return o_.hold && o_.hold->load(); }
  // The counts so far; its other fields are set by finished().
  const GenerateResult& so_far() const { return result_; }
  // Call it once, after the end.
  GenerateResult finished();
  // The error that ended this request and no other one. Set by a scheduler.
  std::optional<Error> error;

 private:
  using Clock = std::chrono::steady_clock;
  int room() const { return engine_.context_length() - (int(history_.size()) - 1); }
  int kept() const;  // tokens at the start that are never dropped
  bool drop_half();
  void fit_prompt();
  // Calls `use`. If the drafter's numbers are not finite, the drafter is not used any more.
  template <class Fn>
  void use_drafter(Fn use);
  Draft draft_tokens(const Session& session, int pending, int most, int others, int others_drafted);
  std::optional<Finish> take(TokenId token, const LogProbabilities* log_probabilities);
  void learn(const Draws& draws);
  void count(size_t accepted);
  void show(const std::string& text);
  bool complete();  // whether the whole text satisfies the grammar, if there is one

  Engine& engine_;
  const GenerateOptions o_;
  std::unique_ptr<Grammar> own_grammar_;  // of `rules`, without a compiled one
  Sink sink_;
  Drafter* drafter_;
  const size_t leading_controls_;  // of the prompt
  std::optional<GrammarText> grammar_;
  Sampler sampler_;
  AnswerText text_;
  std::vector<TokenId> history_;
  std::vector<TokenId> extension_;  // the tokens returned by next()
  size_t extension_end_ = 0;        // position in history_ after them
  Draft draft_;                     // the draft tokens returned with them
  bool from_grammar_ = false;       // the grammar proposed draft_
  bool looked_for_draft_ = false;   // draft_tokens() was called for this pass
  // Draft tokens for the next position, with those that no pass verifies: the governor learns from
  // all of them.
  std::vector<TokenId> first_draft_;
  int kind_ = -1;               // the drafter's kind of text, for the governor
  double draft_seconds_ = 0;    // time that the drafter took for draft_
  bool drafter_read_ = false;   // for draft_, it also read tokens before it
  bool drafter_asked_ = false;  // at least once
  bool begun_ = false;
  bool reaches_end_ = false;  // the extension reaches the end of the text, so a token is drawn
  int scored_ = 0;
  double log_probability_ = 0;
  std::optional<Finish> finish_;
  std::optional<Clock::time_point> started_;
  Clock::time_point decoding_;
  GenerateResult result_;
};

}  // namespace chaski
