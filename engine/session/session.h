// One sequence of tokens and its state: the KV cache, and the recurrent state if the model has one.
// The logits after a token depend only on the model and the tokens up to it, bit for bit. They do
// not depend on batches, threads, other sessions, rewinds or forks. Only the thread that makes the
// passes of the engine may use a session, and end it.
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

  const std::vector<TokenId>& tokens() const;  // those in the KV cache
  int position() const { return int(tokens().size()); }
  int room() const;  // how many more tokens fit into the context
  // the length of the longest common beginning of `tokens` and tokens()
  size_t common_prefix(std::span<const TokenId> tokens) const;

  // Appends tokens, in batches of at most Engine::batch_length(). Returns the logits of the last
  // `wanted` tokens, (wanted, vocab), valid until the next pass of any session of the engine.
  // Throws Error(prompt_too_long) with both numbers if the tokens do not fit into the context,
  // Error(non_finite) if a logit is not finite, and Error(memory) if there are no free pages. The
  // session then holds what it held before.
  std::span<const float> extend(std::span<const TokenId> tokens, int wanted = 1);
  std::span<const float> decode(TokenId token) { return extend({&token, 1}); }

  // As extend(), but returns the hidden states that the logits are computed from: the output of the
  // final norm, (wanted, Engine::hidden_size()).
  std::span<const float> hidden(std::span<const TokenId> tokens, int wanted = 1);
  // For a model that reads an input row with each token (an EAGLE head): the logits after the last
  // token and its hidden state, valid until the next pass. Returns nothing if the pass was
  // abandoned because `interrupt` was set. Throws what extend() throws.
  struct Next {
    std::span<const float> logits, hidden;
  };
  std::optional<Next> extend(std::span<const TokenId> tokens, std::span<const float> rows,
                             const std::atomic<bool>* interrupt);
  // Appends at least one token and returns their embedding: the hidden state of the last one, or
  // the mean of all their hidden states, as the architecture asks. Throws what extend() throws.
  std::vector<float> pooled(std::span<const TokenId> tokens);

  // Makes the session hold the longest possible beginning of `tokens`: it rewinds to the common
  // prefix, and shares further pages that any session of the engine has read (prefix_index.h).
  // Returns the tokens that are still to be appended. That is at least the last one, because
  // appending a token computes the logits.
  std::span<const TokenId> reuse(std::span<const TokenId> tokens);

  // Drops all tokens from `position` on and returns the new position. It is smaller than `position`
  // if a sliding window or a recurrent state no longer has the past; the tokens after it must be
  // appended again. Full attention always reaches `position`. Sliding windows reach it within the
  // last pass or the last 1024 tokens. Recurrent states reach the beginning of the last pass, if it
  // wanted several logits.
  int rewind(int position);
  // Throws Error(usage) if a device runs some layers: save() and restore() need all states on the
  // host.
  void expect_kept(const std::string& path) const;
  // Writes tokens and states to a file (layout: session_file.cpp), which replaces an older one
  // atomically. Returns the bytes written. Throws Error(io), and Error(usage) as expect_kept()
  // does.
  uint64_t save(const std::string& path) const;
  // Replaces tokens and states by those of the file. The bits are the same as if the tokens had
  // been read here. Throws Error(io), and Error(bad_file) if the file is damaged or belongs to
  // another model, KV format or context; the session is empty then. Models are compared by their
  // hyperparameters and by samples of every tensor, not by all weights.
  void restore(const std::string& path);
  // Whether the file exists and was written by save(), for any model.
  static bool is_saved(const std::string& path);
  // The copy shares all pages. A page is copied when one of the two sessions writes to it.
  std::unique_ptr<Session> fork();
  // Call for one of several tries of which most are dropped. Then the recurrent states at its end,
  // and at those of its forks, do not take the room of other ones in the prefix index.
  void drop_end();
  // How many branches a draft may have besides its first, if each branch has up to `tokens` tokens
  // and the free pages are shared equally by `sessions`. 0 for recurrent states: each token changes
  // the state, so branches would have to be computed one by one.
  int branches(int tokens, int sessions = 1) const;
  // Whether `branches` besides the first need no memory that is not there; `tokens` and `sessions`
  // as above. Branches are not worth an answer that ends because memory is short.
  bool has_memory_for(int branches, int tokens, int sessions = 1) const;

  // Appends tokens, verifies the draft, and returns the accepted draft tokens and one more. Throws
  // what extend() throws.
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
