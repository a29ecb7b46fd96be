// The state of a Session. Private to engine/session.
#pragma once
#include "engine/pages/kv_cache.h"
#include "engine/pages/page_table.h"
#include "engine/passes/pipeline.h"
#include "engine/session/session.h"

namespace chaski {

struct Session::Impl {
  using Tables = std::vector<PageTable>;  // by pool of states
  // An earlier state to rewind to, for models with recurrent states. With a prefix index, which has
  // others, these are only those for drafts.
  struct Snapshot {
    int position;
    Tables tables;
  };
  std::shared_ptr<Engine> engine;
  std::vector<TokenId> tokens;
  Tables tables;
  PrefixIndex::Link* link = nullptr;  // of the last whole page that is in the prefix index
  std::vector<Snapshot> snapshots;    // in ascending order of position
  int snapshot_cells = 256;           // distance of snapshots; doubled when there are too many
  int prompt_end = 0;                 // where a prompt began, or the last border of its batches
  // If one is set, index_end() adds nothing. `tentative`: the last tokens are likely to be rewound,
  // or come from the session that this one was forked from. `drops_end`: drop_end() was called.
  bool tentative = false, drops_end = false;
  std::vector<int32_t> pages_;  // by pool: scratch of index_pages()

  Impl() = default;
  Impl(const Impl&) = delete;
  ~Impl();

  KvCache& kv() { return engine->kv_cache(); }
  // Call before the token at `position` is computed. `draft`: it may be rewound at once.
  void take_snapshot(int position, bool draft);
  // Adds the whole pages up to token `end` to the prefix index. If the index already has a page
  // with these tokens, the session uses that one instead of its own. Recurrent states are added
  // where a snapshot is due: at multiples of kStateStep.
  void index_pages(int end);
  // The same in a pass, before its token `end`, where batch_end() divided it. A snapshot is due
  // there. `more`: the tokens of the pass, which come after `tokens`.
  void index_part(int end, std::span<const TokenId> more);
  // The same for all tokens, and with recurrent states also the state after the last token and the
  // page that it does not fill. Call before the session leaves its text: nothing is copied, and a
  // text that goes on from there need not be read again.
  void index_end();
  // For a restored session: adds the pages up to `position`, and the recurrent states there, which
  // are in `places` (by pool).
  void index_state(int position, std::span<const int32_t> places);
  // Where a batch of the session that begins at `cell` ends, so that the index gets a snapshot: at
  // `end` or before. `all`: the text, as far as it is known, ends there.
  int batch_end(int cell, int end, bool all) const;
  // The last link of the session, up to `position`, whose recurrent states the index has and where
  // the session's other states can continue; or null.
  const PrefixIndex::Link* indexed_state(int position) const;
  // Shares the pages that the prefix index has for the beginning of `text`, if they are more than
  // the session holds. The session's tokens must be a beginning of `text`.
  void share_indexed(std::span<const TokenId> text);
  void move_link(PrefixIndex::Link* to);
  bool has_recurrent() const;

 private:
  void index(int end, std::span<const TokenId> more, bool due);
  void index_page(int page, std::span<const TokenId> tokens);
  void refresh_prompt_state();
};

// Identifies a model by its hyperparameters and by samples of every tensor.
uint64_t sum_of_model(const Engine& engine);

// Calls take(address, bytes) for each block of a page whose states are all on the host: by stage
// and state.
template <class Take>
void each_block(const Engine& engine, int pool, int32_t page, Take take) {
  for (const auto& stage : engine.pipeline().stages())
    stage->host_states()->copy_page(
        pool, page, page,
        [&](std::byte* block, const std::byte*, size_t bytes) { take(block, bytes); });
}

// The most pages of a pool that a branch takes if the draft has `tokens` tokens. They may begin and
// end within a page, and the first page is a copy of one that the branch shares.
inline int64_t pages_of_branch(int tokens) { return tokens / kPage + 2; }

}  // namespace chaski
