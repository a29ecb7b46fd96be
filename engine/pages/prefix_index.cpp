#include "engine/pages/prefix_index.h"

#include <xxhash.h>

#include <algorithm>

#include "ggml-like-tensor/base/error.h"

namespace chaski {

uint64_t PrefixIndex::sum_of(std::span<const TokenId> tokens, uint64_t before) {
  return XXH3_64bits_withSeed(tokens.data(), tokens.size_bytes(), before);
}

PrefixIndex::PrefixIndex(std::vector<KvPool>& pools, Sum sum)
    : pools_(pools), sum_(sum), at_(pools.size()) {
  for (size_t i = 0; i < pools.size(); ++i)
    pools[i].on_gone([this, i](int32_t page) { remove(i, page); });
}

PrefixIndex::Link* PrefixIndex::look_up(uint64_t sum, const Link* before,
                                        std::span<const TokenId> tokens) {
  const auto [first, last] = links_.equal_range(sum);
  for (auto i = first; i != last; ++i)
    if (i->second.before == before &&
        std::ranges::equal(std::span(i->second.tokens).first(size_t(i->second.count)), tokens))
      return &i->second;
  return nullptr;
}

uint64_t PrefixIndex::sum_after(const Link* before, std::span<const TokenId> tokens) {
  ENSURE(!tokens.empty() && tokens.size() <= kPage, "a link is a page of tokens");
  ++sums_;
  return sum_(tokens, before ? before->sum : 0);
}

PrefixIndex::Link* PrefixIndex::find(const Link* before, std::span<const TokenId> tokens) {
  return look_up(sum_after(before, tokens), before, tokens);
}

PrefixIndex::Link* PrefixIndex::find_end(const Link* before, std::span<const TokenId> text) {
  if (ends_ == 0) return nullptr;
  for (size_t n = std::min(text.size(), size_t(kPage) - 1); n > 0; --n)
    if (Link* const link = find(before, text.first(n))) return link;
  return nullptr;
}

PrefixIndex::Link* PrefixIndex::add(Link* before, std::span<const TokenId> tokens,
                                    std::span<const int32_t> places) {
  ENSURE(places.size() == pools_.size(), "an entry for every pool");
  const uint64_t sum = sum_after(before, tokens);
  Link* link = look_up(sum, before, tokens);
  if (!link) {
    link = &links_.emplace(sum, Link())->second;
    link->sum = sum, link->before = before, link->count = int(tokens.size());
    link->end = (before ? before->end : 0) + link->count;
    ends_ += link->count < kPage;
    std::ranges::copy(tokens, link->tokens.begin());
    link->places.assign(pools_.size(), kNoPage);
    if (before) retain(before);
  }
  for (size_t i = 0; i < pools_.size(); ++i) {
    const int32_t page = places[i];
    if (page == kNoPage || link->places[i] != kNoPage || pools_[i].kept(page)) continue;
    if (at_[i].size() <= size_t(page)) at_[i].resize(size_t(page) + 1);
    at_[i][size_t(page)] = link;
    link->places[i] = page;
    retain(link);
    pools_[i].keep(page);
  }
  return link;
}

void PrefixIndex::release(Link* link) {
  while (link && --link->holders == 0) {
    Link* const before = link->before;
    ends_ -= link->count < kPage;
    const auto [first, last] = links_.equal_range(link->sum);
    links_.erase(std::find_if(first, last, [&](const auto& x) { return &x.second == link; }));
    link = before;
  }
}

void PrefixIndex::remove(size_t pool, int32_t page) {
  Link* const link = std::exchange(at_[pool][size_t(page)], nullptr);
  link->places[pool] = kNoPage;
  release(link);
}

}  // namespace chaski
