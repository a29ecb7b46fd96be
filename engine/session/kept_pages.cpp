// The bytes of a page: for each pool u8 1 and the blocks of its states by stage and state, or u8 0.
#include "engine/session/kept_pages.h"

#include <algorithm>
#include <cstring>

#include "engine/session/session_impl.h"
#include "ggml-like-tensor/base/cursor.h"
#include "ggml-like-tensor/base/memory.h"

namespace chaski {

namespace {

using PageLink = PrefixIndex::Link;

std::span<const TokenId> page_of(std::span<const TokenId> text, int page) {
  return text.subspan(size_t(page) * kPage, size_t(kPage));
}

// The link of page `page` - 1, or null if there is none or an earlier one is missing.
PageLink* link_before(PrefixIndex& index, std::span<const TokenId> text, int page) {
  PageLink* link = nullptr;
  for (int i = 0; i < page; ++i) {
    link = index.find(link, page_of(text, i));
    if (!link) return nullptr;
  }
  return link;
}

// Pages that are in use while this lives, so that none is evicted for another one. Afterwards the
// earlier page of a text counts as used later: without it the others are of no use.
class PagesInUse {
 public:
  explicit PagesInUse(std::vector<KvPool>& pools) : pools_(pools) {}
  ~PagesInUse() {
    for (auto i = held_.rbegin(); i != held_.rend(); ++i) pools_[i->first].release(i->second);
  }
  PagesInUse(const PagesInUse&) = delete;
  void share(size_t pool, int32_t page) {
    pools_[pool].share(page);
    held_.emplace_back(pool, page);
  }
  void own(size_t pool, int32_t page) { held_.emplace_back(pool, page); }

 private:
  std::vector<KvPool>& pools_;
  std::vector<std::pair<size_t, int32_t>> held_;
};

// A link that stays while this holds it.
class LinkInUse {
 public:
  explicit LinkInUse(PrefixIndex& index) : index_(index) {}
  ~LinkInUse() { hold(nullptr); }
  LinkInUse(const LinkInUse&) = delete;
  void hold(PageLink* link) {
    if (link) PrefixIndex::retain(link);
    if (held_) index_.release(held_);
    held_ = link;
  }

 private:
  PrefixIndex& index_;
  PageLink* held_ = nullptr;
};

// Whether the index has the recurrent states at the end of the link; true if there are none.
bool has_states(const KvCache& kv, const PageLink& link) {
  for (size_t pool = 0; pool < link.places.size(); ++pool)
    if (kv.states.pools[pool].recurrent && link.places[pool] == kNoPage) return false;
  return true;
}

size_t bytes_of_pools(const Engine& engine, bool recurrent) {
  size_t sum = 0;
  for (const StateLayout::Pool& pool : engine.kv_cache().states.pools)
    if (pool.recurrent == recurrent) sum += pool.page_bytes;
  return sum;
}

}  // namespace

bool has_kept_pages(const Engine& engine) {
  return engine.kv_cache().prefixes &&
         std::ranges::all_of(engine.pipeline().stages(),
                             [](const auto& stage) { return stage->host_states() != nullptr; });
}

size_t kept_page_bytes(const Engine& engine) {
  return std::max<size_t>(bytes_of_pools(engine, false), 1);
}
size_t kept_state_bytes(const Engine& engine) { return bytes_of_pools(engine, true); }

int last_state_page(Engine& engine, std::span<const TokenId> text, int end) {
  const KvCache& kv = engine.kv_cache();
  const PageLink* link = nullptr;
  int last = -1;
  for (int page = 0; page < end; ++page) {
    link = engine.kv_cache().prefixes->find(link, page_of(text, page));
    if (!link) break;
    if (has_states(kv, *link)) last = page;
  }
  return last;
}

int first_missing_page(Engine& engine, std::span<const TokenId> text, int end) {
  if (kept_state_bytes(engine) > 0) return last_state_page(engine, text, end) + 1;
  const PageLink* link = nullptr;
  for (int page = 0; page < end; ++page) {
    link = engine.kv_cache().prefixes->find(link, page_of(text, page));
    if (!link || std::ranges::count(link->places, kNoPage) > 0) return page;
  }
  return end;
}

std::vector<std::string> copy_pages(Engine& engine, std::span<const TokenId> text, int first,
                                    int end) {
  KvCache& kv = engine.kv_cache();
  const auto& pools = kv.states.pools;
  const bool only_states = std::ranges::all_of(pools, &StateLayout::Pool::recurrent);
  std::vector<std::string> out;
  const PageLink* link = link_before(*kv.prefixes, text, first);
  if (!link && first > 0) return out;
  for (int page = first; page < end; ++page) {
    link = kv.prefixes->find(link, page_of(text, page));
    // Without pages, nothing would hold the link that is made of it.
    if (!link ||
        (!only_states && size_t(std::ranges::count(link->places, kNoPage)) == pools.size()))
      return out;
    std::string bytes;
    for (size_t pool = 0; pool < pools.size(); ++pool) {
      const bool wanted = !pools[pool].recurrent || size_t(page + 1) * kPage == text.size();
      const int32_t place = wanted ? link->places[pool] : kNoPage;
      // Every later token attends to a page of a pool without a window, so the copy ends before a
      // missing one. A last page without its recurrent state would count as stored, and the state
      // would never be added.
      if (place == kNoPage && (pools[pool].recurrent ? wanted : pools[pool].window == 0))
        return out;
      bytes += place == kNoPage ? '\0' : '\1';
      if (place == kNoPage) continue;
      each_block(engine, int(pool), place, [&](const std::byte* block, size_t n) {
        bytes.append(reinterpret_cast<const char*>(block), n);
      });
    }
    out.push_back(std::move(bytes));
  }
  return out;
}

int put_pages(Engine& engine, std::span<const TokenId> text, int first,
              std::span<const std::span<const std::byte>> pages, const std::string& name) {
  KvCache& kv = engine.kv_cache();
  PrefixIndex& index = *kv.prefixes;
  const auto have = available_pages();
  size_t bytes = 0;
  for (const auto& page : pages) bytes += page.size();
  if (have && bytes > *have / 2) return 0;
  PagesInUse held(kv.pools);
  PageLink* link = nullptr;
  for (int page = 0; page < first; ++page) {
    link = index.find(link, page_of(text, page));
    if (!link) return 0;
    for (size_t pool = 0; pool < link->places.size(); ++pool)
      if (link->places[pool] != kNoPage) held.share(pool, link->places[pool]);
  }
  std::vector<int32_t> places(kv.pools.size());
  // Links without pages are held by the link after them, the last one by this.
  LinkInUse last(index);
  for (size_t i = 0; i < pages.size(); ++i) {
    const std::span<const TokenId> tokens = page_of(text, first + int(i));
    const PageLink* const known = index.find(link, tokens);
    Cursor in(name, pages[i]);
    for (size_t pool = 0; pool < places.size(); ++pool) {
      places[pool] = kNoPage;
      size_t known_bytes = 0;
      if (in.take<uint8_t>("pool") == 0) continue;
      if (known && known->places[pool] != kNoPage) {
        held.share(pool, known->places[pool]);
        each_block(engine, int(pool), known->places[pool],
                   [&](const std::byte*, size_t n) { known_bytes += n; });
        in.raw(known_bytes, "page");
        continue;
      }
      const std::optional<int32_t> place = kv.pools[pool].try_take();
      if (!place) return int(i);
      held.own(pool, *place);
      each_block(engine, int(pool), *place, [&](std::byte* block, size_t n) {
        std::memcpy(block, in.raw(n, "page").data(), n);
      });
      places[pool] = *place;
    }
    if (in.remaining() > 0)
      fail(Exit::bad_file, "{}: page {} has {} bytes too many", name, first + int(i),
           in.remaining());
    last.hold(link = index.add(link, tokens, places));
  }
  return int(pages.size());
}

}  // namespace chaski
