// The merge loop of tokenizers that join pieces: joins the best pair of neighbours (the leftmost of
// equals) until no pair joins. O(n log n) for n symbols of any text, with a heap over a linked list
// (like SentencePiece's bpe_model.cc). The caller decides which pairs join and at what cost.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <queue>
#include <string_view>
#include <vector>

namespace chaski {

struct Symbol {
  std::string_view text;  // empty: joined to an earlier symbol
  int32_t id;             // token, or -1 if the vocabulary has none
};

struct PairJoin {
  double cost;  // the lowest is joined first
  int32_t id;   // the joined token
};

// For the length of a word, checking all pairs again after each join is faster than a heap.
constexpr size_t kFew = 32;

// The same as merge_pairs(), for at most kFew symbols.
template <class JoinFunction>
void merge_few(std::vector<Symbol>& symbols, const JoinFunction& join) {
  std::optional<PairJoin> joins[kFew];  // of each symbol with the next one
  size_t count = symbols.size();
  const auto update = [&](size_t i) {
    joins[i] = i + 1 < count ? join(symbols[i], symbols[i + 1]) : std::nullopt;
  };
  for (size_t i = 0; i < count; ++i) update(i);
  for (;;) {
    size_t best = count;
    for (size_t i = 0; i + 1 < count; ++i)
      if (joins[i] && (best == count || joins[i]->cost < joins[best]->cost)) best = i;
    if (best == count) break;
    Symbol& left = symbols[best];
    left = {{left.text.data(), left.text.size() + symbols[best + 1].text.size()}, joins[best]->id};
    --count;
    for (size_t i = best + 1; i < count; ++i) symbols[i] = symbols[i + 1], joins[i] = joins[i + 1];
    update(best);
    if (best > 0) update(best - 1);
  }
  symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(count), symbols.end());
}

// `join(left, right)` returns an optional<PairJoin> for two symbols whose texts are adjacent. There
// must be fewer than 2^31 symbols. The result is in `symbols`, in order.
template <class JoinFunction>
void merge_pairs(std::vector<Symbol>& symbols, const JoinFunction& join) {
  struct Candidate {
    double cost;
    int32_t left, right, id;
    // bytes of both when the candidate was made; another sum later means that one has changed
    size_t bytes;
    bool operator<(const Candidate& other) const {  // std::priority_queue returns the largest
      return cost != other.cost ? cost > other.cost : left > other.left;
    }
  };
  struct Link {
    int32_t before, after;
  };
  if (symbols.size() <= kFew) return merge_few(symbols, join);
  const auto count = static_cast<int32_t>(symbols.size());
  std::vector<Link> links(symbols.size());
  std::priority_queue<Candidate> queue;

  const auto consider = [&](int32_t left, int32_t right) {
    if (left < 0 || right >= count) return;
    if (const std::optional<PairJoin> joined = join(symbols[left], symbols[right]))
      queue.push({joined->cost, left, right, joined->id,
                  symbols[left].text.size() + symbols[right].text.size()});
  };
  for (int32_t i = 0; i < count; ++i) links[i] = {i - 1, i + 1};
  for (int32_t i = 1; i < count; ++i) consider(i - 1, i);

  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = symbols[best.left];
    Symbol& right = symbols[best.right];
    if (left.text.empty() || right.text.empty() ||
        left.text.size() + right.text.size() != best.bytes)
      continue;
    left = {std::string_view(left.text.data(), best.bytes), best.id};
    right.text = {};
    links[best.left].after = links[best.right].after;
    if (links[best.left].after < count) links[links[best.left].after].before = best.left;
    consider(links[best.left].before, best.left);
    consider(best.left, links[best.left].after);
  }
  std::erase_if(symbols, [](const Symbol& symbol) { return symbol.text.empty(); });
}

}  // namespace chaski
