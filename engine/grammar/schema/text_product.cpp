#include "engine/grammar/schema/text_product.h"

#include <algorithm>
#include <bitset>
#include <map>

#include "engine/grammar/schema/json_parts.h"

namespace chaski {

namespace {

// Any text in UTF-8: a negation must not allow parts of characters.
std::shared_ptr<const Rules> any_text() {
  auto rules = std::make_shared<Rules>(GrammarSource{"any text", ""});
  const Rules::Rule root = rules->declare("root");
  rules->define(root, rules->repeated(rules->one_of(CodeSet::all()), 0, Rules::kUnlimited));
  rules->finish(root);
  return rules;
}

}  // namespace

TextProduct::TextProduct() { add(any_text(), true); }

void TextProduct::add(std::shared_ptr<const Rules> rules, bool fits) {
  const Rules& r = *rules;
  members_.push_back({std::move(rules), fits, Recognizer(r)});
  members_.back().recognizer.allow_work();  // once for all steps
}

// Moves to the state after a byte. False if no text with these bytes fits.
bool TextProduct::read(Tuple& at, uint8_t byte) {
  for (size_t i = 0; i < members_.size(); ++i) {
    if (at[i] == Recognizer::kNowhere) continue;
    at[i] = members_[i].recognizer.step(at[i], byte);
    if (at[i] == Recognizer::kNowhere && members_[i].fits) return false;
  }
  const int matters = most_ == Rules::kUnlimited ? least_ : most_ + 1;
  if ((byte & 0xC0) != 0x80) at.back() = std::min(at.back() + 1, matters);
  return most_ == Rules::kUnlimited || at.back() <= most_;
}

bool TextProduct::may_end(const Tuple& at) const {
  if (at.back() < least_) return false;
  for (size_t i = 0; i < members_.size(); ++i) {
    const Member& m = members_[i];
    if ((at[i] != Recognizer::kNowhere && m.recognizer.may_end(at[i])) != m.fits) return false;
  }
  return true;
}

// The first byte of each range of bytes that no automaton distinguishes.
std::vector<uint8_t> TextProduct::byte_classes() const {
  std::bitset<257> begins;
  begins.set(0), begins.set(0x80), begins.set(0xC0);
  for (int b = 0; b < 0x80; ++b)
    if (!JsonParts::escape(uint8_t(b)).empty()) begins.set(size_t(b)), begins.set(size_t(b) + 1);
  for (const Member& m : members_)
    for (Rules::State s = 0; s < m.rules->states(); ++s)
      for (const Rules::ByteEdge& e : m.rules->bytes(s))
        begins.set(e.low), begins.set(size_t(e.high) + 1);
  std::vector<uint8_t> first;
  for (size_t b = 0; b < 256; ++b)
    if (begins[b]) first.push_back(uint8_t(b));
  return first;
}

std::optional<Rules::Part> TextProduct::part(Rules& rules) {
  const std::vector<uint8_t> classes = byte_classes();
  std::map<Tuple, Rules::State> known;
  std::vector<std::map<Tuple, Rules::State>::const_iterator> open;
  const auto state_of = [&](const Tuple& at) {
    const auto [found, fresh] = known.try_emplace(at, -1);
    if (fresh) found->second = rules.state(), open.push_back(found);
    return found->second;
  };
  Tuple start;
  for (Member& m : members_) start.push_back(m.recognizer.start());
  start.push_back(0);
  const Rules::Part whole{state_of(start), rules.state()};
  while (!open.empty()) {
    states_ = known.size();
    if (states_ > kMostStates) return std::nullopt;
    const auto [at, from] = *open.back();
    open.pop_back();
    if (may_end(at)) rules.skip(from, whole.end);
    for (size_t i = 0; i < classes.size(); ++i) {
      Tuple next = at;
      if (!read(next, classes[i])) continue;
      const Rules::State to = state_of(next);
      const std::string escape = JsonParts::escape(classes[i]);
      if (escape.empty()) {
        rules.byte(from, to, classes[i], i + 1 < classes.size() ? classes[i + 1] - 1 : 0xFF);
        continue;
      }
      const Rules::Part text = rules.text(escape);
      rules.skip(from, text.begin), rules.skip(text.end, to);
    }
  }
  return whole;
}

}  // namespace chaski
