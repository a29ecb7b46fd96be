#include "engine/sampling/steps/penalties.h"

#include <algorithm>
#include <map>

namespace chaski {

void PenaltiesStep::change(std::span<float> logits, std::span<const TokenId> history) const {
  if (penalty_window >= 0) history = history.last(std::min(history.size(), size_t(penalty_window)));
  std::map<TokenId, int> counts;
  for (const TokenId token : history) ++counts[token];
  for (const auto& [token, count] : counts) {
    if (size_t(token) >= logits.size()) continue;  // the tokenizer may have more tokens
    float& x = logits[size_t(token)];
    x = x > 0 ? float(x / repeat_penalty) : float(x * repeat_penalty);
    x = float(x - (presence_penalty + frequency_penalty * count));
  }
}

}  // namespace chaski
