// chaski template: shows how a model's chat template renders a conversation, and whether it
// supports system messages, tools and thinking. Reads no weights.
#include <memory>
#include <vector>

#include "engine/conversation/conversation_file.h"
#include "engine/conversation/own_template.h"
#include "engine/shelf/model_file.h"
#include "main/flags/commands.h"
#include "main/flags/options.h"
#include "main/terminal/json_output.h"
#include "main/terminal/output.h"

namespace chaski {

namespace {

struct TemplateFlags {
  std::string file, tokenizer, system, messages, chosen;
  bool json = false;
};

const std::vector<ChatMessage> kSample = {
    {"user", "Hello!"}, {"assistant", "Hello. How can I help?"}, {"user", "What is 2 + 2?"}};

struct Found {
  std::string name, notice, text, default_system, stop;
  size_t tokens = 0, control_tokens = 0;
  bool system = true, tools = false, thinking_off = false, drops_thinking = false;
  std::optional<size_t> rewritten;
};

std::vector<ChatMessage> conversation(const TemplateFlags& flags) {
  std::vector<ChatMessage> out =
      flags.messages.empty() ? kSample : read_conversation(flags.messages).messages;
  if (!flags.system.empty()) out.insert(out.begin(), {"system", flags.system});
  return out;
}

Found find(const Metadata& meta, const TemplateChoice& choice, const Tokenizer& tokenizer,
           const std::vector<ChatMessage>& messages) {
  const ChatTemplate chat = choice.given() ? ChatTemplate::chosen(choice, tokenizer, true, {})
                                           : ChatTemplate::detect(meta, tokenizer);
  Found out;
  const std::vector<TokenId> tokens = chat.render(messages, true, &out.rewritten);
  out.name = chat.name(), out.notice = chat.notice();
  out.tokens = tokens.size();
  for (const TokenId id : tokens) {
    out.text += tokenizer.is_control(id) ? tokenizer.raw(id) : tokenizer.piece(id);
    out.control_tokens += tokenizer.is_control(id);
  }
  if (const auto stops = chat.stop_strings(); !stops.empty()) out.stop = stops[0];
  if (!chat.own()) return out;
  out.text = chat.own()->render(messages, true).text();
  out.system = chat.own()->takes_system();
  out.default_system = chat.own()->default_system();
  out.tools = chat.own()->takes_tools();
  out.thinking_off = chat.own()->thinking_can_be_off();
  out.drops_thinking = chat.own()->drops_thinking();
  return out;
}

void put_table(const std::string& file, const std::string& origin, const Found& found,
               size_t bytes) {
  std::string text = fmt::format("{}: ", escaped(file.empty() ? "(bundled)" : file));
  text += found.name == "own"
              ? fmt::format("a template from {}, {} bytes\n", escaped(origin), bytes)
              : fmt::format("the {} format\n", found.name);
  const auto line = [&](const char* what, const std::string& value) {
    text += fmt::format("  {:<18}{}\n", what, value);
  };
  if (found.name == "own") {
    line("system message", !found.system ? "not supported: its text is put before the question"
                           : found.default_system.empty()
                               ? "shown"
                               : "shown; if none is given: " + escaped(found.default_system));
    line("tools", found.tools ? "shown" : "not shown");
    line("thinking",
         found.thinking_off ? "can be turned off (enable_thinking)" : "cannot be turned off");
    line("earlier thinking", found.drops_thinking ? "dropped" : "kept");
  }
  line("an answer ends",
       found.stop.empty() ? "at a control token" : "at the text \"" + escaped(found.stop) + "\"");
  line("later turns", found.rewritten ? "change earlier answers: they are read again"
                                      : "begin with the same tokens: nothing is read again");
  line("the conversation", fmt::format("{}, {} of them control tokens",
                                       counted(found.tokens, "token"), found.control_tokens));
  put(text + "\n");
  put_model_text(found.text);
  if (stdout_is_terminal() && !found.text.ends_with('\n')) put("\n");
}

void put_template_json(const std::string& file, const Found& found, size_t bytes) {
  put_json({{"file", file},
            {"template", found.name},
            {"bytes", bytes},
            {"notice", found.notice},
            {"system", found.system},
            {"default_system", found.default_system},
            {"tools", found.tools},
            {"thinking_can_be_off", found.thinking_off},
            {"forgets_thoughts", found.drops_thinking},
            {"stop", found.stop},
            {"prefix_stable", !found.rewritten},
            {"tokens", found.tokens},
            {"control_tokens", found.control_tokens},
            {"text", found.text}});
}

int show_template(const TemplateFlags& flags) {
  const Metadata meta = open_tokenizer(flags.file, flags.tokenizer);
  const std::unique_ptr<Tokenizer> tokenizer = Tokenizer::make(meta);
  const TemplateChoice choice = template_of(flags.chosen);
  const Found found = find(meta, choice, *tokenizer, conversation(flags));
  const size_t bytes =
      choice.given() ? choice.text.size() : meta.str("tokenizer.chat_template", "").size();
  if (flags.json) {
    put_template_json(flags.file, found, bytes);
  } else {
    if (!found.notice.empty()) put_notice(found.notice);
    put_table(flags.file, choice.given() ? choice.origin : "the model file", found, bytes);
  }
  return int(Exit::done);
}

}  // namespace

Action declare_template(Flags parser) {
  auto flags = std::make_shared<TemplateFlags>();
  parser.add("FILE", flags->file, "a model file, as for run; default: the bundled model")
      .model()
      .type("FILE");
  declare_tokenizer(parser, flags->tokenizer);
  declare_chat_template(parser, flags->chosen);
  parser.add("--system", flags->system, "put a system message before the conversation")
      .type("TEXT");
  parser
      .add("--messages", flags->messages,
           "render this conversation, saved with /save of chat, instead of the sample")
      .type("FILE");
  declare_json(parser, flags->json);
  parser.example("Show what a model's template does", "chaski template model.gguf");
  parser.example("With a system message", "chaski template model.gguf --system \"Be brief.\"");
  parser.example("For a saved conversation", "chaski template model.gguf --messages chat.json");
  return [flags] { return show_template(*flags); };
}

}  // namespace chaski
