// Normalizer steps, and the kinds of tokenizer other than BPE: unigram and WordPiece. Other
// programs computed the expected values: Python's unicodedata, Hugging Face's tokenizers.
#include "engine/text/tokenizer/normalizer.h"

#include "engine/text/tokenizer/tokenizer.h"
#include "models/import/import.h"
#include "tests/kit/import_support.h"

using namespace chaski;
using namespace chaski::test;

namespace {

using Ids = std::vector<TokenId>;
using TextList = std::vector<std::string>;

std::string normalized(const TextList& steps, const std::string& text,
                       std::vector<int64_t> charsmap = {}) {
  Metadata meta;
  meta.origin = "made";
  meta.set_strs("tokenizer.normalizer", steps);
  if (!charsmap.empty()) meta.set_ints("tokenizer.charsmap", std::move(charsmap));
  return Normalizer::of(meta).apply(text);
}

std::string refusal(const TextList& steps, std::vector<int64_t> charsmap = {}) {
  return error_of([&] { normalized(steps, "a", charsmap); }).what();
}

// A Darts-clone trie with one rule: the byte `from` becomes `to`.
std::vector<int64_t> one_rule(unsigned char from, const std::string& to) {
  std::vector<uint32_t> trie(1024, 0);
  trie[0] = 256u << 10;                            // its children begin at 256
  trie[256 ^ from] = from | 1u << 8 | 512u << 10;  // has a value, stored in its child 0
  trie[(256u ^ from) ^ 512] = 0x80000000u;         // the first text
  std::vector<int64_t> bytes;
  const auto append = [&](uint32_t n) {
    for (int i = 0; i < 4; ++i) bytes.push_back(n >> 8 * i & 0xFF);
  };
  append(uint32_t(trie.size() * 4));
  for (const uint32_t unit : trie) append(unit);
  for (const char c : to) bytes.push_back(static_cast<unsigned char>(c));
  bytes.push_back(0);
  return bytes;
}

Metadata pieces(const std::string& kind, const TextList& tokens, std::vector<int64_t> types) {
  Metadata meta;
  meta.origin = "made";
  meta.set_str("tokenizer.kind", kind);
  meta.set_strs("tokenizer.tokens", tokens);
  meta.set_ints("tokenizer.types", std::move(types));
  meta.set_int("tokenizer.unk_id", 0);
  return meta;
}

}  // namespace

TEST_CASE("tokenizer: normalizer steps") {
  CHECK(normalized({"nfc"}, "e\u0301 \uFB01 plain") == "\u00E9 \uFB01 plain");
  CHECK(normalized({"nfd"}, "\u00E9\uAC00") == "e\u0301\u1100\u1161");
  CHECK(normalized({"nfkc"}, "\uFB01\u00BD\u3000x") == "fi1\u20442 x");
  CHECK(normalized({"nfkd"}, "\u00E9\uFB01") == "e\u0301fi");
  CHECK(normalized({"lowercase"}, "ABC \u0130 \u03A3 \u00C5\u01C5") ==
        "abc i\u0307 \u03C3 \u00E5\u01C6");
  CHECK(normalized({"nfd", "strip_marks", "lowercase"}, "H\u00C9llo") == "hello");
  CHECK(normalized({"strip_accents"}, "e\u0301\u0903\u20DDx") == "ex");
  CHECK(normalized({"strip_left", "strip_right"}, "\u00A0\t a b \u3000\n") == "a b");
  CHECK(normalized({"squeeze"}, "  a   b ") == "a b");
  CHECK(normalized({"bert_clean"}, "a\tb\u200Bd\u00A0e\uFFFDf\x01g") == "a bd efg");
  CHECK(normalized({"bert_han"}, "a\u6F22\u5B57b\u3042") == "a \u6F22  \u5B57 b\u3042");
  CHECK(normalized({"replace", "ab", "\u2581"}, "cabab") == "c\u2581\u2581");
  CHECK(normalized({"regex", " {2,}", " "}, "a   b  c d") == "a b c d");
  CHECK(normalized({"prepend", "\u2581"}, "a") ==
        "\u2581"
        "a");
  CHECK(normalized({"prepend", "\u2581"}, "").empty());
  CHECK(normalized({"lowercase"}, "A\xFF\xC3") == "a\uFFFD\uFFFD");  // bytes that are not UTF-8
  CHECK(normalized({"charsmap"}, "abcA", one_rule('b', "XY")) == "aXYcA");
  CHECK(refusal({"nfx"}).find("has \"nfx\", expected") != std::string::npos);
  CHECK(refusal({"replace", "a"}).find("ends after \"replace\"") != std::string::npos);
  CHECK(refusal({"replace", "", "a"}).find("empty") != std::string::npos);
  CHECK(refusal({"charsmap"}).find("charsmap has 0 bytes") != std::string::npos);
  CHECK(refusal({"charsmap"}, {255, 255, 255, 255, 0}).find("charsmap") != std::string::npos);
  // A trie that points outside of itself matches nothing.
  std::vector<int64_t> wild(4 + 8, 255);
  wild[0] = 8, wild[1] = wild[2] = wild[3] = 0;
  CHECK(normalized({"charsmap"}, "abc", wild) == "abc");
}

TEST_CASE("tokenizer: unigram takes the best path, and unknown characters in a row are one") {
  Metadata meta = pieces("unigram", {"<unk>", "</s>", "▁", "a", "b", "ab", "abb", "▁a", "bb"},
                         {2, 3, 1, 1, 1, 1, 1, 1, 1});
  meta.set_floats("tokenizer.scores", {0, 0, -2, -3, -3, -4, -7.5, -3.5, -3.25});
  meta.set_bool("tokenizer.add_space_prefix", true);
  const auto t = Tokenizer::make(meta);
  CHECK(t->encode("abb") == Ids{7, 8});         // -6.75; ▁ abb has -9.5 and ▁ ab b has -9
  CHECK(t->encode("bab") == Ids{2, 4, 5});      // ▁ b ab
  CHECK(t->encode("bxyb") == Ids{2, 4, 0, 4});  // x and y have no piece
  CHECK(t->encode("ab ab ab") == Ids{2, 5, 2, 5, 2, 5});  // -6; ▁a b has -6.5
  CHECK(t->decode(t->encode("ab bb")) == "ab bb");
  CHECK(t->encode("").empty());
  // Unknown characters become bytes if the vocabulary has all of them.
  const auto& stored = meta.strs("tokenizer.tokens");
  TextList tokens(stored.begin(), stored.end());
  std::vector<int64_t> types(meta.ints("tokenizer.types").begin(),
                             meta.ints("tokenizer.types").end());
  std::vector<double> scores(meta.floats("tokenizer.scores").begin(),
                             meta.floats("tokenizer.scores").end());
  for (int byte = 0; byte < 256; ++byte)
    tokens.push_back(fmt::format("<0x{:02X}>", byte)), types.push_back(6), scores.push_back(0);
  meta.set_strs("tokenizer.tokens", tokens), meta.set_ints("tokenizer.types", types);
  meta.set_floats("tokenizer.scores", scores);
  CHECK(Tokenizer::make(meta)->encode("a\u00E9") == Ids{7, 9 + 0xC3, 9 + 0xA9});
}

TEST_CASE("tokenizer: WordPiece takes the longest pieces from the left, or the unknown token") {
  Metadata meta = pieces("wordpiece", {"[UNK]", "[CLS]", "▁hello", "▁hel", "lo", "▁!", "s", "▁a"},
                         {2, 3, 1, 1, 1, 1, 1, 1});
  meta.set_strs("tokenizer.normalizer", {"lowercase"});
  const auto t = Tokenizer::make(meta);
  CHECK(t->encode("Hello hellos hello!") == Ids{2, 2, 6, 2, 5});
  CHECK(t->encode("hellox a\u00A0a") == Ids{0, 7, 7});
  CHECK(t->encode("a" + std::string(100, 's')) == Ids{0});  // more than 100 characters
  CHECK(t->encode("a" + std::string(99, 's')).size() == 100);
  CHECK(t->encode("\n").empty());  // white space alone, as in transformers and llama.cpp
  CHECK(t->encode("hello\n\n \thello\n") == Ids{2, 2});
  CHECK(t->decode(Ids{2, 6, 5}) == "hellos !");
  CHECK(t->encode("[CLS]") == Ids{0, 0, 0});  // typed text
  CHECK(t->encode_with_control("[CLS]") == Ids{1});
  meta.set_int("tokenizer.unk_id", -1);
  meta.set_ints("tokenizer.types", {1, 3, 1, 1, 1, 1, 1, 1});
  CHECK(error_of([&] { Tokenizer::make(meta); }).code == Exit::bad_file);
}

TEST_CASE("import/tokenizer.json of kinds Unigram and WordPiece, alone and through GGUF") {
  const TempFolder folder;
  write_file(folder / "tokenizer.json",
             R"({"model": {"type": "WordPiece", "unk_token": "[UNK]", "vocab": {"[UNK]": 0,
      "[CLS]": 1, "[SEP]": 2, "hello": 3, "##s": 4, "e": 5}},
    "normalizer": {"type": "BertNormalizer", "lowercase": true}, "pre_tokenizer": {"type": "BertPreTokenizer"},
    "added_tokens": [{"id": 1, "content": "[CLS]", "special": true}, {"id": 2, "content": "[SEP]", "special": true}],
    "post_processor": {"type": "BertProcessing", "cls": ["[CLS]", 1], "sep": ["[SEP]", 2]}})");
  const Metadata words = import_tokenizer(folder.path);
  CHECK(words.str("tokenizer.kind") == "wordpiece");
  CHECK(words.strs("tokenizer.tokens") ==
        chaski::Texts{"[UNK]", "[CLS]", "[SEP]", "▁hello", "s", "▁e"});
  CHECK(Tokenizer::make(words)->encode_prompt("H\u00C9llos \u00E9") == Ids{1, 3, 4, 5});
  CHECK(Tokenizer::make(words)->encode_whole("H\u00C9llos \u00E9") == Ids{1, 3, 4, 5, 2});
  CHECK(import_tokenizer(folder / "tokenizer.json").all().size() >=
        10);  // the path of the file itself
  write_file(folder / "vocab.txt", "[PAD]\n[UNK]\n[CLS]\nhello\n##s\n");
  CHECK(Tokenizer::make(import_tokenizer(folder / "vocab.txt"))->encode("HELLOS") == Ids{3, 4});

  write_file(
      folder / "tokenizer.json",
      R"({"model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0], ["▁a", -1], ["b", -2], ["▁", -3]]},
    "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Replace",
      "pattern": {"Regex": " {2,}"}, "content": " "}]},
    "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"}})");
  const Metadata best = import_tokenizer(folder.path);
  CHECK(Tokenizer::make(best)->encode_whole("ab") == Ids{1, 2});  // no closing token
  CHECK(Tokenizer::make(best)->encode("ab   b\uFF41") == Ids{1, 2, 3, 2, 0});
  for (const Metadata& meta : {words, best}) {
    ModelSource source;
    source.path = "made", source.meta = meta;
    source.meta.set_str("general.architecture", "nobody");
    export_gguf(folder / "out.gguf", source);
    const Metadata back = import_tokenizer(folder / "out.gguf");
    for (const char* text : {"hello s", "ab  b", "\u00C9!"})
      CHECK(Tokenizer::make(back)->encode(text) == Tokenizer::make(meta)->encode(text));
  }
}

// The path scores are -7.071932418906278 and -11.616171654716833, in either order after
// -14.212971140135284. They tie if the second number is read like serde_json reads it. The first of
// equal paths wins.
TEST_CASE("import/scores of a tokenizer.json are read as Hugging Face reads them") {
  const TempFolder folder;
  write_file(folder / "tokenizer.json",
             R"({"model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0],
      ["▁", -2.117743016744896], ["-", -5.13311336177359], ["3", -6.962114933073094],
      ["9", -7.071932418906278], ["99", -11.616171654716833]]},
    "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"}})");
  CHECK(Tokenizer::make(import_tokenizer(folder.path))->encode("-3999") == Ids{1, 2, 3, 4, 5});
}

TEST_CASE("import/GGUF of Gemma 4: merges decide which of two joins is first") {
  Gguf g;
  g.str("general.architecture", "gemma4").str("tokenizer.ggml.model", "gemma4");
  g.strs("tokenizer.ggml.tokens", {"<unk>", "▁", "a", "b", "ab", "▁a", "ba"});
  g.i32s("tokenizer.ggml.token_type", {2, 1, 1, 1, 1, 1, 1});
  g.strs("tokenizer.ggml.merges", {"b a", "▁ a", "a b"});
  const TempFolder folder;
  const auto t = Tokenizer::make(import_gguf(write_file(folder / "g.gguf", g.build())).meta);
  CHECK(t->encode("aba ab") == Ids{2, 6, 5, 3});
}
