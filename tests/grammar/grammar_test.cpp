// Grammars: which texts they allow, by trying all texts up to a length; which tokens, by trying all
// tokens; and what is refused.
#include <random>
#include <regex>
#include <set>

#include "models/import/import.h"
#include "tests/kit/grammar_support.h"

namespace chaski::test {
namespace {

// All texts of these letters up to a length, the shorter first.
std::vector<std::string> all_texts(const std::string& letters, size_t most) {
  std::vector<std::string> all = {""};
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i].size() < most)
      for (const char c : letters) all.push_back(all[i] + c);
  return all;
}

// A text may go on if one of the longer ones fits: true of those that are shorter by more than the
// longest step from one that fits to the next.
template <class Fits>
void check_all(TextReader& reader, const std::string& letters, size_t most, size_t margin,
               const Fits& fits) {
  std::set<std::string> beginnings;
  const auto all = all_texts(letters, most);
  for (const std::string& text : all) {
    const bool want = fits(text);
    if (reader.fits(text) != want) FAIL_CHECK("\"", text, "\" fits: ", want);
    if (want)
      for (size_t n = 0; n <= text.size(); ++n) beginnings.insert(text.substr(0, n));
  }
  for (const std::string& text : all)
    if (text.size() + margin <= most && reader.begins(text) != bool(beginnings.count(text)))
      FAIL_CHECK("\"", text, "\" begins a text: ", beginnings.count(text));
}

TEST_CASE("grammar: a regular expression allows what std::regex matches") {
  for (const char* expression : {"",
                                 "a",
                                 "ab|ba",
                                 "a*",
                                 "(a|b)*abb",
                                 "(?:ab?)+c{2,3}",
                                 "[^a]{2}",
                                 "a{3}",
                                 "a{2,}b?",
                                 "(a|ab)(c|bcb)?",
                                 "(a*)*",
                                 "(a?b?)*c",
                                 "((a|b)(c|))+",
                                 "[a-c]?[b]+",
                                 "^ab$|^c$",
                                 "a.c|.{2}",
                                 "(a+)+b",
                                 "(|a)b{0,2}",
                                 "\\w\\d?",
                                 "(?<name>a)b",
                                 "a+?b*?c??"}) {
    CAPTURE(expression);
    TextReader reader(regex(expression));
    std::string plain = expression;  // std::regex knows no names
    if (const size_t at = plain.find("<name>"); at != plain.npos) plain.replace(at - 1, 7, "");
    const std::regex other(plain);
    check_all(reader, "abc", 6, 3,
              [&](const std::string& text) { return std::regex_match(text, other); });
  }
}

TEST_CASE("grammar: rules that call themselves allow what counting says") {
  TextReader balanced(gbnf("root ::= \"(\" root \")\" root | \"\""));
  check_all(balanced, "()", 10, 5, [](const std::string& text) {
    int depth = 0;
    for (const char c : text)
      if ((depth += c == '(' ? 1 : -1) < 0) return false;
    return depth == 0;
  });
  TextReader equal(gbnf("root ::= \"a\" root \"b\" | \"ab\""));
  check_all(equal, "ab", 10, 5, [](const std::string& text) {
    const size_t n = text.size() / 2;
    return n > 0 && text == std::string(n, 'a') + std::string(n, 'b');
  });
  // Palindromes can be read in many ways until they are over.
  TextReader palindrome(gbnf("root ::= [ab]? | \"a\" root \"a\" | \"b\" root \"b\""));
  check_all(palindrome, "ab", 10, 5, [](const std::string& text) {
    return std::equal(text.begin(), text.end(), text.rbegin());
  });
  TextReader lists(
      gbnf("root ::= item (\",\" item)*\nitem ::= \"x\" | \"[\" root? \"]\"  # or none\n"));
  CHECK(lists.fits("x,[x,[]],x"));
  CHECK(!lists.fits("x,[x,]"));
  CHECK(!lists.begins("x]"));
}

TEST_CASE("grammar: repetitions are counted, also of rules and of what may be empty") {
  for (const auto& [least, most] :
       {std::pair(0, 0), {0, 1}, {1, 1}, {2, 2}, {0, 3}, {2, 5}, {3, -1}}) {
    const std::string times =
        most < 0 ? fmt::format("{{{},}}", least) : fmt::format("{{{},{}}}", least, most);
    for (const char* of : {"\"a\"", "(\"a\")", "a", "[a]"}) {
      TextReader reader(gbnf(fmt::format("root ::= {}{}\na ::= \"a\"\n", of, times)));
      for (int n = 0; n < 8; ++n)
        CHECK(reader.fits(std::string(size_t(n), 'a')) == (n >= least && (most < 0 || n <= most)));
    }
  }
  TextReader optional(gbnf("root ::= (\"a\"? \"b\"?){2}"));
  check_all(optional, "ab", 5, 5, [other = std::regex("(a?b?){2}")](const std::string& text) {
    return std::regex_match(text, other);
  });
}

TEST_CASE("grammar: characters are whole, byte by byte") {
  struct Case {
    const char* expression;
    std::vector<CodeSet::Range> has;
  };
  const Case cases[] = {
      {"[\\u0041-\\u07FF]", {{0x41, 0x7FF}}},
      {"[\\u07FE-\\u0801\\U0000FFFD-\\U00010002]", {{0x7FE, 0x801}, {0xFFFD, 0x10002}}},
      {"[^\\u0100-\\U0010FF00]", {{0, 0xFF}, {0x10FF01, 0x10FFFF}}},
      {"[\\u1234-\\U00098765]", {{0x1234, 0x98765}}}};
  for (const Case& c : cases) {
    CAPTURE(c.expression);
    TextReader reader(gbnf(std::string("root ::= ") + c.expression));
    for (uint32_t code = 0; code <= 0x10FFFF; code += code < 0x900 ? 1 : 7) {
      if (code >= 0xD800 && code < 0xE000) continue;
      const bool want = std::any_of(c.has.begin(), c.has.end(), [&](CodeSet::Range r) {
        return r.first <= code && code <= r.last;
      });
      if (reader.fits(utf8_of(code)) != want) FAIL_CHECK("U+", code, " fits: ", want);
    }
  }
  TextReader any(gbnf("root ::= ."));
  for (const char* wrong :
       {"\x80", "\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xFF"})
    CHECK(!any.begins(wrong));
  CHECK(any.begins("\xE2\x82"));  // of which the last byte is to come
  CHECK(!any.fits("\xE2\x82"));
  CHECK(any.fits("\xE2\x82\xAC"));
}

TEST_CASE("grammar: the grammars people share") {
  const auto read = [](const char* name) {
    return TextReader(parse_gbnf({name, read_file(golden("grammars/") + name)}));
  };
  TextReader json = read("json.gbnf");
  CHECK(json.fits(R"({"a": [1, -2.5e3, "x\n\u00e9"], "b": {"c": null}})"));
  CHECK(!json.begins(R"({a)"));
  CHECK(!json.begins(R"({"a": 01)"));
  TextReader arithmetic = read("arithmetic.gbnf");
  CHECK(arithmetic.fits("(a + 2) * 3 = 12\nx=x\n"));
  CHECK(!arithmetic.begins("a + = "));
  TextReader list = read("list.gbnf");
  CHECK(list.fits("- one\n- zwölf\n"));
  CHECK(!list.begins("* one"));
  TextReader chess = read("chess.gbnf");
  CHECK(chess.fits("1. e4 e5\n2. Nf3 Nc6\n3. O-O exd8=Q+\n"));
  CHECK(!chess.begins("1. i4"));
  TextReader c = read("c.gbnf");
  CHECK(c.fits(
      "int f(int a, char b) {\n  while (a < 10) { a = a + g(b, 1); }\n  return a; // so\n}\n"));
  CHECK(!c.begins("int f(int a) { 1"));
}

TEST_CASE("grammar: what is wrong is said in a line, and where") {
  const std::pair<const char*, const char*> cases[] = {
      {"", "test.gbnf: there is no rule root"},
      {"root ::= \"a\"\n  list ::= [b\n", "line 2, column 14: found '\\n', expected ']'"},
      {"root ::= a b\na ::= \"\"\n", "line 1, column 12: rule b is not defined"},
      {"root ::= \"a", "line 1, column 12: found the end, expected '\"'"},
      {"root = \"a\"", "line 1, column 6: found '=', expected '::='"},
      {"root ::= \"a\" )", "line 1, column 14: found ')', expected '|'"},
      {"root ::= (\"a\"", "found the end, expected ')'"},
      {"root ::= \"\\q\"", "found 'q', expected \\n"},
      {"root ::= [b-a]", "a range that ends before it begins"},
      {"root ::= \"a\"{3,2}", "at least 3 and at most 2"},
      {"root ::= \"a\"{200000}", "more than 100000 repetitions"},
      {"root ::= \"a\"\nroot ::= \"b\"", "line 2, column 1: rule root is defined twice"},
      {"root ::= \"a\" b ::= \"b\"", "found the next rule"},
      {"root ::= \"\\uD800\"", "U+D800 is no character"},
      {"root ::= \xff", "expected a text in quotes"},
      {"root ::= \"\xff\"", "expected UTF-8"},
      {"root ::= root \"a\" | \"a\"", "rule root begins with itself"},
      {"root ::= a\na ::= ws b\nb ::= a \"x\" | \"y\"\nws ::= \" \"?", "begins with itself"},
      {"root ::= \"a\" root",
       "no text fits rule root: each way through it goes on for ever or allows nothing"},
      {"root ::= ((((\"a\"{1000}){1000}){1000}){1000}){1000} [a-z]{100000} ([b] \"c\"){100000}",
       "more than 262144 states"}};
  for (const auto& [text, line] : cases) {
    const Error error = error_of([&] { gbnf(text); });
    CHECK(error.code == Exit::bad_file);
    CHECK_MESSAGE(contains(error.what(), line), std::string(error.what()));
    CHECK(std::string(error.what()).find('\n') == std::string::npos);
  }
  const std::pair<const char*, const char*> expressions[] = {
      {"(a", "--regex: line 1, column 3: found the end, expected ')'"},
      {"a)", "column 2: found ')', expected the end"},
      {"*a", "expected what is to be repeated"},
      {"a**", "expected one repetition, not two"},
      {"a{,5}", "column 2: found {, without the fewest repetitions, expected {0,n}"},
      {"(?=a)", "column 1: found a group that looks around"},
      {"(?<!a)b", "column 1: found a group that looks around"},
      {"(a)\\1", "column 4: found \\1, expected"},
      {"\\bword", "column 1: found \\b, expected"},
      {"a^b", "expected ^ at the beginning"},
      {"a$b", "expected ^ at the beginning"},
      {"[z-a]", "a range that does not go"},
      {"\\p{L}", "found \\p, expected"}};
  for (const auto& [text, line] : expressions) {
    const Error error = error_of([&] { regex(text); });
    CHECK(error.code == Exit::usage);
    CHECK_MESSAGE(contains(error.what(), line), std::string(error.what()));
  }
}

TEST_CASE("grammar: too many ways to read a text end in a line") {
  std::string many = "root ::= r0\n";
  for (int i = 0; i < 40; ++i) many += fmt::format("r{0} ::= r{1} \"x\" | r{1} \"y\"\n", i, i + 1);
  TextReader reader(gbnf(many + "r40 ::= \"a\"\n"));
  const Error error = error_of([&] { reader.begins("a"); });
  CHECK_MESSAGE(contains(error.what(), "too ambiguous"), error.what());
}

TEST_CASE("grammar: where one byte may follow it is known without trying all") {
  std::string many = "root ::= \"a\"{40} (r0";
  for (int i = 1; i < 3000; ++i) many += fmt::format(" | r{}", i);
  many += ")\n";
  for (int i = 0; i < 3000; ++i)
    many += fmt::format("r{} ::= \"{}{}\"\n", i, std::string(50, 'x'), i);
  TextReader reader(gbnf(many));
  Recognizer::Place place = reader.after("");
  for (int i = 0; i < 90; ++i) {
    const int byte = reader.recognizer.only_byte(place);
    REQUIRE(byte == (i < 40 ? 'a' : 'x'));
    place = reader.recognizer.step(place, uint8_t(byte));
  }
  CHECK(reader.recognizer.only_byte(place) == -1);
}

TEST_CASE("grammar: what is known of places stays small when each has many ways") {
  TextReader reader(gbnf("root ::= [ab]{0,20000} \"a\" [ab]{3000}"));
  Recognizer::Place place = reader.after("");
  std::mt19937 random(1);
  size_t steps = 0;
  for (; steps < 30000 && !reader.recognizer.is_full(); ++steps) {
    reader.recognizer.allow_work();
    place = reader.recognizer.step(place, random() % 2 ? 'a' : 'b');
    if (place == Recognizer::kNowhere) break;
  }
  CHECK(reader.recognizer.is_full());
}

// --- JSON Schema

struct SchemaCase {
  const char* schema;
  std::vector<const char*> fit, others;
};

TEST_CASE("grammar: a schema allows such JSON and no other") {
  const SchemaCase cases[] = {
      {R"({})",
       {R"({"a": [1, 2.5, true, null, "x"], "b": {}})", "[]", "\"\\u00e9\\n\"", "-0.5", "-1.5e-3",
        "null"},
       {"{\"a\" 1}", "[1,]", "01", "nul", "\"\n\"", "\"\\ud800\"", "{,}", " 1"}},
      {R"({"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
         "required": ["name"]})",
       {R"({"name": "x"})", R"({"name":"x","age":3})", "{\n  \"name\": \"x\",\n  \"age\": -1\n}"},
       {"{}", R"({"age":3})", R"({"age":3,"name":"x"})", R"({"name":"x","more":1})",
        R"({"name":"x",})", R"({"name":"x","age":1.5})"}},
      {R"({"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "null"}},
         "additionalProperties": {"type": "boolean"}})",
       {"{}", R"({"a":null})", R"({"b":null})", R"({"a":null,"b":null,"c":true,"ab":false})",
        R"({"x":true})", R"({"":true})"},
       {R"({"a":true})", R"({"c":1})", R"({"c":true,"a":null})", R"({"x":true,"b":false})",
        R"({"\u0061":true})"}},
      {R"({"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 3})",
       {"[1,2]", "[1, 2, 3]", "[\n 1,\n 2\n]"},
       {"[]", "[1]", "[1,2,3,4]", "[1,\"a\"]"}},
      {R"({"prefixItems": [{"const": 1}, {"type": "string"}], "items": false})",
       {"[]", "[1]", "[1,\"a\"]"},
       {"[2]", "[1,\"a\",1]"}},
      {R"({"type": "array", "items": [{"const": 1}], "additionalItems": {"type": "null"}})",
       {"[]", "[1]", "[1,null,null]"},
       {"[null]", "[1,1]"}},
      {R"({"enum": ["a\"b", 1, 2.5, null, {"x": [1]}]})",
       {"\"a\\\"b\"", "1", "2.5", "null", "{\"x\":[1]}"},
       {"\"a\"", "3", "{\"x\":[2]}"}},
      {R"({"type": "string", "enum": ["a", 1]})", {"\"a\""}, {"1"}},
      {R"({"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 2}]})",
       {"12", "\"ab\"", "\"é\\n\""},
       {"\"abc\"", "null", "1.5"}},
      {R"({"oneOf": [{"type": "object", "properties": {"kind": {"const": "a"}, "x": {"type": "null"}},
                      "required": ["kind", "x"]},
                     {"type": "object", "properties": {"kind": {"const": "b"}}, "required": ["kind"]}]})",
       {R"({"kind":"a","x":null})", R"({"kind":"b"})"},
       {R"({"kind":"a"})", R"({"kind":"c"})"}},
      {R"({"type": "object", "required": ["a", "b"], "anyOf": [
            {"properties": {"a": {"const": 1}, "b": {"const": 1}}},
            {"properties": {"a": {"const": 2}, "b": {"const": 2}}}]})",
       {R"({"a":1,"b":1})", R"({"a":2,"b":2})"},
       {R"({"a":1,"b":2})", R"({"a":1})"}},
      {R"({"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
                     {"type": "object", "properties": {"b": {"type": "null"}, "a": {"minimum": 5}}}]})",
       {R"({"a":5})", R"({"a":12,"b":null})"},
       {R"({"a":4})", R"({"b":null})"}},
      {R"({"allOf": [{"properties": {"a": {}}, "additionalProperties": false},
                     {"properties": {"b": {}}}], "type": "object"})",
       {"{}", R"({"a":1})"},
       {R"({"b":1})"}},
      {R"({"$defs": {"node": {"type": "object", "properties": {"next": {"anyOf": [
            {"$ref": "#/$defs/node"}, {"type": "null"}]}}, "required": ["next"]}}, "$ref": "#/$defs/node"})",
       {R"({"next":{"next":{"next":null}}})"},
       {R"({"next":{}})", R"({"next":1})"}},
      {R"({"type": "string", "pattern": "^[a-c\"]+\\d$"})",
       {"\"ab1\"", "\"a\\\"2\""},
       {"\"d1\"", "\"a\"", "\"a1x\""}},
      {R"({"type": "string", "pattern": "b"})", {"\"abc\"", "\"b\"", "\"\\nb\""}, {"\"ac\""}},
      {R"({"type": "string", "minLength": 2, "maxLength": 3})",
       {"\"ab\"", "\"a\\u0041c\""},
       {"\"a\"", "\"abcd\""}},
      {R"({"type": "string", "format": "date"})",
       {"\"2024-02-28\"", "\"1999-12-31\""},
       {"\"2024-02-30\"", "\"2024-04-31\"", "\"2024-13-01\"", "\"24-01-01\""}},
      {R"({"type": "string", "format": "date-time"})",
       {"\"2024-02-28T23:59:59.5Z\"", "\"2024-02-28T00:00:00+01:30\""},
       {"\"2024-02-28\"", "\"2024-02-28T24:00:00Z\""}},
      {R"({"type": "string", "format": "uuid"})",
       {"\"123e4567-e89b-12d3-a456-426614174000\""},
       {"\"123e4567\""}},
      {R"({"allOf": [{"type": "string", "nullable": true}, {"type": "string"}]})",
       {"\"a\""},
       {"null"}},
      {R"({"$ref": "#/$defs/a", "nullable": true, "$defs": {"a": {"type": "string"}}})",
       {"\"a\""},
       {"null"}},
      {R"({"type": "string", "nullable": true, "anyOf": [{"type": "string"}]})",
       {"\"a\""},
       {"null"}},
      {R"({"type": ["string", "null"]})", {"\"\"", "null"}, {"1"}},
      {R"({"type": "integer", "nullable": true, "minimum": -3, "maximum": 12})",
       {"-3", "0", "9", "12", "null"},
       {"-4", "13", "-0", "00"}},
      {R"({"type": "number", "exclusiveMinimum": 0, "maximum": 2})",
       {"0.1", "1", "1.25", "2"},
       {"0", "-1", "2.5", "3", "0.0"}},
      {R"({"type": "object", "properties": {"a": false, "b": {"type": "null"}}})",
       {"{}", R"({"b":null})"},
       {R"({"a":1})"}},
      {R"({"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "null"},
         "c": {"type": "null"}}, "minProperties": 1, "maxProperties": 2})",
       {R"({"a":null})", R"({"b": null, "c": null})", R"({"a":null,"b":null})"},
       {"{}", R"({"a":null,"b":null,"c":null})", R"({"d":null})", R"({"b":null,"a":null})"}},
      {R"({"type": "object", "properties": {"a": {"type": "null"}}, "minProperties": 2})",
       {R"({"a":null,"x":1})", R"({"a":null,"x":1,"y":2})"},
       {"{}", R"({"a":null})", R"({"x":1})", R"({"x":1,"y":2})", R"({"x":1,"x":2})"}},
      {R"({"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1,
         "maxProperties": 2})",
       {R"({"x":1})", R"({"x":1, "y":2})"},
       {"{}", R"({"x":1,"y":2,"z":3})", R"({"x":null})"}},
      {R"({"type": "object", "maxProperties": 0})", {"{}"}, {R"({"x":1})"}},
      {R"({"allOf": [{"type": "object", "maxProperties": 3}, {"maxProperties": 1}]})",
       {"{}", R"({"x":1})"},
       {R"({"x":1,"y":1})"}},
      {R"({"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"],
         "patternProperties": {"^x_[a-z]+$": {"type": "null"}}, "additionalProperties": false})",
       {R"({"id":1})", R"({"id":1,"x_a":null})", R"({"id": 1, "x_a": null, "x_bc": null})"},
       {"{}", R"({"id":1,"x_":null})", R"({"id":1,"x_a":1})", R"({"id":1,"y":null})",
        R"({"x_a":null})"}},
      {R"({"type": "object", "patternProperties": {"^\"": {"const": 1}, "a$": {"const": 1}},
         "minProperties": 1, "maxProperties": 2})",
       {R"({"\"":1})", R"({"ba":1})", R"({"a":1,"\"b":1})"},
       {"{}", R"({"b":1})", R"({"a":2})", R"({"a":1,"a":1,"a":1})"}},
      {R"({"type": "array", "items": {"enum": ["a", "b", 1, "c"], "type": "string"},
         "uniqueItems": true, "minItems": 1})",
       {R"(["a"])", R"(["a", "c"])", R"(["a","b","c"])"},
       {"[]", R"(["a","a"])", R"([1])", R"(["c","a"])"}},
      {R"({"type": "array", "items": {"enum": [1, 2, 3, 1.0]}, "uniqueItems": true, "maxItems": 2})",
       {"[]", "[1,3]", "[3]"},
       {"[1,2,3]", "[1,1]", "[1,1.0]"}},
      {R"({"type": "array", "items": {"type": "boolean"}, "uniqueItems": true})",
       {"[true, false]", "[false]"},
       {"[true,true]"}},
      {R"({"items": {"type": "integer"}, "uniqueItems": true, "maxItems": 1})",
       {"[]", "[7]"},
       {"[7,8]"}},
      {R"({"items": {"type": "integer"}, "uniqueItems": false})", {"[7,7]"}, {"[null]"}},
      {R"({"type": "number", "multipleOf": 5, "minimum": 4.5})",
       {"5", "1000005"},
       {"0", "7", "-5", "5.0"}},
      {R"({"allOf": [{"type": "integer", "multipleOf": 4}, {"multipleOf": 6}]})",
       {"0", "12", "-24", "999999999996"},
       {"4", "6", "-0", "012"}},
      {R"({"type": "integer", "multipleOf": 1000, "minimum": -2000, "exclusiveMaximum": 90000})",
       {"-2000", "0", "89000"},
       {"90000", "-3000", "500"}},
      {R"({"type": "object", "properties": {"ключ": {"const": "да"}}, "required": ["ключ"]})",
       {R"({"ключ":"да"})"},
       {R"({"ключ":"нет"})"}}};
  for (const SchemaCase& c : cases) {
    CAPTURE(c.schema);
    TextReader reader(schema(c.schema));
    for (const char* text : c.fit) CHECK_MESSAGE(reader.fits(text), text);
    for (const char* text : c.others) CHECK_MESSAGE(!reader.fits(text), text);
  }
}

TEST_CASE("grammar: whole numbers between bounds are these and no others") {
  std::mt19937 random(5);
  for (int i = 0; i < 60; ++i) {
    const int scale = i % 3 == 0 ? 30 : i % 3 == 1 ? 400 : 3000;
    int low = int(random() % unsigned(2 * scale)) - scale,
        high = int(random() % unsigned(2 * scale)) - scale;
    if (low > high) std::swap(low, high);
    CAPTURE(low);
    CAPTURE(high);
    TextReader reader(
        schema(fmt::format(R"({{"type": "integer", "minimum": {}, "maximum": {}}})", low, high)));
    for (int n = -3100; n <= 3100; ++n)
      if (reader.fits(std::to_string(n)) != (low <= n && n <= high)) FAIL_CHECK(n);
  }
  for (int of = 1; of <= 100; of += 1 + of / 3) {
    // few of them, which are listed; many on either side of 0; and without an end
    const int near = int(random() % 6000) - 3000, low = of % 3 == 1 ? near - 250000 : near,
              high = of % 3 == 0 ? near + 400 : near;
    const bool open = of % 3 == 2;
    CAPTURE(of);
    CAPTURE(low);
    CAPTURE(high);
    TextReader reader(schema(
        open ? fmt::format(R"({{"type": "integer", "multipleOf": {}, "minimum": {}}})", of, low)
             : fmt::format(
                   R"({{"type": "integer", "multipleOf": {}, "minimum": {}, "maximum": {}}})", of,
                   low, high)));
    for (int n = -3100; n <= 3100; ++n)
      if (reader.fits(std::to_string(n)) != (low <= n && n % of == 0 && (open || n <= high)))
        FAIL_CHECK(n);
  }
  TextReader above(schema(R"({"type": "integer", "exclusiveMinimum": 9.5, "maximum": 100})"));
  CHECK(!above.fits("9"));
  CHECK(above.fits("10"));
  CHECK(above.fits("100"));
}

TEST_CASE("grammar: a schema that cannot be honoured is refused by name") {
  const std::pair<const char*, const char*> cases[] = {
      {"{\"type\": \"object\",}", "test.json: line 1, column 19: found '}', expected JSON"},
      {"{\"a\": 1, \"a\": 2}", "key a appears twice"},
      {R"({"type": "text"})", "the schema: type is \"text\", expected object"},
      {R"({"properties": {"a": {"not": {}}}})", "/properties/a: keyword not cannot be honoured"},
      {R"({"type": "array", "uniqueItems": true})",
       "uniqueItems cannot be honoured where items have no enum"},
      {R"({"items": {"type": "integer"}, "uniqueItems": true})",
       "uniqueItems cannot be honoured where items have no enum"},
      {R"({"prefixItems": [{}, {}], "uniqueItems": true})", "uniqueItems beside prefixItems"},
      {R"({"uniqueItems": 1})", "uniqueItems is 1, expected true or false"},
      {R"({"multipleOf": 0.5})", "multipleOf is 0.5, which cannot be honoured"},
      {R"({"multipleOf": 0})", "multipleOf is 0, which cannot be honoured"},
      {R"({"type": "integer", "multipleOf": 1000})", "multipleOf is 1000, which cannot be"},
      {R"({"type": "object", "minProperties": 2})",
       "minProperties is 2, which cannot be honoured beside 0 named members, expected at most 1"},
      {R"({"maxProperties": -1})", "maxProperties is -1, expected a whole number"},
      {R"({"properties": {"a": {}}, "minProperties": 2, "additionalProperties": false})",
       "no text fits"},
      {R"({"required": ["a", "b"], "maxProperties": 1})", "no text fits"},
      {R"({"patternProperties": {"^a": {}}, "additionalProperties": {}})",
       "patternProperties beside additionalProperties cannot be honoured"},
      {R"({"patternProperties": {"^a": {}, "^b": {"type": "null"}}})",
       "several patternProperties cannot be honoured"},
      {R"({"patternProperties": {"b$": {}}, "properties": {"ab": {}}})",
       "patternProperties b$ fits ab, which properties or required name"},
      {R"({"patternProperties": {"(": {}}})", "/patternProperties: line 1, column 2"},
      {R"({"allOf": [{"patternProperties": {"^a": {}}}, {"additionalProperties": {}}]})",
       "patternProperties beside additionalProperties of another part"},
      {R"({"oneOf": [{"type": "object", "patternProperties": {"^k": {}}, "additionalProperties": false},
                     {"type": "object", "properties": {"k": {}}, "required": ["k"]}]})",
       "a value may be of both schemas 0 and 1"},
      {R"({"type": "string", "format": "email"})",
       "format email cannot be honoured, expected date"},
      {R"x({"type": "string", "pattern": "a(?=b)"})x",
       "/pattern: line 1, column 2: found a group that looks"},
      {R"({"type": "string", "pattern": "a", "minLength": 2})",
       "pattern beside minLength cannot be honoured"},
      {R"({"type": "number", "minimum": 0.5})", "minimum is 0.5, which cannot be honoured"},
      {R"({"$ref": "other.json"})", "$ref is \"other.json\", expected a place in this schema"},
      {R"({"$ref": "#/$defs/none"})", "$ref is #/$defs/none"},
      {R"({"$ref": "#"})", "no text fits the schema: each way through it goes on for ever"},
      {R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})",
       "a value may be of both schemas 0 and 1"},
      {R"({"allOf": [{"type": "string"}, {"type": "null"}]})", "no text fits"},
      {R"({"allOf": [{"pattern": "a"}, {"pattern": "b"}]})", "pattern differs in two schemas"},
      {R"({"type": "object", "properties": {"a": {}}, "required": ["b"], "additionalProperties": false})",
       "no text fits"},
      {R"({"type": "array", "minItems": -1})", "minItems is -1, expected a whole number"},
      {R"({"allOf": [{"required": "a"}, {"required": ["b"]}]})",
       "/allOf: required is \"a\", expected a list of names"},
      {R"({"allOf": [{"properties": [1]}, {"properties": {"a": true}}]})",
       "/allOf: properties is an array, expected an object"},
      {R"({"allOf": [{"type": "strng"}, {"type": "string"}]})",
       "/allOf: type is \"strng\", expected object"},
      {R"({"allOf": [{"enum": "a"}, {"enum": ["a"]}]})", "/allOf/enum: is \"a\", expected a list"},
      {R"({"enum": []})", "expected a list with at least one entry"},
      {R"({"items": 5})", "is 5, expected a schema"},
      {R"({"minimum": 1e400})", "beyond the range of a double"}};
  for (const auto& [text, line] : cases) {
    const Error error = error_of([&] { schema(text); });
    CHECK_MESSAGE(error.code == Exit::bad_file, text);
    CHECK_MESSAGE(contains(error.what(), line), std::string(error.what()));
  }
  std::string deep = "{}";
  for (int i = 0; i < 100; ++i) deep = "{\"items\": " + deep + "}";
  CHECK(contains(error_of([&] { schema(deep); }).what(), "nested more than 64 deep"));
}

TEST_CASE("grammar: a short schema cannot make endless work") {
  std::string twice = "{\"$defs\": {";
  for (int i = 0; i < 24; ++i)
    twice += fmt::format(
        R"("a{0}": {{"allOf": [{{"$ref": "#/$defs/a{1}"}}, {{"$ref": "#/$defs/a{1}"}}]}}, )", i,
        i + 1);
  twice += R"("a24": {"type": "string"}}, "allOf": [{"$ref": "#/$defs/a0"}]})";
  const std::string within = R"({"$defs": {"a": {"type": "object", "properties": {
      "l": {"$ref": "#/$defs/a"}, "r": {"$ref": "#/$defs/a"}}, "required": ["l", "r"]}},
      "oneOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]})";
  std::string names, copies;
  for (int i = 0; i < 3000; ++i) names += fmt::format("{}\"k{}\": true", i > 0 ? ", " : "", i);
  for (int i = 0; i < 3000; ++i)
    copies += fmt::format(R"({}{{"$ref": "#/$defs/a", "type": "null", "maxLength": {}}})",
                          i > 0 ? ", " : "", i);
  copies = fmt::format(R"({{"$defs": {{"a": {{"properties": {{{}}}}}}}, "anyOf": [{}]}})", names,
                       copies);
  for (const std::string& text : {twice, within, copies}) {
    const Error error = error_of([&] { schema(text); });
    CHECK_MESSAGE(contains(error.what(), "are more than 64 MB of work"), std::string(error.what()));
  }
}

TEST_CASE("grammar: long lists of a schema are read at once") {
  std::string values, options;
  for (int i = 0; i < 30000; ++i) values += fmt::format("\"{}\", ", i);
  for (int i = 0; i < 1500; ++i)
    options += fmt::format("{}{{\"const\": {}}}", i > 0 ? ", " : "", i);
  TextReader both(schema(
      fmt::format(R"({{"allOf": [{{"enum": [{0}"a"]}}, {{"enum": ["b", {0}"c"]}}]}})", values)));
  CHECK(both.begins("\"29999"));
  CHECK(!both.begins("\"a"));
  TextReader one(schema("{\"oneOf\": [" + options + "]}"));
  CHECK(one.fits("1499"));
  CHECK(contains(error_of([&] { schema("{\"oneOf\": [{\"const\": 7}, " + options + "]}"); }).what(),
                 "a value may be of both schemas"));
  CHECK(contains(error_of([&] { schema("{\"required\": [" + values + "\"a\"]}"); }).what(),
                 "more than 262144 states"));
}

// --- masks

// The tokens allowed, by trying each.
std::vector<bool> by_trying(Grammar& grammar, Grammar::Place place) {
  const Tokenizer& t = grammar.tokenizer();
  std::vector<bool> allowed;
  for (TokenId id = 0; id < t.size(); ++id) {
    const TokenType type = t.type(id);
    grammar.recognizer().allow_work();
    if (t.is_end(id))
      allowed.push_back(grammar.recognizer().may_end(place));
    else if (type == TokenType::control || type == TokenType::unknown || type == TokenType::unused)
      allowed.push_back(false);
    else
      allowed.push_back(!t.piece(id).empty() &&
                        grammar.recognizer().read(place, t.piece(id)) != Recognizer::kNowhere);
  }
  return allowed;
}

void check_masks(const Tokenizer& tokenizer, const std::shared_ptr<const Rules>& rules, int steps,
                 unsigned seed) {
  std::mt19937 random(seed);
  Grammar grammar(rules, tokenizer);
  Grammar::Place place = grammar.recognizer().start();
  for (int i = 0; i < steps; ++i) {
    const Grammar::Mask& mask = grammar.mask(place);
    const std::vector<bool> want = by_trying(grammar, place);
    std::vector<TokenId> texts;
    int count = 0;
    for (TokenId id = 0; id < tokenizer.size(); ++id) {
      if (mask.has(id) != want[size_t(id)])
        FAIL_CHECK("token ", id, " is allowed: ", !mask.has(id));
      count += want[size_t(id)];
      if (want[size_t(id)] && !tokenizer.is_end(id)) texts.push_back(id);
    }
    CHECK(mask.count == count);
    if (texts.empty()) break;
    place = grammar.recognizer().read(place, tokenizer.piece(texts[random() % texts.size()]));
    REQUIRE(place != Recognizer::kNowhere);
  }
}

TEST_CASE("grammar: a mask has the tokens that fit, whatever the vocabulary") {
  for (const char* name : {"gpt-2", "llama-spm", "phi-3"}) {
    const std::string path = data(std::string("vocab/ggml-vocab-") + name + ".gguf");
    if (!have(path)) continue;
    const auto tokenizer = Tokenizer::make(import_tokenizer(path));
    unsigned seed = 0;
    for (const auto& rules :
         {schema(R"({"type": "object", "properties": {"a": {"type": "string", "maxLength": 9},
                     "b": {"type": "array", "items": {"type": "number"}}}, "required": ["a"]})"),
          parse_gbnf({"c", read_file(golden("grammars/c.gbnf"))}),
          regex("[А-я ]+\\n(ä|ö|🙂)*"), gbnf("root ::= [^a-z]{3} | \"once\" [ \\n]* root")})
      check_masks(*tokenizer, rules, 12, ++seed);
  }
}

}  // namespace
}  // namespace chaski::test
