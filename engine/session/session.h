// One sequence of tokens and its states: keys and values, and what a recurrent model keeps. The
// logits after a token depend on the model and the tokens before it and on nothing else, bit for
// bit: not on chunks, threads, other sessions, rewinds or forks.
#pragma once
#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/passes/draft.h"
#include "engine/sampling/sampler.h"
#include "engine/session/engine.h"

namespace chaski {

class Pass;

class Session {
 public:
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const std::vector<TokenId>& tokens() const;  // everything whose keys and values are held
  int position() const { return int(tokens().size()); }
  int room() const;  // how many more tokens fit into the context
  // how many of them, from the first on, the session holds
  size_t common_prefix(std::span<const TokenId> tokens) const;

  // Appends tokens, in chunks of at most Engine's batch; returns the logits of the last `wanted`
  // ones, (wanted, vocab), valid until the next pass of any session. Throws Error(prompt_too_long)
  // with both numbers when they do not fit (nothing is changed then), Error(non_finite) if a logit
  // is not finite, Error(memory) when the pool of pages is exhausted: then the session is rewound.
  std::span<const float> extend(std::span<const TokenId> tokens, int wanted = 1);
  std::span<const float> decode(TokenId token) { return extend({&token, 1}); }

  // As extend(), but returns what the logits are made of: the rows behind the last norm, (wanted,
  // Engine::hidden_size()).
  std::span<const float> hidden(std::span<const TokenId> tokens, int wanted = 1);
  // Of a model that goes by rows, which come with the tokens, one for each: the logits behind the
  // last one, and the row that they are made of, valid until the next pass. Nothing if `stop` was
  // set meanwhile. Throws what extend() throws.
  struct Next {
    std::span<const float> logits, hidden;
  };
  std::optional<Next> extend(std::span<const TokenId> tokens, std::span<const float> rows,
                             const std::atomic<bool>* stop);
  // Appends tokens, at least one; returns what stands for them as a whole: the hidden row of the
  // last, or the mean of all of theirs, as the architecture says. Throws what extend() throws.
  std::vector<float> pooled(std::span<const TokenId> tokens);

  // Keeps as many tokens as `tokens` begin with and rewind() reaches, or shares the pages of more
  // that some session of the engine has read (prefix_index.h), and forgets the rest. Returns those
  // still to be appended: at least the last, because logits come from appending a token.
  std::span<const TokenId> reuse(std::span<const TokenId> tokens);

  // Forgets everything from `position` on. Where a window or a recurrent state has left the past
  // behind, from an earlier position on: the position reached, from where tokens are to be given
  // again. That is `position` itself with neither, and within the last pass or 1024 tokens with
  // windows alone; with recurrent states, where the last pass began if it wanted several logits.
  int rewind(int position);
  // Throws Error(usage) where layers are on a device, whose states save() and restore() do not
  // know.
  void expect_kept(const std::string& path) const;
  // All that it holds, in a file (session_file.cpp says the layout); the old one is whole until the
  // new one is. Returns its bytes. Throws Error(io), and Error(usage) where layers are on a device.
  uint64_t save(const std::string& path) const;
  // Holds what the file says instead, as if its tokens had been read here: the bits are the same.
  // Throws Error(io), and Error(bad_file) for a file that is damaged, or of another model, format
  // of keys and values, or context; then the session is empty. Models are told apart by their
  // hyperparameters and by samples of every tensor, not by all weights.
  void restore(const std::string& path);
  // Whether a file that is there was written by save(), of whatever model.
  static bool is_saved(const std::string& path);
  // shares pages, copies one when either writes on
  std::unique_ptr<Session> fork();
  // How many branches a draft may have besides its first, as far as there are pages, if this pass
  // gives each so many tokens and as much is left to each of `sessions`. None with recurrent
  // states: the tokens of a pass change them one after the other, and their branches would have to
  // be read apart.
  int branches(int tokens, int sessions = 1) const;

  // One session alone. Throws what extend() throws.
  std::vector<TokenId> draw(std::span<const TokenId> tokens, Sampler& sampler,
                            std::span<const Draft::Node> draft = {});

  Engine& engine() const;

 private:
  friend class Engine;
  friend class Pass;
  struct Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace chaski
