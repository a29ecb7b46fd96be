// A cache of answers in a folder. The same model, prompt, settings and seed give the same bytes, so
// the stored answer is returned. Each answer is one file, named by its key; when the folder is too
// large, the files that were used least recently are removed. Several programs may share a folder.
// Any thread may call find() and key(); one at a time calls keep().
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "engine/requests/request.h"
#include "ggml-like-tensor/base/sha256.h"

namespace chaski {

// A key is 64 hexadecimal digits: the SHA-256 of everything that decides the tokens, the text and
// the finish of an answer:
//   the program file;
//   architecture, hyperparameters, tokenizer and all tensors of the model;
//   KV cache format, context length, RoPE scaling and device (not threads or instruction set);
//   the prompt's tokens, the RequestSettings and the grammar
// The seed is left out at temperature 0, where nothing is drawn at random.
class AnswerKeys {
 public:
  // Reads all weights if the model file has no checksums. Throws Error(io).
  explicit AnswerKeys(Engine& engine);
  std::string key(std::span<const TokenId> prompt, const GenerateOptions& options) const;
  // The same over program, model and context alone.
  std::string model() const;

 private:
  Sha256 prefix_;  // over program, model and context
};

class AnswerCache {
 public:
  static constexpr const char* kEnding = ".answer";  // of the names of its files
  static constexpr uint64_t kMostBytes = uint64_t{64} << 20;

  // Creates the folder if it does not exist. `most_bytes` 0: the caller limits it. Throws
  // Error(io).
  explicit AnswerCache(std::string folder, uint64_t most_bytes = kMostBytes);

  // The stored answer with `cached` set, or nothing. Throws Error(io), and Error(bad_file) if the
  // file is damaged.
  std::optional<GenerateResult> find(const std::string& key) const;
  // The file of an answer, whether or not it exists.
  std::string path_of(const std::string& key) const;
  // The bytes of the file that keep() writes.
  static uint64_t file_bytes(const std::string& key, const GenerateResult& result);
  // Throws Error(io) if keep() could not write the file.
  void expect_can_keep(const std::string& key) const;
  // Stores tokens, text, finish and completeness; only the user can read the file. Does not store
  // an interrupted answer, or one that dropped tokens, because the user must see that message.
  // Throws Error(io).
  void keep(const std::string& key, const GenerateResult& result) const;

 private:
  void drop_oldest() const;

  std::string folder_;
  uint64_t most_bytes_;
};

}  // namespace chaski
