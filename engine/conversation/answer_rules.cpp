#include "engine/conversation/answer_rules.h"

#include <algorithm>
#include <string>
#include <vector>

#include "engine/grammar/schema/json_schema.h"

namespace chaski {

namespace {

// Errors name the grammar of the user: it is the part that can be too large.
Rules rules_like(const Rules& rules) { return Rules({rules.name(), "", rules.code()}); }

std::shared_ptr<const Rules> finished(Rules rules, Rules::Part whole) {
  const Rules::Rule root = rules.declare("the answer");
  rules.define(root, whole);
  rules.finish(root);
  return std::make_shared<const Rules>(std::move(rules));
}

// A text in which these marks are control tokens if the tokenizer has such tokens.
Rules::Part spelled(Rules& rules, std::string_view text,
                    std::initializer_list<std::string_view> marks, const Tokenizer& tokenizer) {
  for (const std::string_view mark : marks) {
    const size_t at = mark.empty() ? std::string_view::npos : text.find(mark);
    const auto token = tokenizer.find(mark);
    if (at == std::string_view::npos || !token || !tokenizer.is_control(*token)) continue;
    const Rules::Part front = spelled(rules, text.substr(0, at), marks, tokenizer);
    const Rules::Part middle = rules.token({std::string(mark), -1, false, ""});
    const Rules::Part back = spelled(rules, text.substr(at + mark.size()), marks, tokenizer);
    return rules.chain(rules.chain(front, middle), back);
  }
  return rules.text(text);
}

// All texts that end with the first `mark` in them. A state counts the bytes of the mark that the
// text ends with; a byte that does not continue it leads to the longest shorter beginning
// (Knuth, Morris and Pratt).
Rules::Part until(Rules& rules, const std::string& mark, const Tokenizer& tokenizer) {
  std::vector<Rules::State> states;
  for (size_t i = 0; i <= mark.size(); ++i) states.push_back(rules.state());
  for (size_t i = 0; i < mark.size(); ++i)
    for (int byte = 0; byte < 256; ++byte) {
      const std::string text = mark.substr(0, i) + char(byte);
      size_t length = std::min(text.size(), mark.size());
      while (!text.ends_with(mark.substr(0, length))) --length;
      rules.byte(states[i], states[length], uint8_t(byte), uint8_t(byte));
    }
  if (const auto token = tokenizer.find(mark); token && tokenizer.is_control(*token)) {
    const Rules::Part whole = rules.token({mark, -1, false, ""});
    rules.skip(states[0], whole.begin), rules.skip(whole.end, states.back());
  }
  return {states.front(), states.back()};
}

}  // namespace

std::shared_ptr<const Rules> rules_or_calls(const Rules& rules, const ToolSyntax& syntax,
                                            const Tools& tools, const Tokenizer& tokenizer) {
  Rules all = rules_like(rules);
  const auto call_rules =
      parse_json_schema({"tools", tools.schema_of_call("", syntax.arguments), Exit::bad_file});
  const Rules::Rule text = all.copy(rules), call = all.copy(*call_rules);
  const auto mark = [&](std::string_view mark) {
    return spelled(all, mark, {syntax.begins, syntax.ends}, tokenizer);
  };
  const auto one = [&] {
    return all.chain(all.chain(mark(syntax.opens), all.call(call)), mark(syntax.closes));
  };
  Rules::Part calls = one();
  if (!syntax.ends.empty())  // each call has marks of its own
    calls = all.chain(calls, all.repeated(all.chain(all.text("\n"), one()), 0, Rules::kUnlimited));
  const Rules::Part either[] = {all.call(text), calls};
  const Rules::Part whole = all.either(either);
  return finished(std::move(all), whole);
}

std::shared_ptr<const Rules> rules_after_thought(const Rules& rules, bool opened,
                                                 const Tokenizer& tokenizer) {
  constexpr int kMostLines = 2;  // empty ones between the thought and the text
  Rules all = rules_like(rules);
  const Rules::Rule text = all.copy(rules);
  Rules::Part thought = until(all, "</think>", tokenizer);
  if (!opened) thought = all.chain(spelled(all, "<think>", {"<think>"}, tokenizer), thought);
  const Rules::Part lines = all.repeated(all.text("\n"), 0, kMostLines);
  const Rules::Part after = all.chain(all.chain(thought, lines), all.call(text));
  if (opened) return finished(std::move(all), after);
  const Rules::Part either[] = {all.call(text), after};
  const Rules::Part whole = all.either(either);
  return finished(std::move(all), whole);
}

}  // namespace chaski
