// The inside of Session: private to engine/.
#pragma once
#include "engine/pages/page_table.h"
#include "engine/session/engine_impl.h"
#include "engine/session/session.h"

namespace chaski {

struct Session::Impl {
  using Tables = std::vector<PageTable>;  // by pool of states
  // What the session was, when a recurrent state makes going back impossible otherwise.
  struct Snapshot {
    int position;
    Tables tables;
  };
  // Guesses [first, end) of the draft in the pass, behind those of `before`, which are in other
  // branches: it stores their keys and values too.
  struct Branch {
    int first, end;
    std::vector<int> before;
    Tables tables;
    // guess < 0: a token of the text
    bool sees(int guess) const;
    bool has(int guess) const { return guess >= first && guess < end; }
  };

  std::shared_ptr<Engine> engine;
  std::vector<TokenId> tokens;
  Tables tables;
  PrefixIndex::Link* link = nullptr;  // the last of its whole pages that the index has been told
  std::vector<Branch> branches;       // of a draft, besides the first, which has the tables
  std::vector<Snapshot> snapshots;    // positions grow
  int snapshot_cells = 256;           // from one to the next; twice as many when there are too many
  uint64_t unasked = 0;               // bytes taken since memory was last asked for
  std::vector<float> rows_;           // of the last extend() or hidden()
  std::vector<float> hidden_;         // of all tokens of its passes, if these were for both
  std::vector<int32_t> places_;       // of the page that the index is told

  Impl() = default;
  Impl(const Impl&) = delete;
  ~Impl() { stand_at(nullptr); }

  EngineImpl& e() { return engine->impl(); }
  // Throws Error(memory) rather than waiting for the system to end the program. Small needs are not
  // worth the question, but many of them are.
  void expect_memory(int end);
  // Before the token at `position` is evaluated. `guess`: it may be taken back at once.
  void remember(int position, bool guess);
  // The whole pages of its tokens up to `end` go into the index, or are those that are there.
  void tell(int end);
  // Shares the pages that the index has of what `text` begins with, if they reach further than what
  // it holds, which is the beginning of `text`.
  void share_known(std::span<const TokenId> text);
  void stand_at(PrefixIndex::Link* to);
  // Before a pass: the branches of its draft.
  void branch_out(const Extension& p);
  // After it: the text goes on as far as this guess, in the pages of its branch.
  void take_branch(int guess);
  // The next n tokens and guesses of an extension, from its `at`-th on, go into the pass.
  void join(Batch& b, const Extension& p, size_t at, size_t n);
  template <class Take>
  static void each_pass(std::span<const Extension> extensions, Result what,
                        std::span<const CudaDraw> draws, const std::atomic<bool>* stop, Take take);
  // Appends the tokens; a row for each wanted one. Throws Error(non_finite) of a row that is not
  // finite if that is `checked`.
  static std::span<const float> rows(std::span<const Extension> extensions, Result what,
                                     bool checked = true, const std::atomic<bool>* stop = nullptr);
  // take(row, values) of each wanted token, in order.
  template <class Take>
  static void each_row(std::span<const Extension> extensions, Result what, bool checked,
                       const std::atomic<bool>* stop, Take take);
  static void drawn(std::span<const Extension> extensions, std::vector<Draws>& out);
  std::vector<float> hidden_of(const Extension& p, size_t token, int right);
  template <class Draw>
  static void draws_of(const Extension& p, Draws& out, Draw draw);
};

}  // namespace chaski
