// Renders a conversation as the tokens that its model was trained on. The template comes from the
// model file (own_template.h). If the file has none, or it cannot be run, a table of well-known
// families is used (chat_template.cpp); a family is recognised by marks in the template.
//
// Two guarantees:
//   Control tokens come from the template only. A message cannot forge one.
//   Rendering is prefix-stable, so the KV cache of one turn serves the next: the tokens of a
//   conversation are a prefix of the tokens one question or answer later. A template from a file
//   may break this; render() then says at which answer.
//
// One thread at a time uses a ChatTemplate and its copies: they share what render() remembers.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/conversation/tools.h"
#include "engine/text/jinja/jinja.h"
#include "engine/text/tokenizer/tokenizer.h"

namespace chaski {

struct ChatMessage {
  std::string role;  // "system", "assistant", "tool" or "user"
  std::string content;
  std::vector<ToolCall> calls = {};  // of an answer
  // Of a tool's result (role "tool"): the id of the call and the name of the function.
  std::string call_id = {}, name = {};
  bool operator==(const ChatMessage&) const = default;
};

// A template that is used instead of the model's own one.
struct TemplateChoice {
  std::string family;        // a name of the table in chat_template.cpp, or
  std::string text, origin;  // a Jinja template, and where it comes from for messages
  bool given() const { return !family.empty() || !origin.empty(); }
};

struct ChatFamily;  // a row of the table in chat_template.cpp
class OwnTemplate;

class ChatTemplate {
 public:
  // Uses the template in tokenizer.chat_template. If it cannot be run: the family whose marks are
  // in it, else "plain" (User: ... Assistant: ...). A template from the file gets `tools`,
  // enable_thinking = `thinks`, and `variables`. The tokenizer must outlive the result. With
  // variables, a template that cannot be run is an error: throws what OwnTemplate throws.
  static ChatTemplate detect(const Metadata& meta, const Tokenizer& tokenizer, bool thinks = true,
                             const Tools& tools = {}, const jinja::Names& variables = {});
  // Throws what OwnTemplate throws if the chosen template cannot be run.
  static ChatTemplate chosen(const TemplateChoice& choice, const Tokenizer& tokenizer, bool thinks,
                             const Tools& tools, const jinja::Names& variables = {});
  static std::vector<std::string> names();  // of the families
  // Throws Error(usage), which lists the known names, if `name` is not one of them.
  static ChatTemplate named(std::string_view name, const Tokenizer& tokenizer);

  // With the generation prompt the tokens end where the answer of the assistant begins.
  // `rewritten`, if not null, receives the index of the first answer that the template changes or
  // moves after it was generated. Throws Error(usage) with the template's own words if it refuses
  // the conversation.
  std::vector<TokenId> render(std::span<const ChatMessage> messages, bool add_generation_prompt,
                              std::optional<size_t>* rewritten = nullptr) const;
  // Texts that end an answer if no token does (for tokens see Tokenizer::is_end).
  std::vector<std::string> stop_strings() const;
  std::string_view name() const;                         // the name of the family, or "own"
  const OwnTemplate* own() const { return own_.get(); }  // null: a family of the table
  // A line for the user if the model's own template is not used, else empty.
  const std::string& notice() const { return notice_; }

 private:
  ChatTemplate(const ChatFamily& family, const Tokenizer& tokenizer, bool begins_with_bos);
  std::vector<TokenId> with_bos(std::vector<TokenId> tokens) const;
  void append(std::vector<Tokenizer::Part>& parts, std::string_view pattern,
              std::string_view content) const;

  const ChatFamily* family_;
  std::shared_ptr<const OwnTemplate> own_;
  const Tokenizer* tokenizer_;
  bool begins_with_bos_;
  std::string notice_;
};

}  // namespace chaski
