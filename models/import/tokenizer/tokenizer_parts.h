// What the tokenizer files of a Hugging Face folder have in common once they are read. One reader
// for each kind of file; how the parts and tokenizer_config.json become metadata is
// hf_tokenizer.cpp's business.
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
  std::string file;   // for error lines
  std::string kind;   // of tokenizer_kinds.h, ours
  size_t pieces = 0;  // that the file lists: what an id may be follows from it
  std::vector<std::string> tokens;
  std::vector<int8_t> types;                      // PieceType; 0: none yet
  std::vector<double> scores;                     // spm, unigram
  Texts merges, pre_patterns;                     // bpe
  Texts normalizer;                               // tokenizer.normalizer
  std::vector<uint8_t> charsmap;                  // bytes, if a step of it says so
  bool every_space = false, prefix_once = false;  // spm, unigram
  std::string bos, eos, unk, pad;                 // by spelling; empty: none
  std::optional<bool> add_bos, add_eos, add_space_prefix, ignore_merges;

  // Ids may come in any order; what stays empty between them becomes an unused piece. A second
  // spelling for an id is refused.
  void put(int64_t id, const std::string& piece, PieceType type);
  // So many ids there may be, listed or not: a small file must not ask for much memory.
  size_t most_ids() const { return std::max<size_t>(1 << 16, 4 * pieces); }
  void fill_holes(size_t size);
  bool has_scores() const { return kind == "spm" || kind == "unigram"; }
};

bool is_byte_piece(const std::string& piece);  // "<0x0A>"

// The list of tokenizer.json or the object of tokenizer_config.json ("added_tokens_decoder"):
// pieces put into text by their spelling.
void put_added_tokens(const Json& added, TokenizerParts& parts);

// Hugging Face tokenizers, models BPE (byte-level, or SentencePiece's), Unigram and WordPiece.
TokenizerParts read_tokenizer_json(const std::string& path);
// SentencePiece's own file, models BPE and unigram.
TokenizerParts read_sentencepiece(const std::string& path);
// GPT-2's two files.
TokenizerParts read_vocab_and_merges(const std::string& vocab_path, const std::string& merges_path);

}  // namespace chaski
