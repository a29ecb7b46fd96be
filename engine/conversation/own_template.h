// Runs the chat template of a model file. The rendering separates text of the template from text of
// messages, and marks where answers begin. No token crosses these borders, so a later rendering has
// the same tokens for an answer as the model generated.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/conversation/chat_template.h"
#include "engine/text/jinja/jinja.h"

namespace chaski {

class OwnTemplate {
 public:
  // `origin` is the template's name in messages. The time is fixed now, so a date in the template
  // does not change later. Throws Error(bad_file) if it is not a valid template, or fails for a
  // plain question or does not show it. A template sees `tools`, enable_thinking, the special
  // tokens, and what llama-server defines for older templates: date_string and datetime (today) and
  // functions (the tools as JSON). `variables` take precedence.
  OwnTemplate(const std::string& text, const std::string& origin, const Tokenizer& tokenizer,
              bool thinks = true, const Tools& tools = {}, const jinja::Names& variables = {});

  struct Piece {
    std::string text;
    bool from_message;
    bool begins_answer;
  };
  struct Rendered {
    std::vector<Piece> pieces;
    // The index of the first answer that is not where it was generated: the template now renders
    // this answer, or the text before it, differently.
    std::optional<size_t> rewritten;
    std::string text() const;
  };
  // Throws Error(usage) with the template's own words if it refuses the conversation, and
  // Error(prompt_too_long) for a message of millions of characters. Caches the positions of answers
  // in the last conversation, so that a chat does not run the template for each of them at every
  // turn. Therefore not thread-safe.
  Rendered render(std::span<const ChatMessage> messages, bool add_generation_prompt) const;

  // False if the template does not show system messages. Their text is then put before the first
  // question.
  bool takes_system() const { return takes_system_; }
  // The text that ends an answer if no token does; may be empty.
  const std::string& stop_string() const { return stop_; }

  // For `chaski template`.
  std::string default_system() const;  // the system message if none is given
  bool takes_tools() const;
  bool thinking_can_be_off() const;  // with enable_thinking = false
  bool drops_thinking() const;       // <think>...</think> of earlier answers

 private:
  // Compares the prompt that an answer was generated after with the text of the whole conversation.
  struct Prompt {
    bool known = false;
    bool valid = false;  // the template accepts the messages before the answer
    bool stays = false;  // the whole text begins with the prompt
    size_t size = 0;     // of the prompt if it stays, else the first character that differs
  };
  struct Last {
    std::vector<ChatMessage> messages;
    jinja::Text text;
    std::vector<Prompt> prompts;  // one for each message
  };
  Prompt prompt_for(size_t answer, std::span<const ChatMessage> messages,
                    const jinja::Text& text) const;

  jinja::Text run(std::span<const ChatMessage> messages, bool add_generation_prompt,
                  const jinja::Names& more = {}) const;
  std::optional<jinja::Text> prompt_before(std::span<const ChatMessage> messages) const;
  std::string text_of(std::span<const ChatMessage> messages, bool add_generation_prompt) const;
  bool shows(std::span<const ChatMessage> messages, std::string_view text) const;
  std::string found_stop(const Tokenizer& tokenizer) const;

  jinja::Template template_;
  jinja::Names names_;  // the variables of every rendering
  std::time_t now_;
  bool takes_system_ = true, drops_space_ = false;
  std::string stop_;
  mutable Last last_;
};

}  // namespace chaski
