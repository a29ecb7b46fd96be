// A conversation as the tokens its model was trained on: by the template that the model file brings
// along (own_template.h). Where that cannot be run, or there is none, the well-known families stand
// in one table (chat_template.cpp), recognised by marks in the template.
//
// Two promises. Control tokens come from the template only: a message cannot forge one, whatever it
// contains. And rendering is prefix-stable, so that a KV cache of one turn serves the next: by the
// table the tokens of a conversation, with or without the generation prompt, begin the tokens of
// the same conversation one answer or one question later; a template of the file's own may break
// that, and then it is said at which answer.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/conversation/tools.h"
#include "engine/text/tokenizer/tokenizer.h"

namespace chaski {

struct ChatMessage {
  std::string role;  // "system", "assistant"; anything else is a user
  std::string content;
  std::vector<ToolCall> calls = {};  // of an answer
  // Of what a tool gave ("tool"): which call it is for, and its function.
  std::string call_id = {}, name = {};
  bool operator==(const ChatMessage&) const = default;
};

struct ChatFamily;  // a row of the table
class OwnTemplate;

class ChatTemplate {
 public:
  // The template in tokenizer.chat_template; if it cannot be run, the family whose marks are in it;
  // else "plain" (User: ... Assistant: ...). The tokenizer must live as long as the result. If it
  // is not to think, a template of the file's own is told so, by enable_thinking; it is shown the
  // tools if it takes them.
  static ChatTemplate detect(const Metadata& meta, const Tokenizer& tokenizer, bool thinks = true,
                             const Tools& tools = {});
  // Throws Error(usage) that lists the names.
  static ChatTemplate named(std::string_view name, const Tokenizer& tokenizer);

  // With the generation prompt the tokens end where the answer of the assistant begins. Throws
  // Error(usage) with the words of a template that refuses the conversation.
  // `rewritten`, if it is not null, is the first answer, by its place among the messages, that does
  // not stand where it was generated.
  std::vector<TokenId> render(std::span<const ChatMessage> messages, bool add_generation_prompt,
                              std::optional<size_t>* rewritten = nullptr) const;
  // Texts that end an answer, for families without a token that does (for tokens see
  // Tokenizer::is_end).
  std::vector<std::string> stop_strings() const;
  std::string_view name() const;                         // of the family, or "own"
  const OwnTemplate* own() const { return own_.get(); }  // null: a family's
  // One line for the user when the choice was a guess, else empty.
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
