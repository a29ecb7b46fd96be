// Turns generated tokens into text: whole UTF-8 characters, up to the first stop string. Copies are
// independent.
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
  // `opens`: only control tokens come before the text. `spelled`: control tokens that are part of
  // the text. `spelled` and the tokenizer must outlive the object. Throws what StopFilter throws.
  AnswerText(const Tokenizer& tokenizer, std::vector<std::string> stops,
             std::span<const TokenId> spelled, bool opens)
      : tokenizer_(&tokenizer), spelled_(spelled), opens_(opens), stops_(std::move(stops)) {}

  // Takes the next token. Returns the text that can be shown now.
  std::string push(TokenId token);
  // Call it at the end of the text. Returns the text that was held back.
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
