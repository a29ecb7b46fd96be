// One sequence of tokens and its keys and values. The logits after a token depend on the model and the tokens before it and on
// nothing else, bit for bit: not on chunks, threads, other sessions, rewinds or forks.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "engine/engine.h"

namespace chaski {

// One session's share of a forward pass over several sessions: tokens to append, and for how many of the last ones logits are wanted.
struct Extension {
  Session* session = nullptr;
  std::span<const TokenId> tokens;
  int wanted = 1;
};

class Session {
 public:
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const std::vector<TokenId>& tokens() const;  // everything whose keys and values are held
  int position() const { return int(tokens().size()); }
  int room() const;                            // how many more tokens fit into the context
  size_t common_prefix(std::span<const TokenId> tokens) const;  // how many of them, from the first on, the session holds

  // Appends tokens, in chunks of at most Engine's batch; returns the logits of the last `wanted` ones, (wanted, vocab), valid
  // until the next pass of any session. Throws Error(prompt_too_long) with both numbers when they do not fit (nothing is
  // changed then), Error(non_finite) if a logit is not finite, Error(memory) when the pool of pages is exhausted.
  std::span<const float> extend(std::span<const TokenId> tokens, int wanted = 1);
  std::span<const float> decode(TokenId token) { return extend({&token, 1}); }

  // Makes the session hold exactly `tokens`, reusing the longest common prefix: rewinds, then extends. At least one token is
  // evaluated so that there are logits. Returns how many were reused.
  int sync(std::span<const TokenId> tokens, std::span<const float>* logits);

  void rewind(int position);            // forget everything from `position` on
  std::unique_ptr<Session> fork();      // shares full pages, copies the last one when either writes on

  // Several sessions in one pass: the logits of all wanted tokens, in order.
  static std::span<const float> extend_all(std::span<const Extension> parts);

  Engine& engine() const;

 private:
  friend class Engine;
  struct Impl;
  static void check(std::span<const Extension> parts);
  static std::span<const float> run(std::span<const Extension> parts);
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace chaski
