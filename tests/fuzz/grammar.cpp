// A grammar and texts for it, which the input contains in this order. The grammar is read as GBNF,
// as a regular expression and as a JSON schema. A state that is not final must allow a next byte,
// and a final state must have read a text of the grammar.
#include "engine/grammar/gbnf.h"
#include "engine/grammar/recognizer.h"
#include "engine/grammar/regex.h"
#include "engine/grammar/schema/json_schema.h"
#include "tests/fuzz/target.h"

namespace chaski::fuzz {
namespace {

constexpr size_t kMostText = 256;

void read_texts(const Rules& rules, const std::vector<std::string_view>& parts) {
  Recognizer recognizer(rules);
  for (size_t i = 1; i < parts.size(); ++i) {
    Recognizer::Place place = recognizer.start();
    for (const char c : parts[i].substr(0, kMostText)) {
      recognizer.allow_work();
      expect(recognizer.may_end(place) || recognizer.goes_on(place),
             "a state is final or allows a next byte");
      bool leads_on = !recognizer.literals(place).empty();
      for (int b = 0; b < 256 && !leads_on; ++b)
        leads_on = recognizer.step(place, uint8_t(b)) != Recognizer::kNowhere;
      expect(leads_on == recognizer.goes_on(place),
             "goes_on() means that some byte or token is allowed");
      if ((place = recognizer.step(place, uint8_t(c))) == Recognizer::kNowhere) break;
    }
  }
}

const Declared grammar("grammar", [](std::string_view input) {
  const auto parts = parts_of(input);
  const GrammarSource source{"grammar", std::string(parts[0])};
  for (const auto parse : {parse_gbnf, parse_regex, parse_json_schema})
    may_fail([&] { read_texts(*parse(source), parts); });
});

}  // namespace
}  // namespace chaski::fuzz
