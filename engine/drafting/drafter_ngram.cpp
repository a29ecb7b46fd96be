// Drafts by looking back: what came after the longest end of the text that was there before
// (prompt lookup, Saxena 2023; by a suffix automaton, Hu et al. 2024), and what came after it, or
// after a shorter end, at other places.
#include <algorithm>
#include <bit>

#include "engine/drafting/drafter.h"
#include "engine/drafting/suffix_automaton.h"

namespace chaski {

namespace {

class NgramDrafter : public Drafter {
 public:
  bool costs_nothing() const override { return true; }
  int first_guesses() const override { return Draft::kFirst; }
  // Longer matches are right more often: 1, 2 to 3, 4 to 7, ...
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
      // A match that reaches up to the end of the text goes on with the guesses themselves.
      std::vector<TokenId> guesses;
      const int k = shape[size_t(number++)];
      for (size_t i = end; int(guesses.size()) < k; ++i)
        guesses.push_back(i < history.size() ? history[i] : guesses[i - history.size()]);
      draft.add(guesses);
    }
    return draft;
  }

 private:
  // The text grows, or another begins; that is seen at its end.
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

}  // namespace chaski
