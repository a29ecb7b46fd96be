// The chat template that a model file brings along, run on conversations. What it renders keeps
// apart what the template says and what the messages say, and marks where an answer begins: no
// token lies across that border, so what a model generated is in its place in a later rendering.
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
  // From tokenizer.chat_template, which must be there. The clock stands still from now on, so that
  // a date in the template stays what it was. Throws Error(bad_file) for what is no template, fails
  // with a plain question, or does not show it.
  OwnTemplate(const Metadata& meta, const Tokenizer& tokenizer, bool thinks = true,
              const Tools& tools = {});

  struct Piece {
    std::string text;
    bool from_message;
    bool begins_answer;
  };
  struct Rendered {
    std::vector<Piece> pieces;
    // The first answer, by its place among the messages, that does not stand where it was
    // generated: the template writes what is before it, or itself, otherwise now.
    std::optional<size_t> rewritten;
    std::string text() const;
  };
  // Throws Error(usage) with the template's own words if it refuses the conversation, and
  // Error(prompt_too_long) for a message of millions of characters. What was found out about the
  // answers of the last conversation is kept, so that a chat does not run the template for each of
  // them at every turn: not from two threads at once.
  Rendered render(std::span<const ChatMessage> messages, bool add_generation_prompt) const;

  // Whether system messages are shown. Where they are not, the text stands in front of the first
  // question.
  bool takes_system() const { return takes_system_; }
  // What ends an answer where no token does; may be empty.
  const std::string& stop_string() const { return stop_; }

  // What `chaski template` tells of it.
  std::string default_system() const;  // what the system message is if none is given
  bool takes_tools() const;
  bool thinking_can_be_off() const;  // by enable_thinking
  bool forgets_thoughts() const;     // <think>...</think> of earlier answers

 private:
  // How the prompt for an answer, by what stands in front of it alone, stands to the whole text.
  struct Prompt {
    bool known = false, taken = false;  // taken: the template takes what is in front
    bool stays = false;                 // the text begins with it
    size_t size = 0;                    // then; else the first character in which they differ
  };
  struct Last {
    std::vector<ChatMessage> messages;
    jinja::Text text;
    std::vector<Prompt> prompts;  // by message
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
  jinja::Names names_;  // of every rendering
  std::time_t now_;
  bool takes_system_ = true, swallows_space_ = false;
  std::string stop_;
  mutable Last last_;
};

}  // namespace chaski
