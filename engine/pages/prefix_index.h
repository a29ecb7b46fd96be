// Which pages hold which beginnings of texts, over all sequences of an engine: of every whole page
// of 16 tokens that a session has read, the tokens, the page before it, and where its keys and
// values lie. A session whose text begins alike shares these pages and reads what stands behind
// them (Session::reuse()), whether the other still runs or ended long ago: a page that nobody holds
// stays until its pool wants room (kv_pool.h).
//
// Exact: what a page holds depends on its tokens and those before them and on nothing else, bit for
// bit. Sums of all tokens up to a page's last only say where to look; what is found has the same
// tokens behind the same page, and so the same text from its first token on.
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
  // A page of 16 tokens in the chain that is a text.
  struct Link {
    uint64_t sum = 0;        // of all tokens up to its last
    Link* before = nullptr;  // null: the text begins with it
    int end = 0;             // tokens up to its last
    std::array<TokenId, kPage> tokens{};
    std::vector<int32_t> places;  // by pool: the page there, or kNoPage
    // Pools that have it, links behind it, sessions that stand at it. Without any it is forgotten.
    int holders = 0;
  };

  // Of 16 tokens behind tokens with the sum `before`.
  using Sum = uint64_t (*)(std::span<const TokenId> tokens, uint64_t before);
  static uint64_t sum_of(std::span<const TokenId> tokens, uint64_t before);

  // Over all pools of an engine, which outlive it. None may be of recurrent states.
  explicit PrefixIndex(std::vector<KvPool>& pools, Sum sum = sum_of);
  PrefixIndex(const PrefixIndex&) = delete;

  // The page of these 16 tokens behind `before` (null: at the beginning); null if there is none.
  Link* find(const Link* before, std::span<const TokenId> tokens);
  // The same, made if there is none. What of it no pool has lies in these places from now on.
  Link* add(Link* before, std::span<const TokenId> tokens, std::span<const int32_t> places);
  static void hold(Link* link) { ++link->holders; }
  void let_go(Link* link);

  size_t size() const { return links_.size(); }
  uint64_t sums() const { return sums_; }  // that were made so far

 private:
  // By sum. What lies in it keeps its address.
  using Links = std::unordered_multimap<uint64_t, Link>;
  Link* look_up(uint64_t sum, const Link* before, std::span<const TokenId> tokens);
  uint64_t sum_behind(const Link* before, std::span<const TokenId> tokens);
  void forget(size_t pool, int32_t page);

  std::vector<KvPool>& pools_;
  const Sum sum_;
  Links links_;
  std::vector<std::vector<Link*>> at_;  // (pools, pages): what lies there
  uint64_t sums_ = 0;
};

}  // namespace chaski
