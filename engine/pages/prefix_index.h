// The prefix cache: an index of all whole pages of 16 tokens that sessions of an engine have read.
// A session whose text begins with the same tokens shares these pages and reads only the rest
// (Session::reuse()). The other session may have ended: its pages stay until the pool needs their
// memory (kv_pool.h).
//
// Sharing is exact. The contents of a page depend, bit for bit, only on its tokens and those before
// it. Pages are looked up by a hash of all these tokens, and then the page's tokens and its
// predecessor are compared, so a hash collision cannot return a wrong page.
//
// Only the thread that makes the passes of the engine uses the index.
#pragma once
#include <array>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/pages/kv_pool.h"
#include "engine/text/tokenizer/tokenizer.h"
#include "ggml-like-tensor/kv_layout.h"

namespace chaski {

class PrefixIndex {
 public:
  // A page of 16 tokens. A text is a chain of links. The last link of a text that ended within a
  // page has fewer tokens, and no link after it.
  struct Link {
    uint64_t sum = 0;        // hash of all tokens up to its last
    Link* before = nullptr;  // the previous link; null: the text begins here
    int end = 0;             // number of tokens up to its last
    std::array<TokenId, kPage> tokens{};
    int count = kPage;  // of its tokens
    // By pool: its page, or kNoPage. Of recurrent states: the snapshot after the link's last token,
    // which few links have.
    std::vector<int32_t> places;
    // References: pools that have its page, links after it, and sessions that end with it. The link
    // is removed when there are none.
    int holders = 0;
  };

  // The hash of at most 16 tokens that follow tokens with the hash `before`.
  using Sum = uint64_t (*)(std::span<const TokenId> tokens, uint64_t before);
  static uint64_t sum_of(std::span<const TokenId> tokens, uint64_t before);

  // Over all pools of an engine, which outlive this.
  explicit PrefixIndex(std::vector<KvPool>& pools, Sum sum = sum_of);
  PrefixIndex(const PrefixIndex&) = delete;

  // The link of these tokens, at most 16, after `before` (null: at the beginning), or null.
  Link* find(const Link* before, std::span<const TokenId> tokens);
  // The longest link of fewer than 16 tokens after `before` with which `text` begins, or null.
  Link* find_end(const Link* before, std::span<const TokenId> text);
  // The same, but makes the link if there is none. Pools that have no page for it get the page of
  // `places`, which is kept from now on.
  Link* add(Link* before, std::span<const TokenId> tokens, std::span<const int32_t> places);
  static void retain(Link* link) { ++link->holders; }
  void release(Link* link);

  size_t size() const { return links_.size(); }
  uint64_t sums() const { return sums_; }  // hashes computed so far

 private:
  // By hash. Elements keep their addresses.
  using Links = std::unordered_multimap<uint64_t, Link>;
  Link* look_up(uint64_t sum, const Link* before, std::span<const TokenId> tokens);
  uint64_t sum_after(const Link* before, std::span<const TokenId> tokens);
  void remove(size_t pool, int32_t page);

  std::vector<KvPool>& pools_;
  const Sum sum_;
  Links links_;
  std::vector<std::vector<Link*>> at_;  // (pools, pages): the link of a page
  uint64_t sums_ = 0;
  size_t ends_ = 0;  // links of fewer than 16 tokens
};

}  // namespace chaski
