// Turns generated tokens into text: whole UTF-8 characters, up to the first stop string. Copies are
// independent.
#pragma once
#include <string>

#include "engine/text/stop_filter.h"
#include "engine/text/tokenizer/tokenizer.h"
#include "engine/text/utf8.h"

namespace chaski {

struct RequestSettings;

class AnswerText {
 public:
  // `opens`: only control tokens come before the text. The tokenizer and the settings must outlive
  // the object. Throws what StopFilter throws.
  AnswerText(const Tokenizer& tokenizer, const RequestSettings& settings, bool opens);

  // Takes the next token. Returns the text that can be shown now.
  std::string push(TokenId token);
  // Call it at the end of the text. Returns the text that was held back.
  std::string flush();
  bool stopped() const { return stops_.stopped(); }  // by a stop string

 private:
  const Tokenizer* tokenizer_;
  const RequestSettings* settings_;
  bool opens_, paused_ = false;  // paused: stop strings match nothing
  Utf8Stream characters_;
  StopFilter stops_;
};

}  // namespace chaski
