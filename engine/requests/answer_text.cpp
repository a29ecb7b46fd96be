#include "engine/requests/answer_text.h"

#include <algorithm>

namespace chaski {

std::string AnswerText::push(TokenId token) {
  const Tokenizer& t = *tokenizer_;
  std::string text;
  if (!t.is_control(token))
    text = stops_.push(characters_.push(opens_ ? t.decode({&token, 1}) : t.piece(token)));
  else if (std::find(spelled_.begin(), spelled_.end(), token) != spelled_.end())
    text = stops_.push(characters_.push(t.raw(token)));
  opens_ = false;
  return text;
}

std::string AnswerText::flush() {
  if (stopped()) return "";
  std::string text = stops_.push(characters_.flush());
  return text + stops_.flush();
}

}  // namespace chaski
