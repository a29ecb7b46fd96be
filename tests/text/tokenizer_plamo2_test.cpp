// PLaMo 2's tokenizer: the pieces with the highest sum of scores.
#include <cmath>

#include "engine/text/tokenizer/tokenizer.h"
#include "ggml-like-tensor/base/error.h"
#include "models/import/import.h"
#include "tests/kit/support.h"

using namespace chaski;

namespace {

using Ids = std::vector<TokenId>;

// Id 0 is unknown, 1 begins a text; the bytes are 2 to 257, then `more`.
Metadata pieces(const std::vector<std::pair<std::string, double>>& more) {
  Metadata meta;
  meta.origin = "made.gguf";
  std::vector<std::string> tokens = {"<|plamo:unk|>", "<|plamo:bos|>"};
  std::vector<int64_t> types = {2, 3};
  for (int byte = 0; byte < 256; ++byte) {
    tokens.push_back(fmt::format("<0x{:02X}>", byte)), types.push_back(6);
  }
  std::vector<double> scores(tokens.size(), 0);
  for (const auto& [text, score] : more)
    tokens.push_back(text), scores.push_back(score), types.push_back(1);
  meta.set_str("tokenizer.kind", "plamo2");
  meta.set_strs("tokenizer.tokens", tokens);
  meta.set_floats("tokenizer.scores", scores);
  meta.set_ints("tokenizer.types", types);
  meta.set_int("tokenizer.bos_id", 1);
  return meta;
}

}  // namespace

TEST_CASE("tokenizer: PLaMo 2 takes the pieces with the highest sum of scores") {
  const auto t = Tokenizer::make(pieces({{"a", -2},
                                         {"b", -2},
                                         {"ab", -3},
                                         {"abc", -9},
                                         {"c", -1},
                                         {" ", -1},
                                         {"\u65e5", -4},
                                         {"bc", -3}}));
  constexpr TokenId a = 258, b = 259, ab = 260, c = 262, space = 263, sun = 264;
  CHECK_EQ(t->encode("abc"), Ids{ab, c});  // -4; a, bc has -5 and abc -9
  CHECK_EQ(t->encode("aba b"), Ids{ab, a, space, b});
  // A character without a piece is its bytes, although pieces of the others would cost less.
  CHECK_EQ(t->encode("\u65e5\u672c"), Ids{sun, 2 + 0xE6, 2 + 0x9C, 2 + 0xAC});
  CHECK_EQ(t->encode("a\xFF\xE6\x97"), Ids{a, 2 + 0xFF, 2 + 0xE6, 2 + 0x97});
  CHECK_EQ(t->decode(t->encode("ab \u65e5\u672c\xFF")), "ab \u65e5\u672c\xFF");
  CHECK_EQ(t->encode_with_control("<|plamo:bos|>a"), Ids{1, a});
  CHECK_EQ(t->encode("<|plamo:bos|>").size(), 13);  // characters
  // If sums are equal, the longest first piece wins.
  const auto equal = Tokenizer::make(pieces({{"x", -1}, {"xx", -2}, {"xxx", -3}}));
  CHECK_EQ(equal->encode("xxxx"), Ids{260, 258});
}

TEST_CASE("tokenizer: PLaMo 2's tokens that a user defined are found in a text") {
  Metadata meta = pieces({{"<op>", -1}});
  std::vector<int64_t> types(259, 6);
  types[0] = 2, types[1] = 3, types[258] = 4;
  meta.set_ints("tokenizer.types", types);
  CHECK_EQ(Tokenizer::make(meta)->encode("a<op>"), Ids{2 + 'a', 258});
}

TEST_CASE("tokenizer: PLaMo 2's vocabularies that cannot be read") {
  Metadata meta = pieces({{"ab", std::nan("")}});
  CHECK_EQ(test::error_of([&] { Tokenizer::make(meta); }).what(),
           std::string("made.gguf: tokenizer.scores[258] is nan, expected a number"));
  meta = pieces({});
  meta.set_floats("tokenizer.scores", {1, 2});
  CHECK_EQ(test::error_of([&] { Tokenizer::make(meta); }).what(),
           std::string("made.gguf: tokenizer.scores has 2 entries, expected 258"));
  meta = pieces({});
  std::vector<int64_t> types(258, 6);
  types[0] = 2, types[1] = 3, types[2 + 0x0A] = 5;
  meta.set_ints("tokenizer.types", types);
  CHECK_EQ(test::error_of([&] { Tokenizer::make(meta); }).what(),
           std::string("made.gguf: tokenizer.tokens has no byte token for the byte 0x0a, expected "
                       "all 256"));
}

TEST_CASE("import/hf PLaMo 2's vocabulary file") {
  const test::TempFolder folder;
  std::string lines = "[\"<|plamo:unk|>\", 0, \"UNKNOWN\"]\n[\"<|plamo:bos|>\", 0, \"CONTROL\"]\n";
  for (int byte = 0; byte < 256; ++byte)
    lines += fmt::format("[\"<0x{:02X}>\", 0, \"BYTE\", null]\r\n", byte);
  lines += "[\"ab\", -1.5, \"NORMAL\", 7]\n\n[\"<|plamo:op|>\", 0.0, \"NORMAL\"]\n";
  const std::string path = test::write_file(folder / "tokenizer.jsonl", lines);
  const auto t = Tokenizer::make(import_tokenizer(path));
  CHECK_EQ(t->encode("abc"), Ids{258, 2 + 'c'});
  CHECK_EQ(t->encode_with_control("<|plamo:op|>"), Ids{259});
  CHECK_EQ(t->unk(), 0);
  test::write_file(path, lines + "[\"x\"]\n");
  const std::string why = test::error_of([&] { import_tokenizer(path); }).what();
  CHECK_MESSAGE(why.find("tokenizer.jsonl: line 262") != why.npos, why);
}
