// A conversation as the tokens its model was trained on. The well-known families stand in one table
// (chat_template.cpp) and are recognised by marks in the template that the model file carries. A
// template language is not run here.
//
// Two promises. Control tokens come from the table only: a message cannot forge one, whatever it
// contains. And rendering is prefix-stable: the tokens of a conversation, with or without the
// generation prompt, begin the tokens of the same conversation one answer or one question later, so
// that a KV cache of the one serves the other.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/tokenizer.h"

namespace chaski {

struct ChatMessage {
  std::string role;  // "system", "assistant"; anything else is a user
  std::string content;
};

struct ChatFamily;  // a row of the table

class ChatTemplate {
 public:
  // The family whose marks are in tokenizer.chat_template, or "plain" (User: ... Assistant: ...) if
  // there is no such key or no family has its marks. The tokenizer must live as long as the result.
  static ChatTemplate detect(const Metadata& meta, const Tokenizer& tokenizer);
  // Throws Error(usage) that lists the names.
  static ChatTemplate named(std::string_view name, const Tokenizer& tokenizer);

  // With the generation prompt the tokens end where the answer of the assistant begins.
  std::vector<TokenId> render(std::span<const ChatMessage> messages,
                              bool add_generation_prompt) const;
  // Texts that end an answer, for families without a token that does (for tokens see
  // Tokenizer::is_end).
  std::vector<std::string> stop_strings() const;
  std::string_view name() const;
  // One line for the user when the choice was a guess, else empty.
  const std::string& notice() const { return notice_; }

 private:
  ChatTemplate(const ChatFamily& family, const Tokenizer& tokenizer, bool begins_with_bos);
  void append(std::vector<Tokenizer::Part>& parts, std::string_view pattern,
              std::string_view content) const;

  const ChatFamily* family_;
  const Tokenizer* tokenizer_;
  bool begins_with_bos_;
  std::string notice_;
};

}  // namespace chaski
