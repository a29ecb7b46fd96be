// Helpers for tests of grammars.
#pragma once
#include <memory>
#include <string>

#include "engine/grammar/gbnf.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/regex.h"
#include "engine/grammar/schema/json_schema.h"
#include "tests/kit/support.h"

namespace chaski::test {

inline std::shared_ptr<const Rules> gbnf(const std::string& text) {
  return parse_gbnf({"test.gbnf", text, Exit::bad_file});
}
inline std::shared_ptr<const Rules> regex(const std::string& text) {
  return parse_regex({"--regex", text});
}
inline std::shared_ptr<const Rules> schema(const std::string& text) {
  return parse_json_schema({"test.json", text, Exit::bad_file});
}

// Reads whole texts, one after another.
struct TextReader {
  std::shared_ptr<const Rules> rules;
  Recognizer recognizer;
  explicit TextReader(std::shared_ptr<const Rules> r) : rules(std::move(r)), recognizer(*rules) {}

  Recognizer::Place after(std::string_view text) {
    recognizer.allow_work();
    return DistinctItems().read(recognizer, recognizer.start(), text);
  }
  bool begins(std::string_view text) { return after(text) != Recognizer::kNowhere; }
  bool fits(std::string_view text) {
    const Recognizer::Place place = after(text);
    return place != Recognizer::kNowhere && recognizer.may_end(place);
  }
};

}  // namespace chaski::test
