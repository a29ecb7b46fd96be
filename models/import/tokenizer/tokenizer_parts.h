// What the tokenizer files of a Hugging Face folder have in common after reading. There is one
// reader for each kind of file. hf_tokenizer.cpp converts the parts and tokenizer_config.json to
// metadata.
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ggml-like-tensor/file/lists.h"
#include "models/import/json_file.h"
#include "models/import/tokenizer/tokenizer_defaults.h"

namespace chaski {

struct TokenizerParts {
  std::string file;   // for messages
  std::string kind;   // our name, see tokenizer_kinds.h
  size_t pieces = 0;  // listed in the file; bounds the ids
  std::vector<std::string> tokens;
  std::vector<int8_t> types;                      // PieceType; 0: not set
  std::vector<double> scores;                     // spm, unigram, plamo2
  Texts merges, pre_patterns;                     // bpe
  Texts normalizer;                               // tokenizer.normalizer
  std::vector<uint8_t> charsmap;                  // bytes, if a step of the normalizer uses them
  bool every_space = false, prefix_once = false;  // spm, unigram
  std::string bos, eos, unk, pad;                 // their texts; empty: none
  std::optional<bool> add_bos, add_eos, add_space_prefix, ignore_merges;

  // Ids may come in any order; gaps become unused pieces. A second text for an id is an error.
  void put(int64_t id, const std::string& piece, PieceType type);
  // The number of ids allowed. It bounds the memory that a small file can request.
  size_t most_ids() const { return std::max<size_t>(1 << 16, 4 * pieces); }
  void fill_holes(size_t size);
  bool has_scores() const { return kind == "spm" || kind == "unigram" || kind == "plamo2"; }
};

bool is_byte_piece(const std::string& piece);  // "<0x0A>"

// Reads the list of tokenizer.json or the object of tokenizer_config.json ("added_tokens_decoder").
// Added tokens are recognised in text by their spelling.
void put_added_tokens(const Json& added, TokenizerParts& parts);

// Hugging Face tokenizers with models BPE (byte-level or SentencePiece's), Unigram and WordPiece.
TokenizerParts read_tokenizer_json(const std::string& path);
// SentencePiece's own format, models BPE and unigram.
TokenizerParts read_sentencepiece(const std::string& path);
// GPT-2's two files.
TokenizerParts read_vocab_and_merges(const std::string& vocab_path, const std::string& merges_path);
// RWKV's pieces, without id 0. They are stored as GGUF has them (byte_literal.h).
TokenizerParts read_rwkv_vocab(const std::string& path);
// PLaMo 2's tokenizer.jsonl: a line for each piece, ["piece", score, "TYPE", ...].
TokenizerParts read_plamo2_vocab(const std::string& path);

}  // namespace chaski
