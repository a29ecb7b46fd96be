// A cache of answers in a folder. The same model, prompt, settings and seed give the same bytes, so
// the stored answer is returned. Each answer is one file, named by its key; when the folder is too
// large, the oldest files are removed. Not thread-safe. Several programs may share a folder.
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

 private:
  Sha256 prefix_;  // over program, model and context
};

class AnswerCache {
 public:
  static constexpr uint64_t kMostBytes = uint64_t{64} << 20;

  // Creates the folder if it does not exist. Throws Error(io).
  explicit AnswerCache(std::string folder, uint64_t most_bytes = kMostBytes);

  // The stored answer with `cached` set, or nothing. Throws Error(io), and Error(bad_file) if the
  // file is damaged.
  std::optional<GenerateResult> find(const std::string& key) const;
  // Stores tokens, text, finish and completeness; only the user can read the file. Does not store
  // an interrupted answer, or one that dropped tokens, because the user must see that message.
  // Throws Error(io).
  void keep(const std::string& key, const GenerateResult& result) const;

 private:
  std::string path_of(const std::string& key) const;
  void drop_oldest() const;

  std::string folder_;
  uint64_t most_bytes_;
};

}  // namespace chaski
