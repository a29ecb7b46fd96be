// A chat template and a conversation. The input contains the template, a system message, a question
// and an answer. Messages must not create control tokens, and a longer conversation must begin with
// the same text.
#include <algorithm>
#include <memory>

#include "engine/conversation/call_reader.h"
#include "engine/conversation/chat_template.h"
#include "tests/fuzz/target.h"
#include "tests/fuzz/vocabularies.h"

namespace chaski::fuzz {
namespace {

using Ids = std::vector<TokenId>;

bool begins(const Ids& shorter, const Ids& longer) {
  return shorter.size() <= longer.size() &&
         std::equal(shorter.begin(), shorter.end(), longer.begin());
}

auto controls(const Tokenizer& tokenizer, const Ids& ids) {
  return std::count_if(ids.begin(), ids.end(),
                       [&](TokenId id) { return tokenizer.is_control(id); });
}

void talk(const Tokenizer& tokenizer, const ChatTemplate& chat,
          const std::vector<std::string_view>& parts) {
  std::vector<ChatMessage> messages, silent;
  Ids before;
  for (size_t i = 1; i < std::min<size_t>(parts.size(), 6); ++i) {
    const char* role = i == 1 ? "system" : i % 2 == 0 ? "user" : "assistant";
    messages.push_back({role, std::string(parts[i])}), silent.push_back({role, ""});
    const Ids now = chat.render(messages, false), asked = chat.render(messages, true);
    expect(begins(before, now), "a longer conversation begins with the shorter one");
    expect(begins(now, asked), "the generation prompt comes after the conversation");
    expect(controls(tokenizer, now) == controls(tokenizer, chat.render(silent, false)),
           "control tokens come only from the template");
    before = i % 2 == 0 ? asked : now;
  }
}

void render(const ChatTemplate& chat, const std::vector<std::string_view>& parts) {
  std::vector<ChatMessage> messages;
  for (size_t i = 1; i < std::min<size_t>(parts.size(), 6); ++i)
    messages.push_back({i % 2 == 0 ? "user" : "assistant", std::string(parts[i])});
  std::optional<size_t> rewritten;
  chat.render(messages, true, &rewritten);
  chat.stop_strings();
}

// The tool calls of any answer can be rendered by a template, and are parsed as the same calls.
void read_calls(std::string_view answer) {
  static const Tools tools = Tools::parse("tools", R"([{"name": "f"}])");
  for (const char* mark :
       {"<tool_call>", "[ARGS]", "[TOOL_CALLS]", "<|tool_call|>", "<|start_header_id|>"}) {
    const ToolSyntax& syntax = *tool_syntax(mark);
    const ToolAnswer read = read_calls(syntax, tools, answer, CallIds({}, 0));
    for (const ToolCall& call : read.calls) {
      expect(is_json_object(call.arguments), "arguments are an object");
      value_of_call(call);
    }
    for (const std::string& fault : read.faults)
      expect(escaped(fault) == fault, "an error is safe for a terminal");
  }
}

struct Voice {
  Metadata meta;
  std::unique_ptr<Tokenizer> tokenizer;
  explicit Voice(Metadata vocabulary)
      : meta(std::move(vocabulary)), tokenizer(Tokenizer::make(meta)) {}
};

const Declared chat("chat", [](std::string_view input) {
  static Voice voices[] = {Voice(bpe_vocabulary("gpt-2")), Voice(spm_vocabulary(true))};
  const auto parts = parts_of(input);
  for (const std::string_view part : parts) read_calls(part);
  for (Voice& voice : voices) {
    voice.meta.set_str("tokenizer.chat_template", std::string(parts[0]));
    const ChatTemplate chat = ChatTemplate::detect(voice.meta, *voice.tokenizer);
    if (chat.own()) {  // a model's own template may change messages
      may_fail([&] { render(chat, parts); });
      continue;
    }
    talk(*voice.tokenizer, chat, parts);
    expect(escaped(chat.notice()) == chat.notice(), "a notice is safe for a terminal");
  }
});

}  // namespace
}  // namespace chaski::fuzz
