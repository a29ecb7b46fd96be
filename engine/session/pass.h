// One forward pass over several sessions of an engine: it appends tokens to each session, computes
// the logits and hidden states of the last ones, and draws the next tokens from them. One thread
// makes all passes of an engine; others may only set Extension::interrupt.
#pragma once
#include <atomic>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "engine/passes/draft.h"
#include "engine/sampling/sampler.h"
#include "engine/session/session.h"
#include "ggml-like-tensor/batch.h"

namespace chaski {

struct CudaDraw;

// What a pass does for one session. Set it with designated initialisers.
struct Extension {
  Session* session = nullptr;
  std::span<const TokenId> tokens;  // to append
  int wanted = 1;                   // how many of the last `tokens` have a row of the result
  Sampler* sampler = nullptr;       // for draws; its history is all tokens of the session
  // If set: log probabilities of each drawn token and of this many most probable ones.
  std::optional<int> log_probabilities = std::nullopt;
  // A pass is abandoned when this flag is set and all its extensions have the same flag.
  const std::atomic<bool>* interrupt = nullptr;
  // Draft tokens after `tokens`. A draw verifies them, with one row of logits for each.
  std::span<const Draft::Node> draft = {};
  // If set: the draws come with the hidden state of each token and accepted draft token. The target
  // of an EAGLE-3 head returns the rows that the head reads. Only the CPU supports this.
  bool hidden = false;
  // The input row of each token, for a model that reads rows (an EAGLE head). The rows are read
  // where they are, so a pass of such a model has one extension.
  std::span<const float> input_rows = {};
  // The tokens are likely to be rewound at once, so the prefix index does not learn their pages.
  bool tentative = false;

  size_t size() const { return tokens.size() + draft.size(); }
  size_t rows() const { return size_t(wanted) + draft.size(); }
};

// The tokens drawn for one extension: the accepted draft tokens and one more. If `wanted` is 0,
// nothing is drawn. If logits are not finite, drawing ends there; `error` says so if no token was
// drawn before.
struct Draws {
  std::vector<TokenId> tokens;
  // One for each token, computed from the unchanged logits. Empty unless the extension wants them.
  std::vector<LogProbabilities> log_probabilities;
  int last_accepted = -1;  // index of the last accepted draft node
  // Hidden states of the extension's tokens and accepted draft tokens, if the extension wants them.
  std::vector<float> hidden;
  std::optional<Error> error;
  bool abandoned = false;  // then nothing was drawn

  // Keeps the allocated memory.
  void clear() {
    tokens.clear(), log_probabilities.clear(), hidden.clear();
    last_accepted = -1, error = std::nullopt, abandoned = false;
  }
};

// One forward pass. It fills the batches that the engine's Pipeline runs, and owns the page tables
// of the draft branches; the rows that it returns are in the Pipeline. A pass runs once, by one of
// run(), each_row() and draw(). It has several batches if it has more tokens than
// Engine::batch_length().
//
// If a pass throws or is abandoned, its sessions hold the tokens that they held before. A session
// with recurrent states may hold fewer, as after Session::rewind().
class Pass {
 public:
  // The extensions are of different sessions of one engine and outlive this. Throws
  // Error(prompt_too_long) if the tokens do not fit into the context; the session is unchanged.
  explicit Pass(std::span<const Extension> extensions, Result result = Result::logits);
  ~Pass();
  Pass(const Pass&) = delete;
  Pass& operator=(const Pass&) = delete;

  // Appends the tokens and computes a row for each wanted one. Returns false if the pass was
  // abandoned (Extension::interrupt). Throws Error(non_finite) if a row is not finite, and
  // Error(memory) if there are not enough pages.
  bool run();
  // The same, but calls take(row) in the order of the tokens instead of keeping the rows.
  bool each_row(const std::function<void(std::span<const float>)>& take);
  // Appends the tokens, verifies the drafts and draws, on the device if it can make all the draws.
  // The contents of `out` are replaced and its memory is reused: a decode step allocates nothing.
  // Non-finite logits are an error in the Draws of their session. Returns false if the pass was
  // abandoned.
  bool draw(std::vector<Draws>& out);

  // After run(): (wanted tokens of all extensions, columns), valid until the engine's next pass. A
  // pass of one batch is read in place.
  std::span<const float> rows() const;
  // The i-th row of an extension.
  std::span<const float> row(size_t extension, size_t i) const;
  // After a pass for Result::both: the hidden state of the i-th token or draft token.
  std::span<const float> hidden(size_t extension, size_t i) const;

 private:
  struct Branch;
  static Session::Impl& impl(const Extension& extension);
  static Engine& checked_engine(std::span<const Extension> extensions);
  std::span<Branch> branches_of(size_t extension);
  void prepare();
  void commit();
  void give_back();
  void make_branches(size_t extension);
  void take_branch(size_t extension, int node);
  bool fill_batch();
  uint64_t bytes_to_come() const;
  void expect_memory();  // throws Error(memory)
  void add_to_batch(size_t extension, size_t at, size_t n);
  template <class Take>
  bool evaluate(std::span<const CudaDraw> draws, Take take);
  void expect_finite() const;
  void keep_rows(size_t first_row, size_t first_token, bool last);
  template <class Draw>
  void verify(size_t extension, Draws& out, Draw draw);
  std::optional<TokenId> draw_on_cpu(const Extension& p, std::span<const float> logits,
                                     std::span<const TokenId> text, Draws& out) const;
  void copy_hidden(size_t extension, Draws& out) const;

  const std::span<const Extension> extensions_;
  Engine& engine_;
  KvCache& kv_;
  Pipeline& pipeline_;
  Result result_;
  size_t next_ = 0, at_ = 0;       // the extension and token that the next batch begins with
  uint64_t promised_ = 0;          // bytes of new memory for the pages of this batch and later ones
  std::vector<Branch> branches_;   // of all drafts, in the order of the extensions
  const float* rows_ = nullptr;    // in the result of the pipeline, or in its `kept_rows`
  const float* hidden_ = nullptr;  // for each token, likewise
};

}  // namespace chaski
