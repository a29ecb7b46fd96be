// Small models for tests of chat templates: a vocabulary of bytes and control tokens.
#pragma once
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/conversation/chat_template.h"
#include "engine/text/tokenizer/byte_alphabet.h"
#include "tests/kit/support.h"

namespace chaski::test {

using Ids = std::vector<TokenId>;
using Messages = std::vector<ChatMessage>;

inline const Messages kShort = {
    {"system", "Be brief."}, {"user", "Hi"}, {"assistant", "Hello"}, {"user", "Bye"}};

// Bytes and these control tokens, <s> is BOS.
inline Metadata mini_vocabulary(const std::vector<std::string>& control,
                                const std::string& chat_template) {
  Metadata meta;
  meta.origin = "mini.gguf";
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte)
    tokens.push_back(to_byte_alphabet(std::string(1, static_cast<char>(byte))));
  std::vector<int64_t> types(256, 1);
  for (const std::string& raw : control) {
    tokens.push_back(raw);
    types.push_back(3);
  }
  const auto id = [&](const char* raw) {
    return std::find(tokens.begin(), tokens.end(), raw) - tokens.begin();
  };
  meta.set_str("tokenizer.kind", "bpe");
  meta.set_strs("tokenizer.tokens", tokens);
  meta.set_ints("tokenizer.types", types);
  meta.set_int("tokenizer.bos_id", id("<s>"));
  meta.set_int("tokenizer.eos_id", id("</s>"));
  if (!chat_template.empty()) meta.set_str("tokenizer.chat_template", chat_template);
  return meta;
}

inline const std::vector<std::string> kControl = {"<s>",
                                                  "</s>",
                                                  "<|im_start|>",
                                                  "<|im_end|>",
                                                  "<|im_sep|>",
                                                  "<|start_header_id|>",
                                                  "<|end_header_id|>",
                                                  "<|eot_id|>",
                                                  "<start_of_turn>",
                                                  "<end_of_turn>",
                                                  "[INST]",
                                                  "[/INST]",
                                                  "[SYSTEM_PROMPT]",
                                                  "[/SYSTEM_PROMPT]",
                                                  "<|user|>",
                                                  "<|end|>",
                                                  "<|assistant|>",
                                                  "<|system|>",
                                                  "<｜User｜>",
                                                  "<｜Assistant｜>",
                                                  "<|EOT|>"};

inline std::string shown(const Tokenizer& tokenizer, const Ids& ids) {
  std::string out;
  for (TokenId id : ids)
    out += tokenizer.is_control(id) ? fmt::format("⟦{}⟧", tokenizer.raw(id)) : tokenizer.piece(id);
  return out;
}

inline bool begins_with(const Ids& all, const Ids& start) {
  return start.size() <= all.size() && std::equal(start.begin(), start.end(), all.begin());
}

inline void check_stable(const ChatTemplate& chat, const Messages& messages, size_t from = 0) {
  CAPTURE(chat.name());
  for (size_t n = from; n < messages.size(); ++n) {
    CAPTURE(n);
    const Ids more = chat.render(std::span(messages).first(n + 1), false);
    CHECK(begins_with(more, chat.render(std::span(messages).first(n), false)));
    if (messages[n].role == "assistant")
      CHECK(begins_with(more, chat.render(std::span(messages).first(n), true)));
  }
}

// A model with a chat template of its own.
struct Own {
  Metadata meta;
  std::unique_ptr<Tokenizer> tokenizer;
  ChatTemplate chat;
  explicit Own(const std::string& text, const std::vector<std::string>& control = kControl,
               const Tools& tools = {})
      : meta(mini_vocabulary(control, text)),
        tokenizer(Tokenizer::make(meta)),
        chat(ChatTemplate::detect(meta, *tokenizer, true, tools)) {}
  std::optional<size_t> rewritten(const Messages& messages) const {
    std::optional<size_t> out;
    chat.render(messages, true, &out);
    return out;
  }
  std::string shown(const Messages& messages, bool ask = true) const {
    return test::shown(*tokenizer, chat.render(messages, ask));
  }
};

}  // namespace chaski::test
