// The text that tokens make as they come: whole characters, and nothing of a stop string or of what
// stands behind it. A copy goes on by itself.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "engine/text/stop_filter.h"
#include "engine/text/tokenizer/tokenizer.h"
#include "engine/text/utf8.h"

namespace chaski {

class AnswerText {
 public:
  // `opens`: nothing but control tokens stands before it. `spelled`: control tokens that are a part
  // of the text. Both they and the tokenizer outlive this. Throws what StopFilter throws.
  AnswerText(const Tokenizer& tokenizer, std::vector<std::string> stops,
             std::span<const TokenId> spelled, bool opens)
      : tokenizer_(&tokenizer), spelled_(spelled), opens_(opens), stops_(std::move(stops)) {}

  // Takes the next token, and returns what may be shown by now.
  std::string push(TokenId token);
  // To be called when the text has ended: returns what was held back.
  std::string flush();
  bool stopped() const { return stops_.stopped(); }  // by a stop string

 private:
  const Tokenizer* tokenizer_;
  std::span<const TokenId> spelled_;
  bool opens_;
  Utf8Stream characters_;
  StopFilter stops_;
};

}  // namespace chaski
