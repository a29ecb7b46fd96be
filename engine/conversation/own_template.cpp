#include "engine/conversation/own_template.h"

#include <algorithm>

#include "engine/conversation/channels.h"
#include "ggml-like-tensor/base/error.h"

namespace chaski {

namespace {

using jinja::Text;
using jinja::View;

constexpr std::string_view kRules = "Speak like a heron.", kQuestion = "Where is the river?",
                           kAnswer = "Behind the reeds.";

jinja::Value message_value(jinja::Budget& budget, const ChatMessage& message) {
  const auto key = [&](const char* name) {
    return jinja::Value::text(budget, std::string_view(name));
  };
  const auto said = [&](const std::string& text) {
    return jinja::Value::text(budget, text, jinja::kFromOutside);
  };
  std::vector<std::pair<jinja::Value, jinja::Value>> items = {
      {key("role"), jinja::Value::text(budget, message.role)},
      {key("content"), said(message.content)}};
  if (!message.calls.empty()) {
    jinja::Values calls;
    for (const ToolCall& call : message.calls) calls.push_back(value_of_call(call));
    items.emplace_back(key("tool_calls"), jinja::Value::list(budget, std::move(calls)));
  }
  if (!message.call_id.empty()) items.emplace_back(key("tool_call_id"), said(message.call_id));
  if (!message.name.empty()) items.emplace_back(key("name"), said(message.name));
  return jinja::Value::dict(budget, std::move(items));
}

jinja::Value date_value(jinja::Budget& budget, std::time_t now, const char* format) {
  std::tm parts{};
  ::localtime_r(&now, &parts);
  char out[32];
  return jinja::Value::text(budget,
                            std::string_view(out, std::strftime(out, sizeof out, format, &parts)));
}

// Recognises the vocabulary of phi-3. Its control tokens drop the white space after them; only the
// tokenizer.json of the original model says so.
bool is_phi3(const Tokenizer& tokenizer) {
  return tokenizer.find("<|placeholder1|>") && tokenizer.find("<|assistant|>") &&
         tokenizer.find("▁");
}

void drop_space(Text& text) {
  Text out;
  for (size_t at = 0; at < text.size();) {
    size_t size = 0;
    for (const View token : {U"<|user|>", U"<|assistant|>", U"<|system|>", U"<|end|>"})
      if (View(text).substr(at).starts_with(token)) size = token.size();
    out.append(text, at, std::max<size_t>(size, 1));
    at += std::max<size_t>(size, 1);
    while (size > 0 && at < text.size() && jinja::is_space(text[at])) ++at;
  }
  text = std::move(out);
}

std::string_view without_space_around(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n"), end = text.find_last_not_of(" \t\r\n");
  return begin == std::string_view::npos ? "" : text.substr(begin, end + 1 - begin);
}

// True if the text begins with the answer, apart from white space around both.
bool begins_with_answer(View text, const std::string& answer) {
  const Text said = jinja::text_of(without_space_around(answer));
  return jinja::starts_with(jinja::stripped(text, jinja::Side::left), said);
}

}  // namespace

OwnTemplate::OwnTemplate(const std::string& text, const std::string& origin,
                         const Tokenizer& tokenizer, bool thinks, const Tools& tools,
                         const jinja::Names& variables)
    : template_(text, origin), now_(std::time(nullptr)), drops_space_(is_phi3(tokenizer)) {
  jinja::Budget budget = jinja::Budget::unlimited();
  names_ = variables;
  names_.insert(names_.end(),
                {{"tools", tools.value()},
                 {"documents", {}},
                 {"enable_thinking", jinja::Value(thinks)},
                 {"date_string", date_value(budget, now_, "%d %b %Y")},
                 {"datetime", date_value(budget, now_, "%b %d %Y")},
                 {"functions", jinja::Value::text(budget, tools.indented(), jinja::kFromOutside)}});
  for (const auto& [name, id] :
       {std::pair("bos_token", tokenizer.bos()), std::pair("eos_token", tokenizer.eos()),
        std::pair("unk_token", tokenizer.unk())})
    if (id >= 0) names_.emplace_back(name, jinja::Value::text(budget, tokenizer.raw(id)));
  const ChatMessage question{"user", std::string(kQuestion)};
  const Text asked = run({&question, 1}, true);
  if (std::none_of(asked.begin(), asked.end(), [](char32_t c) { return c & jinja::kFromOutside; }))
    fail(Exit::bad_file, "{}: does not show the message of the user", origin);
  takes_system_ =
      shows(std::vector<ChatMessage>{{"system", std::string(kRules)}, question}, kRules);
  stop_ = found_stop(tokenizer);
}

Text OwnTemplate::run(std::span<const ChatMessage> messages, bool add_generation_prompt,
                      const jinja::Names& more) const {
  jinja::Budget budget = jinja::Budget::unlimited();
  jinja::Values values;
  std::string rules;  // system messages, put before the next question
  for (const ChatMessage& message : messages) {
    if (message.role == "system" && !takes_system_) {
      rules += message.content + "\n\n";
      continue;
    }
    ChatMessage whole = message;
    if (message.role == "user") whole.content.insert(0, std::exchange(rules, ""));
    try {
      values.push_back(message_value(budget, whole));
    } catch (const jinja::Fault& fault) {
      fail(Exit::prompt_too_long, "a message {}", fault.what);
    }
  }
  jinja::Names names = more;
  names.insert(names.end(), names_.begin(), names_.end());
  names.emplace_back("messages", jinja::Value::list(budget, std::move(values)));
  names.emplace_back("add_generation_prompt", add_generation_prompt);
  Text out = template_.render(names, now_);
  if (drops_space_) drop_space(out);
  return out;
}

std::string OwnTemplate::text_of(std::span<const ChatMessage> messages,
                                 bool add_generation_prompt) const {
  return jinja::utf8(run(messages, add_generation_prompt));
}

bool OwnTemplate::shows(std::span<const ChatMessage> messages, std::string_view text) const {
  try {
    return text_of(messages, true).find(text) != std::string::npos;
  } catch (const Error&) {
    return false;
  }
}

// An answer is followed by a control token, or by a text that serves as one: its first line.
std::string OwnTemplate::found_stop(const Tokenizer& tokenizer) const {
  std::string text;
  try {
    text = text_of(
        std::vector<ChatMessage>{
            {"user", std::string(kQuestion)}, {"assistant", std::string(kAnswer)}, {"user", "On!"}},
        false);
  } catch (const Error&) {
    return "";
  }
  const size_t answer = text.rfind(kAnswer), next = text.rfind("On!");
  if (answer == std::string::npos || next == std::string::npos || next < answer) return "";
  const std::string between = text.substr(answer + kAnswer.size(), next - answer - kAnswer.size());
  const std::string_view said = without_space_around(between);
  const std::vector<TokenId> tokens = tokenizer.encode_with_control(said);
  if (std::any_of(tokens.begin(), tokens.begin() + std::min<ptrdiff_t>(2, std::ssize(tokens)),
                  [&](TokenId id) { return tokenizer.is_control(id); }))
    return "";
  const std::string line(without_space_around(said.substr(0, said.find('\n'))));
  return line.empty() ? "" : (between.starts_with('\n') ? "\n" : "") + line;
}

// Nothing if the template refuses a conversation that ends before the answer.
std::optional<Text> OwnTemplate::prompt_before(std::span<const ChatMessage> messages) const {
  try {
    return run(messages, true);
  } catch (const Error&) {
    return std::nullopt;
  }
}

OwnTemplate::Prompt OwnTemplate::prompt_for(size_t answer, std::span<const ChatMessage> messages,
                                            const Text& text) const {
  const std::optional<Text> prompt = prompt_before(messages.first(answer));
  if (!prompt) return {.known = true};
  const size_t same = size_t(
      std::mismatch(prompt->begin(), prompt->end(), text.begin(), text.end(),
                    [](char32_t a, char32_t b) { return jinja::plain(a) == jinja::plain(b); })
          .first -
      prompt->begin());
  return {.known = true, .valid = true, .stays = same == prompt->size(), .size = same};
}

OwnTemplate::Rendered OwnTemplate::render(std::span<const ChatMessage> messages,
                                          bool add_generation_prompt) const {
  Text text = run(messages, add_generation_prompt);
  // The results of the last conversation are valid as far as messages and texts are the same.
  const auto count_same = [](const auto& a, const auto& b) {
    return size_t(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
  };
  const size_t same_messages = count_same(messages, last_.messages),
               same_text = count_same(text, last_.text);
  std::vector<Prompt> prompts(messages.size());
  Rendered out;
  std::vector<size_t> borders;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].role != "assistant") continue;
    Prompt& prompt = prompts[i];
    if (i <= same_messages && i < last_.prompts.size()) prompt = last_.prompts[i];
    const bool valid =
        prompt.known &&
        (!prompt.valid || (prompt.stays ? prompt.size <= same_text : prompt.size < same_text));
    if (!valid) prompt = prompt_for(i, messages, text);
    if (prompt.stays) borders.push_back(prompt.size);
    if (!out.rewritten &&
        !(prompt.stays && begins_with_answer(View(text).substr(prompt.size), messages[i].content)))
      out.rewritten = i;
  }
  std::sort(borders.begin(), borders.end());
  auto next = borders.begin();
  for (size_t at = 0; at < text.size();) {
    const bool from_message = text[at] & jinja::kFromOutside;
    while (next != borders.end() && *next < at) ++next;
    const bool begins = next != borders.end() && *next == at;
    while (next != borders.end() && *next <= at) ++next;
    const size_t most = next != borders.end() ? std::min(*next, text.size()) : text.size();
    size_t end = at + 1;
    while (end < most && bool(text[end] & jinja::kFromOutside) == from_message) ++end;
    out.pieces.push_back({jinja::utf8(View(text).substr(at, end - at)), from_message, begins});
    at = end;
  }
  // Much shorter conversations, such as the system message alone, do not replace a longer one.
  if (2 * messages.size() >= last_.messages.size())
    last_ = {{messages.begin(), messages.end()}, std::move(text), std::move(prompts)};
  return out;
}

std::string OwnTemplate::Rendered::text() const {
  std::string out;
  for (const Piece& piece : pieces) out += piece.text;
  return out;
}

// Finds the text around a given system message, and returns what is between the same texts when
// none is given.
std::string OwnTemplate::default_system() const {
  if (!takes_system_) return "";
  const ChatMessage messages[] = {{"system", std::string(kRules)},
                                  {"user", std::string(kQuestion)}};
  const std::string with = text_of(messages, true),
                    without = text_of(std::span(messages).last(1), true);
  const size_t rules = with.find(kRules), after = rules + kRules.size(),
               question = with.find(kQuestion, after);
  const std::string front = with.substr(0, rules);
  if (question == std::string::npos || !without.starts_with(front)) return "";
  const size_t end =
      without.find(with.substr(after, question + kQuestion.size() - after), front.size());
  return end == std::string::npos ? "" : without.substr(front.size(), end - front.size());
}

bool OwnTemplate::takes_tools() const {
  jinja::Budget budget = jinja::Budget::unlimited();
  const auto text = [&](std::string_view s) { return jinja::Value::text(budget, s); };
  const jinja::Value parameters = jinja::Value::dict(
      budget,
      {{text("type"), text("object")}, {text("properties"), jinja::Value::dict(budget, {})}});
  const jinja::Value function = jinja::Value::dict(budget, {{text("name"), text("count_herons")},
                                                            {text("description"), text("Counts.")},
                                                            {text("parameters"), parameters}});
  const jinja::Value tool =
      jinja::Value::dict(budget, {{text("type"), text("function")}, {text("function"), function}});
  const ChatMessage question{"user", std::string(kQuestion)};
  try {
    const Text out = run({&question, 1}, true, {{"tools", jinja::Value::list(budget, {tool})}});
    return jinja::utf8(out).find("count_herons") != std::string::npos;
  } catch (const Error&) {
    return false;
  }
}

bool OwnTemplate::thinking_can_be_off() const {
  if (shows(std::vector<ChatMessage>{{"user", std::string(kQuestion)}, {"assistant", "There."}},
            Channels::kMarks[1]))
    return true;  // Conversation opens the final channel
  const ChatMessage question{"user", std::string(kQuestion)};
  const std::string prompt = text_of({&question, 1}, true);
  if (without_space_around(prompt).ends_with("<think>")) return true;  // Conversation closes it
  return !jinja::same(run({&question, 1}, true, {{"enable_thinking", jinja::Value(true)}}),
                      run({&question, 1}, true, {{"enable_thinking", jinja::Value(false)}}));
}

bool OwnTemplate::drops_thinking() const {
  const std::string thought = "a heron thinks";
  return !shows(
      std::vector<ChatMessage>{{"user", std::string(kQuestion)},
                               {"assistant", "<think>\n" + thought + "\n</think>\n\nThere."},
                               {"user", "Where?"}},
      thought);
}

}  // namespace chaski
