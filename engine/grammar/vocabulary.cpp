#include "engine/grammar/vocabulary.h"

#include <algorithm>

namespace chaski {

namespace {

// Longer tokens are runs of one character, which shorter tokens can spell, too.
constexpr size_t kLongestToken = 4096;

}  // namespace

bool TokenTrie::takes(const Tokenizer& t, TokenId token) {
  const TokenType type = t.type(token);
  return type != TokenType::control && type != TokenType::unknown && type != TokenType::unused &&
         !t.is_end(token) && !t.piece(token).empty() && t.piece(token).size() <= kLongestToken;
}

TokenTrie::TokenTrie(const Tokenizer& tokenizer) : none_(tokenizer.size()) {
  std::vector<TokenId> tokens;
  for (TokenId id = 0; id < tokenizer.size(); ++id)
    if (takes(tokenizer, id)) tokens.push_back(id);
  std::sort(tokens.begin(), tokens.end(), [&](TokenId a, TokenId b) {
    const int order = tokenizer.piece(a).compare(tokenizer.piece(b));
    return order != 0 ? order < 0 : a < b;
  });
  std::vector<uint32_t> open;  // the nodes of the previous token
  const auto close_to = [&](size_t depth) {
    for (; open.size() > depth; open.pop_back()) nodes_[open.back()].next = uint32_t(nodes_.size());
  };
  std::string_view before;
  for (const TokenId token : tokens) {
    const std::string_view text = tokenizer.piece(token);
    const size_t same = size_t(
        std::mismatch(text.begin(), text.end(), before.begin(), before.end()).first - text.begin());
    close_to(same);
    for (size_t depth = same; depth < text.size(); ++depth) {
      open.push_back(uint32_t(nodes_.size()));
      nodes_.push_back({0, none_, uint16_t(depth), uint8_t(text[depth]), false});
    }
    Node& end = nodes_[open.back()];
    if (end.token == none_)
      end.token = token;
    else
      end.has_more = true, more_.emplace(open.back(), token);
    longest_ = std::max(longest_, text.size());
    before = text;
  }
  close_to(0);
}

// Whether a place is known and allowed is the same for most nodes, so these branches are predicted
// well. Whether a token ends at a node varies, so it is not a branch: nodes without one set the bit
// of none_.
void TokenTrie::allow(Recognizer& recognizer, Recognizer::Place from,
                      std::vector<uint64_t>& bits) const {
  struct Step {
    Recognizer::Place place;
    const Recognizer::Row* row;
  };
  std::vector<Step> path(longest_ + 1);  // from the root to the current node
  path[0] = {from, &recognizer.row(from)};
  const Node* const nodes = nodes_.data();
  const size_t n = nodes_.size();
  for (size_t i = 0; i < n;) {
    const Node& node = nodes[i];
    const Step& before = path[node.depth];
    Recognizer::Place place = (*before.row)[node.byte];
    if (place == Recognizer::kUnknown) place = recognizer.step(before.place, node.byte);
    if (place == Recognizer::kNowhere) {
      i = node.next;
      continue;
    }
    path[node.depth + 1u] = {place, &recognizer.row(place)};
    bits[size_t(node.token) / 64] |= uint64_t(1) << node.token % 64;
    if (node.has_more)
      for (auto [more, end] = more_.equal_range(uint32_t(i)); more != end; ++more)
        bits[size_t(more->second) / 64] |= uint64_t(1) << more->second % 64;
    ++i;
  }
  bits[size_t(none_) / 64] &= ~(uint64_t(1) << none_ % 64);
}

std::pair<TokenId, size_t> TokenTrie::longest(std::string_view bytes) const {
  std::pair<TokenId, size_t> best{-1, 0};
  size_t begin = 0, end = nodes_.size();
  for (size_t depth = 0; depth < bytes.size(); ++depth) {
    while (begin < end && nodes_[begin].byte != uint8_t(bytes[depth])) begin = nodes_[begin].next;
    if (begin >= end) break;
    if (nodes_[begin].token != none_) best = {nodes_[begin].token, depth + 1};
    end = nodes_[begin].next, ++begin;
  }
  return best;
}

}  // namespace chaski
