// Small complete vocabularies for the targets that fuzz texts.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "engine/text/tokenizer/byte_alphabet.h"
#include "ggml-like-tensor/file/metadata.h"

namespace chaski::fuzz {

inline const std::vector<std::string>& control_pieces() {
  static const std::vector<std::string> pieces{
      "<s>",       "</s>",    "<unk>",      "<|im_start|>", "<|im_end|>",    "<|end|>",
      "[INST]",    "[/INST]", "<|eot_id|>", "<|user|>",     "<|assistant|>", "<start_of_turn>",
      "<|system|>"};
  return pieces;
}

// Every byte except `without`, a few merges and all control pieces.
inline Metadata bpe_vocabulary(const std::string& pre, int without = -1) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte)
    if (byte != without)
      tokens.push_back(to_byte_alphabet(std::string(1, static_cast<char>(byte))));
  for (const char* piece : {"he", "ll", "llo", "hello", "\u0120w", "12", "123", "<|"})
    tokens.emplace_back(piece);
  std::vector<int64_t> types(tokens.size(), 1);
  for (const std::string& piece : control_pieces()) tokens.push_back(piece), types.push_back(3);
  tokens.emplace_back("<tool>"), types.push_back(4);
  Metadata meta;
  meta.origin = "bpe";
  meta.set_str("tokenizer.kind", "bpe");
  meta.set_str("tokenizer.pre", pre);
  meta.set_int("tokenizer.unk_id", static_cast<int64_t>(tokens.size()) - 2);
  meta.set_strs("tokenizer.tokens", std::move(tokens));
  meta.set_ints("tokenizer.types", std::move(types));
  meta.set_strs("tokenizer.merges",
                {"h e", "l l", "ll o", "he llo", "\u0120 w", "1 2", "12 3", "< |"});
  return meta;
}

// `bytes`: has all 256 byte tokens; otherwise characters without a piece become the unknown token.
inline Metadata spm_vocabulary(bool bytes) {
  std::vector<std::string> tokens = control_pieces();
  std::vector<int64_t> types(tokens.size(), 3);
  types[2] = 2;
  for (int byte = 0; bytes && byte < 256; ++byte) {
    constexpr char kHex[] = "0123456789ABCDEF";
    tokens.push_back(std::string("<0x") + kHex[byte / 16] + kHex[byte % 16] + ">");
    types.push_back(6);
  }
  for (const char* piece : {"\u2581", "h", "e", "l", "o", "w", "he", "ll", "llo", "hello",
                            "\u2581w", "\u2581\u2581", "1", "2", "12", "\u00f6"})
    tokens.emplace_back(piece), types.push_back(1);
  std::vector<double> scores;
  for (size_t i = 0; i < tokens.size(); ++i) scores.push_back(-static_cast<double>(i));
  Metadata meta;
  meta.origin = "spm";
  meta.set_str("tokenizer.kind", "spm");
  meta.set_strs("tokenizer.tokens", std::move(tokens));
  meta.set_ints("tokenizer.types", std::move(types));
  meta.set_floats("tokenizer.scores", std::move(scores));
  return meta;
}

}  // namespace chaski::fuzz
