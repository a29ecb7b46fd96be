// From logits to a token. A grammar removes tokens; steps that read the text change logits; other
// steps narrow the candidates, in the order of the settings; then Gumbel-max draws one: the argmax
// of logit / T + g(seed, position, token) over the candidates that are left. The noise g comes from
// a counter-based generator (Philox 4x32-10, Salmon et al. 2011), so a draw is a function of the
// logits, the settings and the tokens before it. Neither batching nor speculation changes it. A
// sampler draws for one text; one thread at a time uses it.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "engine/sampling/banned_text.h"
#include "engine/sampling/steps.h"
#include "engine/sampling/steps/candidates.h"

namespace chaski {

class GrammarText;

// The settings of a draw that belong to no step.
struct DrawSettings {
  std::vector<std::pair<TokenId, double>> bias;  // added to logits; -INFINITY: never drawn
  std::vector<std::string> banned;               // texts that never occur
  // The steps that are taken, in their order.
  std::vector<SamplerStep> steps = all_sampler_steps();
  uint64_t seed = 0;
};

struct SamplerOptions : SamplerSettings, DrawSettings {
  // Throws Error(usage), which names the flag, the value and the range.
  void check() const;
  // The steps that are named and change something, in their order.
  std::vector<SamplerStep> active() const;
  // Whether a step changes logits by the tokens of the text.
  bool changes_logits() const;
  // The settings of a search that draws nothing: of the steps, those that change logits.
  SamplerOptions greedy() const;
};

// The names of all steps, in the default order.
std::vector<std::string> sampler_step_names();
// The steps of a list such as "top-k,min-p" or "top_k;min_p". Throws Error(usage) that names the
// flag or field of the list.
std::vector<SamplerStep> sampler_steps(const std::string& list, const std::string& field);

class Sampler {
 public:
  // `tokenizer` is for texts: DRY's breakers and banned texts. `grammar` removes the tokens that it
  // does not allow, and outlives the sampler; null: no grammar. Throws what check() throws, and
  // Error(usage) for a bias of a token that does not exist.
  explicit Sampler(const SamplerOptions& options, const Tokenizer* tokenizer = nullptr,
                   GrammarText* grammar = nullptr);
  // `history` holds the tokens before the drawn one; its size is the position of the draw. Mirostat
  // keeps a limit from draw to draw; if the text was rewound, it uses the limit of that position.
  TokenId draw(std::span<const float> logits, std::span<const TokenId> history);
  // The logits after biases, banned texts and the steps that change logits; greedy draws take their
  // argmax. Valid until the next call. If these leave no token at all, as a banned text may under a
  // grammar, the logits are returned unchanged.
  std::span<const float> changed(std::span<const float> logits, std::span<const TokenId> history);
  const SamplerOptions& options() const { return options_; }
  const std::optional<PlainDraw>& plain() const { return plain_; }

 private:
  // What a step prepared, for each step.
  template <class Step>
  struct StateOf {
    using Type = std::monostate;
  };
  template <class Step>
  requires requires { typename Step::State; }
  struct StateOf<Step> {
    using Type = typename Step::State;
  };
  template <class List>
  struct StatesOf;
  template <class... Step>
  struct StatesOf<StepList<Step...>> {
    using Type = std::tuple<typename StateOf<Step>::Type...>;
  };

  TokenId draw_mirostat(size_t position);
  TokenId gumbel_max(size_t position);

  SamplerOptions options_;
  GrammarText* grammar_;
  std::vector<SamplerStep> steps_;
  std::optional<PlainDraw> plain_;
  StatesOf<SamplerSteps>::Type states_;
  std::optional<BannedText> banned_;
  Candidates candidates_;
  std::vector<float> logits_;  // the result of changed()
  // Mirostat's limits in bits, each with the position from which it holds.
  std::vector<std::pair<size_t, double>> limits_;
};

// The log probability of a token by a model's logits, and the most probable tokens with theirs.
struct LogProbabilities {
  double drawn;
  std::vector<std::pair<TokenId, double>> most;
};
LogProbabilities log_probabilities(std::span<const float> logits, TokenId drawn, int most = 0);

}  // namespace chaski
