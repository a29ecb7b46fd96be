// Grammars: the texts that they allow, by trying all texts up to a length; the tokens that they
// allow, by trying all tokens; and grammars that are refused.
#include <random>
#include <set>

#include "models/import/import.h"
#include "tests/kit/grammar_support.h"
#include "tests/kit/regex.h"

namespace chaski::test {
namespace {

// All texts of these letters up to a length, in the order of length.
std::vector<std::string> all_texts(const std::string& letters, size_t most) {
  std::vector<std::string> all = {""};
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i].size() < most)
      for (const char c : letters) all.push_back(all[i] + c);
  return all;
}

// Checks which texts fit, and which are the beginning of one that fits. The latter is only certain
// for texts shorter than `most` by `margin`, the largest distance from a fitting text to the next
// one.
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
    std::string plain = expression;  // std::regex has no named groups
    if (const size_t at = plain.find("<name>"); at != plain.npos) plain.replace(at - 1, 7, "");
    const StdRegex other(plain);
    check_all(reader, "abc", 6, 3, [&](const std::string& text) { return other.matches(text); });
  }
}

TEST_CASE("grammar: recursive rules allow the texts found by counting") {
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
  // A palindrome can be read in many ways until its end.
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

TEST_CASE("grammar: repetitions are counted, also of rules and of empty items") {
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
  TextReader blanks(gbnf("root ::= \"a\"{ 2} \"b\"{ 1 , 2 } \"c\"{ 1, }"));
  CHECK(blanks.fits("aabbcc"));
  CHECK(!blanks.fits("abc"));
  TextReader optional(gbnf("root ::= (\"a\"? \"b\"?){2}"));
  check_all(optional, "ab", 5, 5, [other = StdRegex("(a?b?){2}")](const std::string& text) {
    return other.matches(text);
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
  CHECK(any.begins("\xE2\x82"));  // the last byte is missing
  CHECK(!any.fits("\xE2\x82"));
  CHECK(any.fits("\xE2\x82\xAC"));
}

// U+0663 is a digit and U+00E9 a letter in some engines, U+00A0 and U+2028 spaces in some.
TEST_CASE("grammar: a class takes no character on which engines disagree") {
  const std::pair<const char*, const char*> cases[] = {
      {"[^\\D]", "7"},
      {"[^\\W]", "a7_"},
      {"[^\\W_]", "a7"},
      {"[^\\s]", "a7_.\xC3\xA9\xD9\xA3"},
      {"[^\\d]", "a_. \xC3\xA9\xC2\xA0\xE2\x80\xA8"},
      {"[^\\w]", ". \xC2\xA0\xE2\x80\xA8"},
      {"[^\\S]", " "},
      {"\\D", "a_. \xC3\xA9\xC2\xA0\xE2\x80\xA8"},
      {"\\W", ". \xC2\xA0\xE2\x80\xA8"},
      {"\\S", "a7_.\xC3\xA9\xD9\xA3"},
      {"[\\W7]", "7. \xC2\xA0\xE2\x80\xA8"},
      {"[^a\\s]", "7_.\xC3\xA9\xD9\xA3"}};
  for (const auto& [expression, fitting] : cases) {
    CAPTURE(expression);
    TextReader reader(regex(expression));
    for (const char* c :
         {"a", "7", "_", ".", " ", "\xC3\xA9", "\xD9\xA3", "\xC2\xA0", "\xE2\x80\xA8"})
      CHECK_MESSAGE(reader.fits(c) == contains(fitting, c), c);
  }
}

TEST_CASE("grammar: published grammars") {
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

TEST_CASE("grammar: errors have one line, with line and column") {
  const std::pair<const char*, const char*> cases[] = {
      {"list ::= \"a\"\n", "test.gbnf: line 2, column 1: there is no rule root"},
      {"root ::= \"a\"\n  list ::= [b\n", "line 2, column 14: found '\\n', expected ']'"},
      {"root ::= a b\na ::= \"\"\n", "line 1, column 12: rule b is not defined"},
      {"root ::= \"a", "line 1, column 12: found the end, expected '\"'"},
      {"root = \"a\"", "line 1, column 6: found '=', expected '::='"},
      {"root ::= \"a\" )", "line 1, column 14: found ')', expected '|'"},
      {"root ::= (\"a\"", "found the end, expected ')'"},
      {"root ::= \"\\q\"", "found 'q', expected \\n"},
      {"root ::= [b-a]", "a range that ends before it begins"},
      {"root ::= \"a\"{3,2}", "the minimum of repetitions 3 is larger than the maximum 2"},
      {"root ::= \"a\"{200000}", "more than 100000 repetitions"},
      {"root ::= \"a\"\nroot ::= \"b\"", "line 2, column 1: rule root is defined twice"},
      {"root ::= \"a\" b ::= \"b\"", "found the next rule"},
      {"root ::= \"\\uD800\"", "U+D800 is no character"},
      {"root ::= \xff", "expected a text in quotes"},
      {"root ::= \"\xff\"", "expected UTF-8"},
      {"\nroot ::= root \"a\" | \"a\"", "line 2, column 1: rule root begins with itself"},
      {"root ::= a\na ::= ws b\nb ::= a \"x\" | \"y\"\nws ::= \" \"?", "begins with itself"},
      {"root ::= \"a\" root",
       "line 1, column 1: no text fits rule root: each way through it is infinite or allows "
       "nothing"},
      {"root ::= <think",
       "line 1, column 16: found the end, expected '>' after the text of a token"},
      {"root ::= <[x]>", "line 1, column 12: found 'x', expected the id of a token"},
      {"root ::= \"a\"{ ,4}", "without a minimum of repetitions"},
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
      {"*a", "expected an item before the repetition"},
      {"a**", "expected one repetition, not two"},
      {"a{,5}", "column 2: found {, without a minimum of repetitions, expected {0,n}"},
      {"(?=a)", "column 1: found a group that looks around"},
      {"(?<!a)b", "column 1: found a group that looks around"},
      {"(a)\\1", "column 4: found \\1, expected"},
      {"\\bword", "column 1: found \\b, expected"},
      {"a^b", "expected ^ at the beginning"},
      {"a$b", "expected ^ at the beginning"},
      {"[z-a]", "a range that is not from"},
      {"\\p{L}", "found \\p, expected"}};
  for (const auto& [text, line] : expressions) {
    const Error error = error_of([&] { regex(text); });
    CHECK(error.code == Exit::usage);
    CHECK_MESSAGE(contains(error.what(), line), std::string(error.what()));
  }
}

TEST_CASE("grammar: too many ways to read a text are an error") {
  std::string many = "root ::= r0\n";
  for (int i = 0; i < 40; ++i) many += fmt::format("r{0} ::= r{1} \"x\" | r{1} \"y\"\n", i, i + 1);
  TextReader reader(gbnf(many + "r40 ::= \"a\"\n"));
  const Error error = error_of([&] { reader.begins("a"); });
  CHECK_MESSAGE(contains(error.what(), "too ambiguous"), error.what());
}

TEST_CASE("grammar: the only byte that may follow is known without trying all") {
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

TEST_CASE("grammar: the cache of places stays small when each has many ways") {
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

// The allowed tokens, by trying each.
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

TEST_CASE("grammar: a mask has the tokens that fit, for several vocabularies") {
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
