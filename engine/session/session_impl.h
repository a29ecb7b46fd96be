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
  std::shared_ptr<Engine> engine;
  std::vector<TokenId> tokens;
  Tables tables;
  PrefixIndex::Link* link = nullptr;  // the last of its whole pages that the index has been told
  std::vector<Snapshot> snapshots;    // positions grow
  int snapshot_cells = 256;           // from one to the next; twice as many when there are too many
  uint64_t unchecked_bytes = 0;       // bytes taken since memory was last asked for
  std::vector<int32_t> pages_;        // of the page that the index is told

  Impl() = default;
  Impl(const Impl&) = delete;
  ~Impl() { move_link(nullptr); }

  EngineImpl& e() { return engine->impl(); }
  // Throws Error(memory) rather than waiting for the system to end the program. Small needs are not
  // worth the question, but many of them are.
  void expect_memory(int end);
  // Before the token at `position` is evaluated. `guess`: it may be taken back at once.
  void take_snapshot(int position, bool guess);
  // The whole pages of its tokens up to `end` go into the index, or are those that are there.
  void index_pages(int end);
  // Shares the pages that the index has of what `text` begins with, if they reach further than what
  // it holds, which is the beginning of `text`.
  void share_indexed(std::span<const TokenId> text);
  void move_link(PrefixIndex::Link* to);
};

}  // namespace chaski
