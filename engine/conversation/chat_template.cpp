// The table of chat families, and how a row becomes tokens.
#include "engine/conversation/chat_template.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "engine/conversation/own_template.h"
#include "ggml-like-tensor/base/error.h"

namespace chaski {

// In a pattern $ is the message, {bos} and {eos} are the model's own tokens, and the generation
// prompt ends at ~. The texts before and after ~ are tokenized separately, because a model often
// begins its answer with one token for a space and a word. If both texts were tokenized together in
// later turns, the answer could begin with other tokens than the model generated.
struct ChatFamily {
  std::string_view name;
  std::vector<std::string_view> marks;  // the text of the template contains all of them
  // The vocabulary must have this control token; empty: no condition.
  std::string_view control;
  bool trim;  // removes white space around messages
  std::string_view system, user, assistant;
  // The user's turn after a system message, for families that put both into one turn.
  std::string_view user_after_system = {};
  // They end an answer. One that is no control token is searched for in the text.
  std::vector<std::string_view> stops = {};
};

namespace {

// The first row that fits is used, so special families come before general ones. Sources: the
// templates published with the models; for Mistral's spaces, the tokenizers v1, v3 and v7 of
// mistral-common.
const std::vector<ChatFamily>& chat_families() {
  static const std::vector<ChatFamily> table = {
      {"phi4",
       {"<|im_start|>", "<|im_sep|>"},
       "",
       false,
       "<|im_start|>system<|im_sep|>$<|im_end|>",
       "<|im_start|>user<|im_sep|>$<|im_end|>",
       "<|im_start|>assistant<|im_sep|>~$<|im_end|>",
       {},
       {"<|im_end|>"}},
      {"chatml",
       {"<|im_start|>"},
       "",
       false,
       "<|im_start|>system\n$<|im_end|>\n",
       "<|im_start|>user\n$<|im_end|>\n",
       "<|im_start|>assistant\n~$<|im_end|>\n",
       {},
       {"<|im_end|>"}},
      {"llama3",
       {"<|start_header_id|>"},
       "",
       true,
       "<|start_header_id|>system<|end_header_id|>\n\n$<|eot_id|>",
       "<|start_header_id|>user<|end_header_id|>\n\n$<|eot_id|>",
       "<|start_header_id|>assistant<|end_header_id|>\n\n~$<|eot_id|>",
       {},
       {"<|eot_id|>"}},
      {"llama4",
       {"<|header_start|>"},
       "",
       true,
       "<|header_start|>system<|header_end|>\n\n$<|eot|>",
       "<|header_start|>user<|header_end|>\n\n$<|eot|>",
       "<|header_start|>assistant<|header_end|>\n\n~$<|eot|>",
       {},
       {"<|eot|>"}},
      {"llama2",
       {"[INST]", "<<SYS>>"},
       "",
       true,
       "{bos}[INST] <<SYS>>\n$\n<</SYS>>\n\n",
       "{bos}[INST] $ [/INST]",
       "~ $ {eos}",
       "$ [/INST]"},
      {"mistral-v7",
       {"[INST]", "[SYSTEM_PROMPT]"},
       "",
       false,
       "[SYSTEM_PROMPT]$[/SYSTEM_PROMPT]",
       "[INST]$[/INST]",
       "~${eos}"},
      {"mistral-v3",
       {"[INST]"},
       "[INST]",
       false,
       "[INST]$\n\n",
       "[INST]$[/INST]",
       "~${eos}",
       "$[/INST]"},
      {"mistral-v1",
       {"[INST]"},
       "",
       false,
       "[INST] $\n\n",
       "[INST] $ [/INST]",
       "~ ${eos}",
       "$ [/INST]"},
      // Without the line ends of the published template: phi-3's control tokens swallow the white
      // space after them.
      {"phi3",
       {"<|assistant|>", "<|end|>"},
       "",
       true,
       "<|system|>$<|end|>",
       "<|user|>$<|end|>",
       "<|assistant|>~$<|end|>",
       {},
       {"<|end|>"}},
      {"gemma",
       {"<start_of_turn>"},
       "",
       true,
       "<start_of_turn>user\n$\n\n",
       "<start_of_turn>user\n$<end_of_turn>\n",
       "<start_of_turn>model\n~$<end_of_turn>\n",
       "$<end_of_turn>\n",
       {"<end_of_turn>"}},
      {"command-r",
       {"<|START_OF_TURN_TOKEN|>", "<|USER_TOKEN|>"},
       "",
       true,
       "<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>$<|END_OF_TURN_TOKEN|>",
       "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>$<|END_OF_TURN_TOKEN|>",
       "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>~$<|END_OF_TURN_TOKEN|>"},
      {"granite",
       {"<|start_of_role|>"},
       "",
       false,
       "<|start_of_role|>system<|end_of_role|>$<|end_of_text|>\n",
       "<|start_of_role|>user<|end_of_role|>$<|end_of_text|>\n",
       "<|start_of_role|>assistant<|end_of_role|>~$<|end_of_text|>\n"},
      {"deepseek3",
       {"<｜User｜>", "<｜Assistant｜>"},
       "",
       false,
       "$",
       "<｜User｜>$",
       "<｜Assistant｜>~${eos}"},
      {"deepseek",
       {"'User: '", "'Assistant:"},
       "",
       false,
       "$\n\n",
       "User: $\n\n",
       "Assistant:~ ${eos}",
       {},
       {"\nUser:"}},
      {"deepseek-coder",
       {"### Instruction:", "<|EOT|>"},
       "",
       false,
       "$",
       "### Instruction:\n$\n",
       "### Response:\n~$\n<|EOT|>\n",
       {},
       {"<|EOT|>"}},
      {"zephyr",
       {"<|user|>", "message['content'] + eos_token"},
       "",
       false,
       "<|system|>\n${eos}\n",
       "<|user|>\n${eos}\n",
       "<|assistant|>\n~${eos}\n",
       {},
       {"<|user|>"}},
      {"alpaca",
       {"### Instruction:"},
       "",
       false,
       "$\n\n",
       "### Instruction:\n$\n\n",
       "### Response:\n~${eos}",
       {},
       {"### Instruction:"}},
      {"vicuna",
       {"USER:", "ASSISTANT:"},
       "",
       false,
       "$",
       "USER: $",
       " ASSISTANT:~ ${eos}",
       " USER: $",
       {"USER:"}},
      // The name that converters store instead of a template.
      {"rwkv-world",
       {"rwkv-world"},
       "",
       true,
       "System: $\n\n",
       "User: $\n\n",
       "Assistant:~ $\n\n",
       {},
       {"\nUser:"}},
      {"plain", {}, "", true, "$\n\n", "User: $\n", "Assistant:~ $\n", {}, {"\nUser:"}},
  };
  return table;
}

bool is_control(const Tokenizer& tokenizer, std::string_view text) {
  const auto id = tokenizer.find(text);
  return id && tokenizer.is_control(*id);
}

bool fits(const ChatFamily& family, std::string_view text, const Tokenizer& tokenizer) {
  const auto contains = [&](std::string_view mark) {
    return text.find(mark) != std::string_view::npos;
  };
  return std::all_of(family.marks.begin(), family.marks.end(), contains) &&
         (family.control.empty() || is_control(tokenizer, family.control));
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kWhite = " \t\r\n\v\f";
  const size_t begin = text.find_first_not_of(kWhite);
  return begin == std::string_view::npos
             ? ""
             : text.substr(begin, text.find_last_not_of(kWhite) + 1 - begin);
}

}  // namespace

ChatTemplate::ChatTemplate(const ChatFamily& family, const Tokenizer& tokenizer,
                           bool begins_with_bos)
    : family_(&family), tokenizer_(&tokenizer), begins_with_bos_(begins_with_bos) {}

ChatTemplate ChatTemplate::detect(const Metadata& meta, const Tokenizer& tokenizer, bool thinks,
                                  const Tools& tools, const jinja::Names& variables) {
  const std::string text = meta.str("tokenizer.chat_template", "");
  const auto fitting = [&](const ChatFamily& family) { return fits(family, text, tokenizer); };
  const auto family = std::find_if(chat_families().begin(), chat_families().end(), fitting);
  ChatTemplate out(*family, tokenizer,
                   tokenizer.adds_bos() || text.find("bos_token") != std::string::npos);
  std::string why = meta.origin + ": no chat template";
  if (!text.empty()) try {
      out.own_ = std::make_shared<const OwnTemplate>(
          text, meta.origin + ": tokenizer.chat_template", tokenizer, thinks, tools, variables);
      out.begins_with_bos_ = tokenizer.adds_bos();
      return out;
    } catch (const Error& error) {
      if (!variables.empty()) throw;  // another template would ignore them
      why = error.what();
    }
  out.notice_ =
      fmt::format("{}, so the conversation is written as {}", why,
                  family->marks.empty() ? "plain User: and Assistant: lines" : family->name);
  return out;
}

ChatTemplate ChatTemplate::chosen(const TemplateChoice& choice, const Tokenizer& tokenizer,
                                  bool thinks, const Tools& tools, const jinja::Names& variables) {
  if (!choice.family.empty()) return named(choice.family, tokenizer);
  ChatTemplate out(chat_families().back(), tokenizer, tokenizer.adds_bos());
  out.own_ = std::make_shared<const OwnTemplate>(choice.text, choice.origin, tokenizer, thinks,
                                                 tools, variables);
  return out;
}

std::vector<std::string> ChatTemplate::names() {
  std::vector<std::string> all;
  for (const ChatFamily& family : chat_families()) all.emplace_back(family.name);
  return all;
}

ChatTemplate ChatTemplate::named(std::string_view name, const Tokenizer& tokenizer) {
  for (const ChatFamily& family : chat_families())
    if (family.name == name) return {family, tokenizer, tokenizer.adds_bos()};
  fail(Exit::usage, "chat template \"{}\" is unknown, expected one of {}", escaped(name),
       fmt::join(names(), ", "));
}

// Splits the pattern at $, ~, {bos} and {eos}. All parts but the message may form control tokens.
void ChatTemplate::append(std::vector<Tokenizer::Part>& parts, std::string_view pattern,
                          std::string_view content) const {
  bool apart = true;  // no token crosses the border of a message
  const auto put = [&](std::string_view text, bool trusted) {
    parts.push_back({text, trusted, apart});
    apart = false;
  };
  const auto special = [&](TokenId id) {
    if (id >= 0) put(tokenizer_->raw(id), true);
  };
  while (!pattern.empty()) {
    const size_t end = std::min(pattern.find_first_of("$~{"), pattern.size());
    if (end > 0) put(pattern.substr(0, end), true);
    pattern.remove_prefix(end);
    if (pattern.starts_with("{bos}"))
      special(tokenizer_->bos());
    else if (pattern.starts_with("{eos}"))
      special(tokenizer_->eos());
    else if (pattern.starts_with('$'))
      put(family_->trim ? trimmed(content) : content, false);
    else
      apart = true;
    pattern.remove_prefix(std::min<size_t>(pattern.starts_with('{') ? 5 : 1, pattern.size()));
  }
}

std::vector<TokenId> ChatTemplate::render(std::span<const ChatMessage> messages,
                                          bool add_generation_prompt,
                                          std::optional<size_t>* rewritten) const {
  std::vector<Tokenizer::Part> parts;
  if (rewritten) rewritten->reset();
  if (own_) {
    const OwnTemplate::Rendered rendered = own_->render(messages, add_generation_prompt);
    for (const OwnTemplate::Piece& piece : rendered.pieces)
      parts.push_back({piece.text, !piece.from_message, piece.begins_answer});
    if (rewritten) *rewritten = rendered.rewritten;
    return with_bos(tokenizer_->encode_parts(parts));
  }
  bool after_system = false;
  for (const ChatMessage& message : messages) {
    const bool inside = after_system && !family_->user_after_system.empty();
    append(parts,
           message.role == "system"      ? family_->system
           : message.role == "assistant" ? family_->assistant
           : inside                      ? family_->user_after_system
                                         : family_->user,
           message.content);
    after_system = message.role == "system";
  }
  if (add_generation_prompt)
    append(parts, family_->assistant.substr(0, family_->assistant.find('~')), "");
  return with_bos(tokenizer_->encode_parts(parts));
}

std::vector<TokenId> ChatTemplate::with_bos(std::vector<TokenId> tokens) const {
  if (begins_with_bos_ && tokenizer_->bos() >= 0 &&
      (tokens.empty() || tokens[0] != tokenizer_->bos()))
    tokens.insert(tokens.begin(), tokenizer_->bos());
  return tokens;
}

std::vector<std::string> ChatTemplate::stop_strings() const {
  if (own_) {
    if (own_->stop_string().empty()) return {};
    return {own_->stop_string()};
  }
  std::vector<std::string> out;
  for (std::string_view stop : family_->stops)
    if (!is_control(*tokenizer_, stop)) out.emplace_back(stop);
  return out;
}

std::string_view ChatTemplate::name() const { return own_ ? "own" : family_->name; }

}  // namespace chaski
