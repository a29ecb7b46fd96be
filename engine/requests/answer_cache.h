// Answers that were given before, in a folder: the same model, tokens, settings and seed give the
// same bytes, so they need not be made again. A file an answer, named by its key; when they are too
// many bytes the oldest go. Not thread-safe; several programs may share a folder.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "engine/requests/request.h"
#include "ggml-like-tensor/base/sha256.h"

namespace chaski {

// A key is 64 hexadecimal digits: SHA-256 over all that decides what generate() returns as tokens,
// text and finish. That is the program (by its file), the architecture, hyperparameters, tokenizer
// and every tensor of the model, the format of keys and values, context and scaling, the device
// (not the CPU's instruction set, and not threads), the prompt's tokens, and of the options all but
// who guesses and who is told. A seed that draws nothing is left out.
class AnswerKeys {
 public:
  // Reads all weights of a model whose file has no sums of them. Throws Error(io).
  explicit AnswerKeys(Engine& engine);
  std::string key(std::span<const TokenId> prompt, const GenerateOptions& options) const;

 private:
  Sha256 of_all_;  // program, model and context
};

class AnswerCache {
 public:
  static constexpr uint64_t kMostBytes = uint64_t{64} << 20;

  // Makes the folder if there is none. Throws Error(io).
  explicit AnswerCache(std::string folder, uint64_t most_bytes = kMostBytes);

  // What was kept under the key, `cached`; nothing if nothing was. Throws Error(io), and
  // Error(bad_file) for what is damaged.
  std::optional<GenerateResult> find(const std::string& key) const;
  // For who asked for it only: tokens, text and why it ended. Not an answer that was interrupted,
  // or of whose context something was dropped, because that has to be said. Throws Error(io).
  void keep(const std::string& key, const GenerateResult& result) const;

 private:
  std::string path_of(const std::string& key) const;
  void drop_oldest() const;

  std::string folder_;
  uint64_t most_bytes_;
};

}  // namespace chaski
