#include "engine/grammar/grammar.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace chaski {

namespace {

constexpr size_t kMostMaskBytes = 64 << 20;
// A mask with at most 1/64 of the vocabulary is stored as a list.
constexpr int kFewOf = 64;
// Bytes to look ahead for forced tokens.
constexpr size_t kMostForced = 64;

}  // namespace

Grammar::Grammar(std::shared_ptr<const Rules> rules, const Tokenizer& tokenizer,
                 std::shared_ptr<const TokenTrie> trie)
    : rules_(std::move(rules)),
      tokenizer_(tokenizer),
      recognizer_(*rules_),
      trie_(trie ? std::move(trie) : std::make_shared<const TokenTrie>(tokenizer)) {
  for (TokenId id = 0; id < tokenizer.size(); ++id)
    if (tokenizer.is_end(id)) end_tokens_.push_back(id);
  for (const Rules::TokenLiteral& l : rules_->literals()) {
    const TokenId id = l.id < 0 ? tokenizer.find(l.text).value_or(-1) : l.id;
    if (id < 0 || id >= tokenizer.size())
      fail(rules_->code(), "{}: {}: {} is no token of the model, which has {} tokens",
           rules_->name(), l.place, l.shown(), tokenizer.size());
    if (tokenizer.is_end(id))
      fail(rules_->code(), "{}: {}: {} ends the text, expected another token", rules_->name(),
           l.place, l.shown());
    literals_.push_back(id);
  }
}

Grammar::Place Grammar::after(Place place, TokenId token, std::string_view text) {
  recognizer_.allow_work();
  const Place by_bytes =
      TokenTrie::takes(tokenizer_, token) ? recognizer_.read(place, text) : Recognizer::kNowhere;
  if (literals_.empty()) return by_bytes;
  return recognizer_.after_token(place, by_bytes, [&](int32_t literal) {
    const bool same = literals_[size_t(literal)] == token;
    return rules_->literals()[size_t(literal)].others ? !same && TokenTrie::takes(tokenizer_, token)
                                                      : same;
  });
}

void Grammar::allow_literals(Place place) {
  if (literals_.empty()) return;
  for (const int32_t literal : recognizer_.literals(place)) {
    const TokenId named = literals_[size_t(literal)];
    if (!rules_->literals()[size_t(literal)].others) {
      set(named);
      continue;
    }
    for (TokenId id = 0; id < tokenizer_.size(); ++id)
      if (id != named && TokenTrie::takes(tokenizer_, id)) set(id);
  }
}

bool Grammar::Mask::has(TokenId token) const {
  if (bits.empty()) return std::find(few.begin(), few.end(), token) != few.end();
  return bits[size_t(token) / 64] >> token % 64 & 1;
}

Grammar::Mask Grammar::made() {
  Mask mask;
  for (const uint64_t word : bits_) mask.count += std::popcount(word);
  if (mask.count > tokenizer_.size() / kFewOf)
    mask.bits = bits_;
  else
    for (size_t i = 0; i < bits_.size(); ++i)
      for (uint64_t word = bits_[i]; word != 0; word &= word - 1)
        mask.few.push_back(TokenId(i * 64) + std::countr_zero(word));
  mask_bytes_ += mask.few.size() * sizeof(TokenId) + mask.bits.size() * sizeof(uint64_t);
  return mask;
}

const Grammar::Mask& Grammar::mask(Place place) {
  const auto known = masks_.find(place);
  if (known != masks_.end()) return known->second;
  recognizer_.allow_work();
  bits_.assign(trie_->bit_words(), 0);
  trie_->allow(recognizer_, place, bits_);
  allow_literals(place);
  if (recognizer_.may_end(place))
    for (const TokenId token : end_tokens_) set(token);
  return masks_.emplace(place, made()).first->second;
}

const Grammar::Mask& Grammar::opening_mask() {
  if (opening_) return *opening_;
  recognizer_.allow_work();
  bits_.assign(trie_->bit_words(), 0);
  const Place start = recognizer_.start();
  for (TokenId id = 0; id < tokenizer_.size(); ++id) {
    const std::string text = TokenTrie::takes(tokenizer_, id) ? tokenizer_.decode({&id, 1}) : "";
    if (text.empty() ? tokenizer_.is_end(id) && recognizer_.may_end(start)
                     : recognizer_.read(start, text) != Recognizer::kNowhere)
      set(id);
  }
  allow_literals(start);
  return opening_.emplace(made());
}

void Grammar::stay_small() {
  if (mask_bytes_ <= kMostMaskBytes && !recognizer_.is_full()) return;
  recognizer_.clear();
  masks_.clear(), opening_.reset();
  mask_bytes_ = 0;
  ++generation_;
}

std::string GrammarText::text_of(TokenId token, bool first) const {
  const Tokenizer& t = grammar_.tokenizer();
  return first && opens_ ? t.decode({&token, 1}) : std::string(t.piece(token));
}

GrammarText::Here GrammarText::after(const Here& before, TokenId token, bool first) {
  const std::string text = text_of(token, first);
  if (!grammar_.rules().has_distinct()) return {grammar_.after(before.place, token, text), {}};
  grammar_.recognizer().allow_work();
  Here next = before;
  next.place = TokenTrie::takes(grammar_.tokenizer(), token)
                   ? next.items.read(grammar_.recognizer(), before.place, text)
                   : Recognizer::kNowhere;
  return next;
}

GrammarText::Here GrammarText::here() {
  if (generation_ == grammar_.generation()) return here_;
  generation_ = grammar_.generation();
  here_ = {grammar_.recognizer().start(), {}};
  for (size_t i = 0; i < tokens_.size(); ++i) here_ = after(here_, tokens_[i], i == 0);
  return here_;
}

void GrammarText::take(TokenId token) {
  const Here next = after(here(), token, tokens_.empty());
  ENSURE(next.place != Recognizer::kNowhere, "the grammar allows a drawn token");
  tokens_.push_back(token);
  here_ = next;
}

// Removes tokens that the mask allows from logits_.
void GrammarText::forbid_used_items(const Here& at, bool first) {
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  const Tokenizer& t = grammar_.tokenizer();
  bool any = false;
  for (TokenId id = 0; id < TokenId(logits_.size()); ++id) {
    if (logits_[size_t(id)] == kNever) continue;
    const bool allowed = at.items.surely_allows(t.piece(id)) || !TokenTrie::takes(t, id) ||
                         after(at, id, first).place != Recognizer::kNowhere;
    if (!allowed) logits_[size_t(id)] = kNever;
    any |= allowed;
  }
  if (!any)
    fail(grammar_.rules().code(),
         "{}: after {} tokens, every item that may follow has occurred in its list (uniqueItems)",
         grammar_.rules().name(), tokens_.size());
}

bool GrammarText::accepts(std::string_view text) {
  Recognizer& r = grammar_.recognizer();
  r.allow_work();
  const Place end = r.read(r.start(), text);
  return end != Recognizer::kNowhere && r.may_end(end);
}

std::span<const float> GrammarText::allowed(std::span<const float> logits,
                                            std::span<const TokenId> history) {
  grammar_.stay_small();
  Here place = here();
  bool first = tokens_.empty();
  for (const TokenId draft : history.subspan(history_)) {
    place = after(place, draft, first);
    first = false;
  }
  const Grammar::Mask& mask =
      first && opens_ ? grammar_.opening_mask() : grammar_.mask(place.place);
  if (mask.count == 0)
    fail(grammar_.rules().code(),
         "{}: the vocabulary has no token that the grammar allows here, after {} tokens",
         grammar_.rules().name(), tokens_.size());
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  logits_.resize(logits.size());
  if (mask.bits.empty()) {
    std::fill(logits_.begin(), logits_.end(), kNever);
    for (const TokenId t : mask.few) logits_[size_t(t)] = logits[size_t(t)];
  } else {
    std::copy(logits.begin(), logits.end(), logits_.begin());
    for (size_t i = 0; i < mask.bits.size(); ++i)
      for (uint64_t not_allowed = ~mask.bits[i]; not_allowed != 0; not_allowed &= not_allowed - 1)
        if (const size_t t = i * 64 + size_t(std::countr_zero(not_allowed)); t < logits_.size())
          logits_[t] = kNever;
  }
  if (grammar_.rules().has_distinct()) forbid_used_items(place, first);
  return logits_;
}

std::vector<TokenId> GrammarText::forced(int most) {
  // If most were rejected, the model writes such bytes with other tokens than the longest ones.
  constexpr int kTried = 8;
  const bool only_sure = drafted_ >= kTried && 2 * accepted_ < drafted_;
  std::vector<TokenId> out;
  Recognizer& r = grammar_.recognizer();
  if (opens_ && tokens_.empty()) return out;
  r.allow_work();
  std::string bytes;
  Here known = here();
  Place begin = known.place, end = begin;
  while (int(out.size()) < most) {
    for (int byte; bytes.size() < kMostForced && (byte = r.only_byte(end)) >= 0;
         bytes += char(byte))
      end = r.step(end, uint8_t(byte));
    const auto [token, size] = grammar_.trie().longest(bytes);
    if (size == 0 || (only_sure && grammar_.mask(begin).count > 1)) break;
    if (grammar_.rules().has_distinct()) {
      known = after(known, token, false);
      if (known.place == Recognizer::kNowhere) break;
    }
    out.push_back(token);
    begin = r.read(begin, std::string_view(bytes).substr(0, size));
    bytes.erase(0, size);
  }
  return out;
}

Draft GrammarText::fitting(const Draft& draft) {
  std::vector<Here> places(draft.nodes.size());
  return draft.only([&](size_t i) {
    const auto [token, parent] = draft.nodes[i];
    places[i] =
        after(parent < 0 ? here() : places[size_t(parent)], token, tokens_.empty() && parent < 0);
    return places[i].place != Recognizer::kNowhere;
  });
}

}  // namespace chaski
