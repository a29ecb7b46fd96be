// Prompt lookup (Saxena 2023): drafts the tokens that followed the longest suffix of the text that
// also occurs earlier, found by a suffix automaton (Hu et al. 2024). Further branches are the
// tokens that followed it, or a shorter suffix, at other places.
#include <algorithm>
#include <bit>

#include "engine/drafting/drafters.h"
#include "engine/drafting/suffix_automaton.h"

namespace chaski {

namespace {

class NgramDrafter : public Drafter {
 public:
  bool costs_nothing() const override { return true; }
  int first_guesses() const override { return Draft::kFirst; }
  // Longer matches are accepted more often. Kinds are lengths of 1, 2 to 3, 4 to 7, ...
  int kind(std::span<const TokenId> history) override {
    read(history);
    const int length = text_.longest_match().length;
    return length == 0 ? -1 : std::min(int(std::bit_width(unsigned(length))) - 1, kKinds - 1);
  }

  Draft propose(std::span<const TokenId> history, const Draft::Shape& shape) override {
    read(history);
    int branches = 0;
    while (branches < Draft::kFirst && shape[size_t(branches)] > 0) ++branches;
    Draft draft;
    int number = 0;
    for (const size_t end : text_.continuations(branches)) {
      // A match that reaches the end of the text continues with the draft tokens themselves.
      std::vector<TokenId> guesses;
      const int k = shape[size_t(number++)];
      for (size_t i = end; int(guesses.size()) < k; ++i)
        guesses.push_back(i < history.size() ? history[i] : guesses[i - history.size()]);
      draft.add(guesses);
    }
    return draft;
  }

 private:
  // Adds the new tokens. If the last tokens differ from those read before, it is another text.
  void read(std::span<const TokenId> history) {
    constexpr size_t kSeen = 16;
    const size_t n = text_.size(), from = n - std::min(n, kSeen);
    if (history.size() < n ||
        !std::equal(history.begin() + ptrdiff_t(from), history.begin() + ptrdiff_t(n),
                    text_.text().begin() + ptrdiff_t(from)))
      text_.clear();
    for (const TokenId token : history.subspan(text_.size())) text_.push(token);
  }

  SuffixAutomaton text_;
};

}  // namespace

std::unique_ptr<Drafter> ngram_drafter() { return std::make_unique<NgramDrafter>(); }

extern const DrafterKind kNgramDrafter;
const DrafterKind kNgramDrafter = {
    "ngram", "what followed the same tokens earlier in the text",
    [](const DraftRequest& r, const HeadsFolder&) { return r.name == "ngram" || r.name == "auto"; },
    [](const DraftRequest&, const HeadsFolder&) -> NewDrafter {
      return [](const SamplerOptions&) { return ngram_drafter(); };
    }};

}  // namespace chaski
