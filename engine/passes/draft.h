// Guesses at what comes next, as a tree: several may stand at the same place, of which one at most
// is right, and each goes on from one before it. A chain is the tree with one branch.
#pragma once
#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "engine/text/tokenizer/tokenizer.h"

namespace chaski {

struct Draft {
  struct Node {
    TokenId token;
    int parent;  // a node before it, behind which it stands; -1: behind the text
    bool operator==(const Node&) const = default;
  };
  // Whatever stands directly behind its parent goes on with that one's branch, all else begins
  // one: what should be one branch is to be one run of nodes.
  std::vector<Node> nodes;

  // Guesses at the next token, the likeliest first, are told apart up to so many. A shape says how
  // many nodes there are of each of them: itself, and what stands behind it.
  static constexpr int kFirst = 3;
  // Draft tokens of a verification pass at most: 16 tokens are the widest pass that pays.
  static constexpr int kMost = 15;
  using Shape = std::array<int, kFirst>;
  static int size(const Shape& shape) {
    int n = 0;
    for (const int nodes : shape) n += nodes;
    return n;
  }

  bool operator==(const Draft&) const = default;
  // Its number.
  int add(TokenId token, int parent) {
    nodes.push_back({token, parent});
    return int(nodes.size()) - 1;
  }
  // A branch of these tokens.
  void add(std::span<const TokenId> tokens, int parent = -1) {
    for (const TokenId token : tokens) parent = add(token, parent);
  }
  static Draft chain(std::span<const TokenId> tokens) {
    Draft draft;
    draft.add(tokens);
    return draft;
  }

  // Nodes between this one and the text.
  static int depth(std::span<const Node> nodes, int node) {
    int n = 0;
    while ((node = nodes[size_t(node)].parent) >= 0) ++n;
    return n;
  }
  static bool begins_branch(std::span<const Node> nodes, int node) {
    return nodes[size_t(node)].parent != node - 1;
  }

  // The first guesses at the next token, kFirst of them at most.
  std::vector<TokenId> first() const {
    std::vector<TokenId> out;
    for (const Node& n : nodes)
      if (n.parent < 0 && out.size() < size_t(kFirst)) out.push_back(n.token);
    return out;
  }
  // The deepest that nodes of each first guess stand, from 1 on; 0 where there is none.
  Shape depths() const {
    Shape out{};
    each_of_first([&](int of, size_t i) {
      if (of < kFirst) out[size_t(of)] = std::max(out[size_t(of)], depth(nodes, int(i)) + 1);
    });
    return out;
  }
  // The nodes whose fits(node's number) is true, and whose parents are there.
  template <class Fits>
  Draft only(Fits fits) const {
    Draft out;
    std::vector<int> numbers;
    for (size_t i = 0; i < nodes.size(); ++i) {
      const int parent = nodes[i].parent < 0 ? -1 : numbers[size_t(nodes[i].parent)];
      const bool kept = (nodes[i].parent < 0 || parent >= 0) && fits(i);
      numbers.push_back(kept ? out.add(nodes[i].token, parent) : -1);
    }
    return out;
  }
  // The first nodes of each first guess, as many as the shape says.
  Draft within(Shape shape) const {
    std::vector<bool> kept(nodes.size());
    each_of_first([&](int of, size_t i) { kept[i] = of < kFirst && shape[size_t(of)]-- > 0; });
    return only([&](size_t i) { return kept[i]; });
  }
  // Without the branches behind so many, the first one not counted.
  void keep_branches(int branches) {
    for (size_t i = 1; i < nodes.size(); ++i)
      if (begins_branch(nodes, int(i)) && branches-- == 0) return nodes.resize(i);
  }

 private:
  // fn(which of the first guesses it is or stands behind, node)
  template <class Fn>
  void each_of_first(Fn fn) const {
    std::vector<int> of;
    int first = 0;
    for (size_t i = 0; i < nodes.size(); ++i) {
      of.push_back(nodes[i].parent < 0 ? first++ : of[size_t(nodes[i].parent)]);
      fn(of.back(), i);
    }
  }
};

}  // namespace chaski
