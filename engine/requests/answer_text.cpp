#include "engine/requests/answer_text.h"

#include <algorithm>

#include "engine/requests/request.h"

namespace chaski {

AnswerText::AnswerText(const Tokenizer& tokenizer, const RequestSettings& settings, bool opens)
    : tokenizer_(&tokenizer), settings_(&settings), opens_(opens), stops_(settings.stop) {}

std::string AnswerText::push(TokenId token) {
  const Tokenizer& t = *tokenizer_;
  const auto is_in = [&](const std::vector<TokenId>& list) {
    return std::find(list.begin(), list.end(), token) != list.end();
  };
  paused_ = paused_ || is_in(settings_->pauses_stop);
  const auto shown = [&](std::string_view piece) {
    const std::string text = characters_.push(piece);
    return paused_ ? stops_.flush() + text : stops_.push(text);
  };
  std::string text;
  if (!t.is_control(token))
    text = shown(opens_ ? t.decode({&token, 1}) : t.piece(token));
  else if (is_in(settings_->spelled))
    text = shown(t.raw(token));
  paused_ = paused_ && token != settings_->resumes_stop;
  opens_ = false;
  return text;
}

std::string AnswerText::flush() {
  if (stopped()) return "";
  std::string text = stops_.push(characters_.flush());
  return text + stops_.flush();
}

}  // namespace chaski
