// Draft tokens: a tree of tokens that may follow the text. Several nodes may be candidates for the
// same position, and at most one of them is accepted. A chain is a tree with one branch.
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
    int parent;  // the node that it follows, at a smaller index; -1: it follows the text
    bool operator==(const Node&) const = default;
  };
  // A node whose parent is the node just before it in this list continues that branch. Any other
  // node begins a branch. So the nodes of a branch must be consecutive.
  std::vector<Node> nodes;

  // The nodes with parent -1 are the candidates for the next token, the most probable one first. At
  // most kFirst of them are distinguished. A shape has the number of nodes in the subtree of each.
  static constexpr int kFirst = 3;
  // The most draft tokens of a verification pass: wider passes than 16 tokens do not pay.
  static constexpr int kMost = 15;
  using Shape = std::array<int, kFirst>;
  static int size(const Shape& shape) {
    int n = 0;
    for (const int nodes : shape) n += nodes;
    return n;
  }

  bool operator==(const Draft&) const = default;
  // Returns the index of the new node.
  int add(TokenId token, int parent) {
    nodes.push_back({token, parent});
    return int(nodes.size()) - 1;
  }
  // Adds a branch of these tokens.
  void add(std::span<const TokenId> tokens, int parent = -1) {
    for (const TokenId token : tokens) parent = add(token, parent);
  }
  static Draft chain(std::span<const TokenId> tokens) {
    Draft draft;
    draft.add(tokens);
    return draft;
  }

  // The number of nodes between this one and the text.
  static int depth(std::span<const Node> nodes, int node) {
    int n = 0;
    while ((node = nodes[size_t(node)].parent) >= 0) ++n;
    return n;
  }
  static bool begins_branch(std::span<const Node> nodes, int node) {
    return nodes[size_t(node)].parent != node - 1;
  }

  // The first kFirst candidates for the next token.
  std::vector<TokenId> first() const {
    std::vector<TokenId> out;
    for (const Node& n : nodes)
      if (n.parent < 0 && out.size() < size_t(kFirst)) out.push_back(n.token);
    return out;
  }
  // The height of the subtree of each candidate for the next token; 0 if there is no such
  // candidate.
  Shape depths() const {
    Shape out{};
    each_of_first([&](int of, size_t i) {
      if (of < kFirst) out[size_t(of)] = std::max(out[size_t(of)], depth(nodes, int(i)) + 1);
    });
    return out;
  }
  // The nodes for which fits(index) is true and whose parents are kept.
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
  // Keeps the first nodes of each candidate's subtree, as many as the shape has.
  Draft within(Shape shape) const {
    std::vector<bool> kept(nodes.size());
    each_of_first([&](int of, size_t i) { kept[i] = of < kFirst && shape[size_t(of)]-- > 0; });
    return only([&](size_t i) { return kept[i]; });
  }
  // The number of branches besides the first.
  int branches() const {
    int n = 0;
    for (size_t i = 1; i < nodes.size(); ++i) n += begins_branch(nodes, int(i));
    return n;
  }
  // Keeps the first branch and `branches` more.
  void keep_branches(int branches) {
    for (size_t i = 1; i < nodes.size(); ++i)
      if (begins_branch(nodes, int(i)) && branches-- == 0) return nodes.resize(i);
  }

 private:
  // Calls fn(index of the candidate in whose subtree the node is, node) for each node.
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
