// Texts that a model generates under a grammar: for random schemas each text is JSON that fits the
// schema, and drafts change nothing.
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "engine/requests/generate.h"
#include "engine/requests/scheduler.h"
#include "engine/session/engine.h"
#include "tests/kit/grammar_support.h"
#include "tests/kit/regex.h"

namespace chaski::test {
namespace {

using nlohmann::json;

// --- random schemas, and a check of a value against one

class RandomSchemas {
 public:
  explicit RandomSchemas(unsigned seed) : random_(seed) {}

  json next() {
    json schema = object(3);
    schema["$defs"] = {
        {"tree",
         {{"type", "object"},
          {"properties", {{"leaf", {{"type", "boolean"}}}, {"down", {{"$ref", "#/$defs/tree"}}}}},
          {"required", {"leaf"}},
          {"additionalProperties", false}}}};
    return schema;
  }

 private:
  int below(int n) { return int(random_() % unsigned(n)); }
  std::string name() {
    static const char* const kNames[] = {"name", "a", "id", "naïve", "x y", "na", "\"q\"", "list"};
    return kNames[below(8)];
  }

  json value(int depth) {
    switch (below(depth > 0 ? 11 : 7)) {
      case 0: {
        const int low = below(2000) - 1000;
        return {{"type", "integer"}, {"minimum", low}, {"maximum", low + below(500)}};
      }
      case 1:
        return {{"type", "string"}, {"maxLength", 1 + below(12)}, {"minLength", below(2)}};
      case 2:
        return {{"enum", json::array({"red", "green\n", below(9), nullptr, 2.5})}};
      case 3: {
        static const char* const kPatterns[] = {"^[a-z]{2,5}$", "^(ab|\"c\")\\d{1,4}x$",
                                                "^\\w{1,8}, \\w{1,8}$"};
        return {{"type", "string"}, {"pattern", kPatterns[below(3)]}};
      }
      case 4:
        return {{"type", "number"}, {"exclusiveMinimum", below(3) - 1}, {"maximum", 7}};
      case 5: {
        static const char* const kFormats[] = {"date", "time", "uuid", "date-time"};
        return {{"type", "string"}, {"format", kFormats[below(4)]}};
      }
      case 6:
        return {{"type", json::array({"boolean", "null"})}};
      case 7:
        return {{"type", "array"},
                {"items", value(depth - 1)},
                {"minItems", below(2)},
                {"maxItems", 1 + below(3)}};
      case 8:
        return {{"anyOf", json::array({value(depth - 1), value(depth - 1)})}};
      case 9:
        return {{"$ref", "#/$defs/tree"}};
    }
    return object(depth - 1);
  }

  json object(int depth) {
    json out = {{"type", "object"}, {"properties", json::object()}, {"required", json::array()}};
    for (int i = 1 + below(4); i > 0; --i) {
      const std::string name = this->name();
      if (out["properties"].contains(name)) continue;
      out["properties"][name] = value(depth);
      if (below(2)) out["required"].push_back(name);
    }
    if (below(3) == 0) out["additionalProperties"] = false;
    return out;
  }

  std::mt19937 random_;
};

size_t characters_in(const std::string& text) {
  return size_t(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

bool of_type(const json& v, const std::string& type) {
  return type == "object"    ? v.is_object()
         : type == "array"   ? v.is_array()
         : type == "string"  ? v.is_string()
         : type == "integer" ? v.is_number_integer()
         : type == "number"  ? v.is_number()
         : type == "boolean" ? v.is_boolean()
                             : v.is_null();
}

bool has_format(const std::string& text, const std::string& format) {
  int y = 0, mo = 0, d = 0, h = 0, mi = 0, s = 0;
  const size_t t = text.find('T');
  if (format == "date-time")
    return t == 10 && has_format(text.substr(0, t), "date") &&
           has_format(text.substr(t + 1), "time");
  if (format == "date")
    return text.size() == 10 && std::sscanf(text.c_str(), "%4d-%2d-%2d", &y, &mo, &d) == 3 &&
           mo >= 1 && mo <= 12 && d >= 1 &&
           d <= (mo == 2                                     ? 29
                 : mo == 4 || mo == 6 || mo == 9 || mo == 11 ? 30
                                                             : 31);
  if (format == "time")
    return std::sscanf(text.c_str(), "%2d:%2d:%2d", &h, &mi, &s) == 3 && h < 24 && mi < 60 &&
           s < 60 && (text.ends_with('Z') || text.find_first_of("+-") == text.size() - 6);
  return text.size() == 36 && text[8] == '-' && text[13] == '-' && text[18] == '-' &&
         text[23] == '-';
}

bool holds(const json& root, const json& s, const json& v) {
  if (s.contains("$ref"))
    return holds(root, root.at(json::json_pointer(s["$ref"].get<std::string>().substr(1))), v);
  if (s.contains("anyOf"))
    return std::any_of(s["anyOf"].begin(), s["anyOf"].end(),
                       [&](const json& option) { return holds(root, option, v); });
  if (s.contains("enum"))
    return std::find(s["enum"].begin(), s["enum"].end(), v) != s["enum"].end();
  const json types = s["type"].is_array() ? s["type"] : json::array({s["type"]});
  if (std::none_of(types.begin(), types.end(),
                   [&](const json& type) { return of_type(v, type.get<std::string>()); }))
    return false;
  if (v.is_number() &&
      ((s.contains("minimum") && v < s["minimum"]) || (s.contains("maximum") && v > s["maximum"]) ||
       (s.contains("exclusiveMinimum") && v <= s["exclusiveMinimum"])))
    return false;
  if (v.is_string()) {
    const auto text = v.get<std::string>();
    if (s.contains("maxLength") && characters_in(text) > s["maxLength"].get<size_t>()) return false;
    if (s.contains("minLength") && characters_in(text) < s["minLength"].get<size_t>()) return false;
    if (s.contains("pattern") && !StdRegex(s["pattern"].get<std::string>()).finds(text))
      return false;
    if (s.contains("format") && !has_format(text, s["format"].get<std::string>())) return false;
  }
  if (v.is_array()) {
    if (s.contains("minItems") && v.size() < s["minItems"].get<size_t>()) return false;
    if (s.contains("maxItems") && v.size() > s["maxItems"].get<size_t>()) return false;
    for (const json& item : v)
      if (!holds(root, s["items"], item)) return false;
  }
  if (!v.is_object()) return true;
  for (const json& name : s["required"])
    if (!v.contains(name.get<std::string>())) return false;
  for (const auto& [name, member] : v.items())
    if (s["properties"].contains(name) ? !holds(root, s["properties"][name], member)
                                       : s.value("additionalProperties", true) == false)
      return false;
  return true;
}

TEST_CASE("grammar: texts of random schemas are JSON that fits the schema") {
  // CHASKI_SCHEMAS=1000 for the figure in docs/grammar.md.
  const char* many = std::getenv("CHASKI_SCHEMAS");
  const int schemas = many ? std::atoi(many) : 25;
  EngineOptions long_texts;
  long_texts.context = 2048;
  const auto engine = Engine::open(long_texts);
  const auto prompt = engine->tokenizer().encode_prompt("Once upon a time");
  int finished = 0;
  for (int seed = 0; seed < schemas; ++seed) {
    const json wanted = RandomSchemas(unsigned(seed)).next();
    CAPTURE(seed);
    CAPTURE(wanted.dump());
    Grammar grammar(schema(wanted.dump()), engine->tokenizer());
    GenerateOptions o;
    o.sampling.temperature = 1, o.sampling.seed = uint64_t(seed), o.sampling.min_p = 0,
    o.sampling.top_k = 0, o.sampling.top_p = 1;
    o.grammar = &grammar, o.draft_length = 8;
    const GenerateResult result = generate(*engine->session(), prompt, o, [](std::string_view) {});
    if (result.finish != Finish::end) continue;  // the context was full
    ++finished;
    const json value = json::parse(result.text, nullptr, false);
    CHECK_MESSAGE(!value.is_discarded(), result.text);
    CHECK_MESSAGE(holds(wanted, wanted, value), result.text);
  }
  MESSAGE(finished, " of ", schemas, " texts ended before the context did");
  CHECK(finished == schemas);
}

TEST_CASE("grammar: drafters and other requests change nothing") {
  const auto engine = Engine::open({});
  const auto prompt = engine->tokenizer().encode_prompt("One day Tim said {\"name\": \"Tim\"}");
  Grammar grammar(
      schema(R"({"type": "array", "minItems": 3, "maxItems": 3, "items": {"type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "friendly": {"type": "boolean"},
    "best_friend_of_all": {"type": "string", "maxLength": 30}},
    "required": ["name", "friendly", "best_friend_of_all"]}})"),
      engine->tokenizer());
  for (const double temperature : {0.0, 0.8}) {
    GenerateOptions plain;
    plain.sampling.temperature = temperature, plain.sampling.seed = 4, plain.grammar = &grammar;
    const auto want = generate(*engine->session(), prompt, plain, [](std::string_view) {});
    CHECK(want.drafted == 0);
    REQUIRE(want.finish == Finish::end);
    CHECK(json::accept(want.text));
    const auto drafter = ngram_drafter();
    for (Drafter* used : {(Drafter*)nullptr, drafter.get()})
      for (const int k : {1, 4, 15}) {
        GenerateOptions with = plain;
        with.drafter = used, with.draft_length = k;
        const auto got = generate(*engine->session(), prompt, with, [](std::string_view) {});
        CHECK(got.tokens == want.tokens);
        CHECK(got.text == want.text);
        CHECK(got.finish == Finish::end);
        CHECK(got.accepted > 0);
        CHECK(got.passes < want.passes);
      }
    // Two requests in one pass, each with its own seed.
    Scheduler scheduler(engine);
    GenerateOptions other = plain;
    other.sampling.seed = 5, other.draft_length = 8;
    const auto alone = generate(*engine->session(), prompt, other, [](std::string_view) {});
    Request first(*engine, prompt, plain, [](std::string_view) {}),
        second(*engine, prompt, other, [](std::string_view) {});
    scheduler.add(first), scheduler.add(second);
    while (scheduler.step()) {
    }
    CHECK(first.finished().text == want.text);
    CHECK(second.finished().text == alone.text);
  }
}

TEST_CASE("grammar: items of a list with uniqueItems differ, with drafts too") {
  const auto engine = Engine::open({});
  const auto prompt = engine->tokenizer().encode_prompt("Tim counts 1, 1, 1, 1, 1, 1");
  for (const char* items : {R"({"type": "integer", "minimum": 1, "maximum": 12})",
                            R"({"type": "string", "pattern": "^[ab]{1,3}$"})",
                            R"({"type": "object", "properties": {"a": {"type": "boolean"},
                                "b": {"enum": [1, 2, 11]}}, "required": ["b"]})"}) {
    CAPTURE(items);
    Grammar grammar(
        schema(fmt::format(R"({{"items": {}, "uniqueItems": true, "minItems": 8, "maxItems": 9}})",
                           items)),
        engine->tokenizer());
    GenerateOptions plain;
    plain.grammar = &grammar;
    for (const double temperature : {0.0, 1.0}) {
      plain.sampling.temperature = temperature, plain.sampling.seed = 2;
      const auto want = generate(*engine->session(), prompt, plain, [](std::string_view) {});
      REQUIRE(want.finish == Finish::end);
      const json list = json::parse(want.text);
      CHECK_MESSAGE(list.size() >= 8, want.text);
      CHECK_MESSAGE(std::set<json>(list.begin(), list.end()).size() == list.size(), want.text);
      const auto drafter = ngram_drafter();
      for (Drafter* used : {(Drafter*)nullptr, drafter.get()}) {
        GenerateOptions with = plain;
        with.drafter = used, with.draft_length = 8;
        const auto got = generate(*engine->session(), prompt, with, [](std::string_view) {});
        CHECK(got.tokens == want.tokens);
        CHECK(got.text == want.text);
      }
    }
  }
}

TEST_CASE("grammar: a text follows its grammar from its first token to its end") {
  const auto engine = Engine::open({});
  const auto text_of = [&](const std::shared_ptr<const Rules>& rules, const std::string& before,
                           const GenerateOptions& options = {}) {
    Grammar grammar(rules, engine->tokenizer());
    GenerateOptions o = options;
    o.grammar = &grammar;
    return generate(*engine->session(), engine->tokenizer().encode_prompt(before), o,
                    [](std::string_view) {});
  };
  // Nothing precedes it, so the first token decodes to another text than inside a text.
  for (const char* before : {"", "Once"}) {
    const auto one = text_of(regex("Tim( and Sam)?\\."), before);
    CHECK_MESSAGE((one.text == "Tim." || one.text == "Tim and Sam."), one.text);
    CHECK(one.finish == Finish::end);
  }
  // If only one text fits, all of its tokens are forced.
  GenerateOptions guessing;
  guessing.draft_length = 15;
  const auto only = text_of(regex("Lily saw a big red ball\\. \xF0\x9F\x99\x82"), "Once", guessing);
  CHECK(only.text == "Lily saw a big red ball. \xF0\x9F\x99\x82");
  CHECK(only.passes * 2 < int(only.tokens.size()));
  // Many texts with a common beginning are drafted like one.
  std::string alike = "{\"enum\": [";
  for (int i = 0; i < 3000; ++i)
    alike +=
        fmt::format("{}\"https://example.org/a/rather/long/path/of/pages/{}\"", i ? ", " : "", i);
  guessing.sampling.temperature = 0, guessing.max_tokens = 40;
  GenerateOptions plain = guessing;
  plain.draft_length = 0;
  const auto pages = schema(alike + "]}");
  CHECK(text_of(pages, "Once", guessing).text == text_of(pages, "Once", plain).text);
  // A grammar that allows every text does not change what is generated.
  GenerateOptions o;
  o.max_tokens = 60, o.sampling.seed = 3;
  Grammar any(regex("(.|\\n)*"), engine->tokenizer());
  const auto prompt = engine->tokenizer().encode_prompt("Once upon a time");
  const auto free = generate(*engine->session(), prompt, o, [](std::string_view) {});
  o.grammar = &any;
  CHECK(generate(*engine->session(), prompt, o, [](std::string_view) {}).tokens == free.tokens);
  // The grammar remembers tokens that a context shift has dropped.
  EngineOptions small;
  small.context = 48, small.device = "cpu";
  const auto narrow = Engine::open(small);
  Grammar list(gbnf("root ::= (\"- \" [a-z ]{30} \"\\n\"){12}"), narrow->tokenizer());
  GenerateOptions shifting;
  shifting.grammar = &list, shifting.context_policy = ContextPolicy::shift,
  shifting.draft_length = 4;
  const auto shifted = generate(*narrow->session(), prompt, shifting, [](std::string_view) {});
  CHECK(shifted.dropped_tokens > 0);
  CHECK_MESSAGE(StdRegex("(- [a-z ]{30}\\n){12}").matches(shifted.text), shifted.text);
}

}  // namespace
}  // namespace chaski::test
