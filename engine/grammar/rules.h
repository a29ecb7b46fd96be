// The common form of all grammars: rules, each an automaton over bytes. Its edges read one byte of
// a range or a whole token, read nothing, or call a rule. They read bytes instead of characters
// because a token may hold a part of a character.
//
// A parser makes parts and joins them. A part may be used once, a rule any number of times.
// finish() checks what a parser cannot see, and removes edges that cannot reach an end. From then
// on any number of threads may use the rules; before, only the thread of the parser.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ggml-like-tensor/base/error.h"

namespace chaski {

// The text of a grammar and its origin, for errors.
struct GrammarSource {
  std::string name;  // "list.gbnf", "--regex"
  std::string text;
  Exit code = Exit::usage;  // the exit code of its errors

  // "NAME: line 3, column 7: what"; `at` is a byte of the text, columns are counted in bytes.
  [[noreturn]] void wrong(size_t at, const std::string& what) const;
  std::string place(size_t at) const;  // "line 3, column 7"
  // The same with the character at `at`: "... found 'x', expected EXPECTED".
  [[noreturn]] void expected(size_t at, std::string_view expected) const;
};

std::string utf8_of(uint32_t code);
uint32_t code_of(std::string_view character);  // of one whole character in UTF-8

// A set of code points: never surrogates, nothing above U+10FFFF.
class CodeSet {
 public:
  struct Range {
    uint32_t first, last;
  };
  CodeSet() = default;
  CodeSet(std::initializer_list<Range> ranges) : ranges_(ranges) {}
  explicit CodeSet(std::vector<Range> ranges) : ranges_(std::move(ranges)) {}
  static CodeSet of(std::string_view ascii);  // the characters of a text
  static CodeSet all();

  void add(uint32_t first, uint32_t last) { ranges_.push_back({first, last}); }
  void add(const CodeSet& more);
  CodeSet others() const;                    // the complement
  CodeSet both(const CodeSet& other) const;  // the intersection
  bool has(uint32_t code) const;
  std::vector<Range> ranges() const;  // sorted, joined, without surrogates

 private:
  std::vector<Range> ranges_;
};

class Rules {
 public:
  using State = int32_t;
  using Rule = int32_t;
  // The texts that are read on all paths from `begin` to `end`.
  struct Part {
    State begin, end;
  };
  struct ByteEdge {
    State from, to;
    uint8_t low, high;
  };
  struct SkipEdge {
    State from, to;
  };
  // A token of the vocabulary, by its text or its id, or any token with text but this one. Which
  // ids they are is known when there is a vocabulary (grammar.h).
  struct TokenLiteral {
    std::string text;
    int32_t id = -1;  // -1: by text
    bool others = false;
    std::string place;  // in the source
    std::string shown() const;
  };
  struct TokenEdge {
    State from, to;
    int32_t literal;
  };
  struct CallEdge {
    State from, to;  // to: where the caller continues after the rule
    Rule rule;
  };

  // Errors name this source.
  explicit Rules(const GrammarSource& source) : name_(source.name), code_(source.code) {}

  // The rule is defined later, once. Errors call it `name`, such as "rule list".
  Rule declare(const std::string& name);
  // Errors name this place of the source, "line 3, column 7".
  void locate(Rule rule, std::string place) { rules_[size_t(rule)].place = std::move(place); }
  void define(Rule rule, Part part);
  bool defined(Rule rule) const { return rules_[size_t(rule)].begin >= 0; }
  const std::string& name_of(Rule rule) const { return rules_[size_t(rule)].name; }
  // Why no text fits a rule, for errors and for impossible().
  void explain(Rule rule, std::string why) { rules_[size_t(rule)].why = std::move(why); }

  // A list of JSON whose items are all different begins at this state (distinct_items.h).
  void mark_distinct(State s) { distinct_.resize(size_t(states_)), distinct_[size_t(s)] = true; }
  bool has_distinct() const { return !distinct_.empty(); }
  bool is_distinct(State s) const { return size_t(s) < distinct_.size() && distinct_[size_t(s)]; }

  State state();
  void skip(State from, State to) { skips_.push_back({from, to}); }
  void byte(State from, State to, uint8_t low, uint8_t high) {
    bytes_.push_back({from, to, low, high});
  }
  Part nothing();
  Part text(std::string_view bytes);
  Part one_of(const CodeSet& codes);  // in UTF-8
  Part token(TokenLiteral literal);
  Part call(Rule rule);
  // Adds all rules of a finished grammar and returns its root.
  Rule copy(const Rules& other);
  Part chain(Part first, Part second);
  Part either(std::span<const Part> parts);       // without parts, it fits no text
  Part repeated(Part part, int least, int most);  // most may be kUnlimited

  static constexpr int kUnlimited = -1, kMostRepeats = 100'000;

  // `root` is the rule of the whole text. Throws an Error for a rule that calls itself before it
  // reads anything, and for a root that no text fits. It names the rule that is the cause.
  void finish(Rule root);

  // For a finished grammar:
  int states() const { return int(ends_.size()); }
  State begin(Rule rule) const { return rules_[size_t(rule)].begin; }
  Rule root() const { return root_; }
  bool ends(State s) const { return ends_[size_t(s)]; }            // its rule
  bool only_ends(State s) const { return only_ends_[size_t(s)]; }  // and nothing else
  std::span<const ByteEdge> bytes(State s) const { return of(bytes_, byte_index_, s); }
  std::span<const TokenEdge> tokens(State s) const { return of(tokens_, token_index_, s); }
  const std::vector<TokenLiteral>& literals() const { return literals_; }
  std::span<const SkipEdge> skips(State s) const { return of(skips_, skip_index_, s); }
  std::span<const CallEdge> calls(State s) const { return of(calls_, call_index_, s); }
  const std::string& name() const { return name_; }
  Exit code() const { return code_; }
  uint64_t sum() const;  // a checksum of the automata; names do not count
  // "/properties/age: why" of the explained rules that no text fits. No text uses them.
  const std::vector<std::string>& impossible() const { return impossible_; }

 private:
  struct Known {
    std::string name;
    State begin = -1, end = -1;
    std::string place, why;
  };
  template <class E>
  static std::span<const E> of(const std::vector<E>& edges, const std::vector<int32_t>& index,
                               State s) {
    return std::span(edges).subspan(size_t(index[size_t(s)]),
                                    size_t(index[size_t(s) + 1] - index[size_t(s)]));
  }
  enum class Calls { followed, free };
  std::vector<bool> can_end(bool by_bytes, Calls calls = Calls::followed,
                            std::span<const Rule> assumed = {}) const;
  std::optional<Rule> cause_of_no_text() const;
  void expect_no_left_recursion(const std::vector<bool>& empty) const;
  void index_edges();
  [[noreturn]] void wrong(Rule rule, const std::string& what) const;
  [[noreturn]] void fail_for_states() const;

  std::string name_;
  Exit code_;
  std::vector<Known> rules_;
  std::vector<ByteEdge> bytes_;
  std::vector<SkipEdge> skips_;
  std::vector<CallEdge> calls_;
  std::vector<TokenEdge> tokens_;
  std::vector<TokenLiteral> literals_;
  std::vector<std::string> impossible_;
  std::vector<int32_t> byte_index_, skip_index_, call_index_, token_index_;
  std::vector<bool> ends_, only_ends_, distinct_;
  int32_t states_ = 0;
  Rule root_ = -1;
};

}  // namespace chaski
