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

}  // namespace

bool has_kept_pages(const Engine& engine) {
  const KvCache& kv = engine.kv_cache();
  return kv.prefixes && std::ranges::none_of(kv.states.pools, &StateLayout::Pool::recurrent) &&
         std::ranges::all_of(engine.pipeline().stages(),
                             [](const auto& stage) { return stage->host_states() != nullptr; });
}

size_t kept_page_bytes(const Engine& engine) { return engine.kv_cache().states.page_bytes(); }

int first_missing_page(Engine& engine, std::span<const TokenId> text, int end) {
  PrefixIndex& index = *engine.kv_cache().prefixes;
  const PageLink* link = nullptr;
  for (int page = 0; page < end; ++page) {
    link = index.find(link, page_of(text, page));
    if (!link || std::ranges::count(link->places, kNoPage) > 0) return page;
  }
  return end;
}

std::vector<std::string> copy_pages(Engine& engine, std::span<const TokenId> text, int first,
                                    int end) {
  KvCache& kv = engine.kv_cache();
  std::vector<std::string> out;
  const PageLink* link = link_before(*kv.prefixes, text, first);
  if (!link && first > 0) return out;
  for (int page = first; page < end; ++page) {
    link = kv.prefixes->find(link, page_of(text, page));
    // Without pages, nothing would hold the link that is made of it.
    if (!link || size_t(std::ranges::count(link->places, kNoPage)) == link->places.size())
      return out;
    std::string bytes;
    bytes.reserve(kept_page_bytes(engine) + link->places.size());
    for (size_t pool = 0; pool < link->places.size(); ++pool) {
      const int32_t place = link->places[pool];
      // Without a window, each later token attends to the page.
      if (place == kNoPage && kv.states.pools[pool].window == 0) return out;
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
  if (have && pages.size() * kept_page_bytes(engine) > *have / 2) return 0;
  PagesInUse held(kv.pools);
  PageLink* link = nullptr;
  for (int page = 0; page < first; ++page) {
    link = index.find(link, page_of(text, page));
    if (!link) return 0;
    for (size_t pool = 0; pool < link->places.size(); ++pool)
      if (link->places[pool] != kNoPage) held.share(pool, link->places[pool]);
  }
  std::vector<int32_t> places(kv.pools.size());
  for (size_t i = 0; i < pages.size(); ++i) {
    const std::span<const TokenId> tokens = page_of(text, first + int(i));
    const PageLink* const known = index.find(link, tokens);
    Cursor in(name, pages[i]);
    for (size_t pool = 0; pool < places.size(); ++pool) {
      places[pool] = kNoPage;
      size_t bytes = 0;
      if (in.take<uint8_t>("pool") == 0) continue;
      if (known && known->places[pool] != kNoPage) {
        held.share(pool, known->places[pool]);
        each_block(engine, int(pool), known->places[pool],
                   [&](const std::byte*, size_t n) { bytes += n; });
        in.raw(bytes, "page");
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
    if (!known && size_t(std::ranges::count(places, kNoPage)) == places.size()) return int(i);
    link = index.add(link, tokens, places);
  }
  return int(pages.size());
}

}  // namespace chaski
