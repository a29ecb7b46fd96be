// From logits to a token, in steps: what a grammar allows; what history and settings say about
// tokens changes logits; candidates are narrowed in the order that the settings name; and one is
// drawn by Gumbel-max: the argmax over what is left of logit / T + g(seed, position, token). The
// noise g comes from a counter-based generator (Philox 4x32-10, Salmon et al. 2011), so a draw is a
// function of the logits, the settings and the tokens before it; neither batching nor speculation
// moves it.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/sampling/banned_text.h"
#include "engine/sampling/candidates.h"
#include "engine/sampling/repetition.h"

namespace chaski {

class GrammarText;

// The first two read the history and stand in front of the others.
enum class SamplerStep : uint8_t {
  penalties,
  dry,
  top_n_sigma,
  top_k,
  typical,
  top_p,
  min_p,
  xtc,
  temperature,
};
constexpr const char* kSamplerStepNames[] = {
    "penalties", "dry", "top-n-sigma", "top-k", "typical", "top-p", "min-p", "xtc", "temperature"};

struct SamplerOptions {
  // 0: greedy; then only what changes logits has an effect: penalties, DRY, biases, banned texts
  double temperature = 0.8;
  int top_k = 40;       // keep the k most probable; 0: all
  double top_p = 0.95;  // keep the smallest set with this probability; 1: all
  // drop what is less probable than min_p x the most probable; 0: none
  double min_p = 0.05;
  double typical = 1;      // locally typical sampling (Meister et al. 2023); 1: off
  double top_n_sigma = 0;  // keep logits within so many deviations of the largest; 0: all
  // Exclude top choices: with this probability those of at least `xtc_threshold` go, but for the
  // least probable of them.
  double xtc_probability = 0, xtc_threshold = 0.1;
  // > 0: a temperature between temperature - range, where one candidate is sure, and temperature +
  // range, where all are equal: by their entropy as a part of the most, to this power
  double temperature_range = 0, temperature_exponent = 1;
  // 2: version 2 of Mirostat (Basu et al. 2021) in place of the steps from top_n_sigma to xtc: the
  // surprise of a token, in bits, stays near the target; 0: off
  int mirostat = 0;
  double mirostat_target = 5, mirostat_rate = 0.1;
  Penalties penalties;
  Dry dry;
  std::vector<std::pair<TokenId, double>> bias;  // added to logits; -INFINITY: never drawn
  std::vector<std::string> banned;               // texts that never come about
  // Those that are set, in their order; a step that is not named is not taken.
  std::vector<SamplerStep> steps = {
      SamplerStep::penalties, SamplerStep::dry,     SamplerStep::top_n_sigma,
      SamplerStep::top_k,     SamplerStep::typical, SamplerStep::top_p,
      SamplerStep::min_p,     SamplerStep::xtc,     SamplerStep::temperature};
  uint64_t seed = 0;

  void check() const;  // Error(usage) that names the flag, the value and the range
  // The steps that are named and change something, in their order.
  std::vector<SamplerStep> active() const;
};

// The settings of a draw that needs nothing but logits, which is one that a device can make.
struct PlainDraw {
  double temperature = 1, top_p = 1, min_p = 0;
  int top_k = 0;
};

class Sampler {
 public:
  // `tokenizer` is for texts: DRY's breakers, what is banned. What `grammar` does not allow is not
  // drawn; it outlives the sampler. Null: there is none. Throws what check() throws, and
  // Error(usage) for a bias of a token that there is not.
  explicit Sampler(const SamplerOptions& options, const Tokenizer* tokenizer = nullptr,
                   GrammarText* grammar = nullptr);
  // `history`: the tokens before the drawn one; its size is the position of the draw. Mirostat's
  // draws follow each other; after a context shift its limit is that of the place it goes back to.
  TokenId draw(std::span<const float> logits, std::span<const TokenId> history);
  // The logits as history and settings have them, which is what greedy draws go by; valid until the
  // next call. Where those leave no token at all, as a banned text may under a grammar, they are
  // not heeded.
  std::span<const float> changed(std::span<const float> logits, std::span<const TokenId> history);
  const SamplerOptions& options() const { return options_; }
  const std::optional<PlainDraw>& plain() const { return plain_; }

 private:
  bool takes(SamplerStep step) const;
  double temperature();
  TokenId draw_mirostat(size_t position);
  TokenId most(size_t position);

  SamplerOptions options_;
  GrammarText* grammar_;
  std::vector<SamplerStep> steps_;
  std::optional<PlainDraw> plain_;
  std::vector<bool> breaks_;  // by token: DRY's repetitions end at it
  std::optional<BannedText> banned_;
  Candidates candidates_;
  std::vector<float> logits_;  // with what changes them applied
  // By position, of Mirostat's draws: the most bits that its surprise may have.
  std::vector<std::pair<size_t, double>> limits_;
};

// Of a token, by a model's logits: the logarithm of its probability, and the most probable tokens
// with theirs.
struct LogProbabilities {
  double drawn;
  std::vector<std::pair<TokenId, double>> most;
};
LogProbabilities log_probabilities(std::span<const float> logits, TokenId drawn, int most = 0);

}  // namespace chaski
