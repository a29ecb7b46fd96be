// Tokenizers against published vectors (text and ids, from the projects of the vocabularies),
// hostile texts, and contradictory files.
#include "engine/text/tokenizer/tokenizer.h"

#include <algorithm>
#include <sstream>

#include "engine/text/tokenizer/byte_alphabet.h"
#include "engine/text/tokenizer/pretokenizer.h"
#include "ggml-like-tensor/base/error.h"
#include "models/import/import.h"
#include "tests/kit/support.h"

using namespace chaski;
using test::data;
using test::have;

namespace {

using Ids = std::vector<TokenId>;
using TextList = std::vector<std::string>;

std::string from_base64(std::string_view text) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  unsigned bits = 0, count = 0;
  for (char c : text.substr(0, text.find('='))) {
    bits = bits << 6 | static_cast<unsigned>(kDigits.find(c));
    if ((count += 6) < 8) continue;
    out += static_cast<char>(bits >> (count -= 8));
  }
  return out;
}

// A tiktoken file has a line "base64 rank" for each token, in order of ranks. It has no merges and
// no control tokens.
Metadata tiktoken_metadata(const std::string& path, const std::string& pre,
                           const TextList& control) {
  std::istringstream lines(test::read_file(path));
  TextList tokens;
  std::string token;
  for (int rank; lines >> token >> rank;) tokens.push_back(to_byte_alphabet(from_base64(token)));
  std::vector<int64_t> types(tokens.size(), 1);
  for (const std::string& raw : control) {
    tokens.push_back(raw);
    types.push_back(3);
  }
  Metadata meta;
  meta.origin = path;
  meta.set_str("tokenizer.kind", "bpe");
  meta.set_str("tokenizer.pre", pre);
  meta.set_strs("tokenizer.tokens", tokens);
  meta.set_ints("tokenizer.types", types);
  return meta;
}

struct Vocabulary {
  const char* vectors;  // vocab/ggml-vocab-<vectors>.gguf.inp and .out
  const char* file;     // empty: the GGUF of the same name
  const char* pre;
  TextList control;
};

const Vocabulary kVocabularies[] = {
    {"llama-spm", "", "", {}},
    {"phi-3", "", "", {}},
    {"gpt-2", "", "", {}},
    {"deepseek-coder", "", "", {}},
    {"llama-bpe",
     "tokenizers/llama3/tokenizer.model",
     "llama-bpe",
     {"<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"}},
    {"qwen2",
     "tokenizers/qwen/qwen.tiktoken",
     "qwen2",
     {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}},
    {"deepseek-r1-qwen",
     "tokenizers/qwen/qwen.tiktoken",
     "deepseek-r1-qwen",
     {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}},
};

std::unique_ptr<Tokenizer> load(const Vocabulary& vocabulary) {
  const bool tiktoken = *vocabulary.file != 0;
  const std::string path = data(
      tiktoken ? vocabulary.file : fmt::format("vocab/ggml-vocab-{}.gguf", vocabulary.vectors));
  if (!have(path)) return nullptr;
  return Tokenizer::make(tiktoken ? tiktoken_metadata(path, vocabulary.pre, vocabulary.control)
                                  : import_gguf(path).meta);
}

TextList split_at(const std::string& text, const std::string& separator) {
  TextList out;
  for (size_t at = 0, end; (end = text.find(separator, at)) != std::string::npos;
       at = end + separator.size())
    out.push_back(text.substr(at, end - at));
  return out;
}

// All single bytes in the byte alphabet, then `more`; merges are optional.
Metadata bpe_metadata(const TextList& more, const TextList& merges,
                      const std::vector<int64_t>& types = {}) {
  Metadata meta;
  meta.origin = "made.gguf";
  TextList tokens;
  for (int byte = 0; byte < 256; ++byte)
    tokens.push_back(to_byte_alphabet(std::string(1, static_cast<char>(byte))));
  std::vector<int64_t> all_types(256, 1);
  tokens.insert(tokens.end(), more.begin(), more.end());
  all_types.insert(all_types.end(), types.begin(), types.end());
  all_types.resize(tokens.size(), 1);
  meta.set_str("tokenizer.kind", "bpe");
  meta.set_strs("tokenizer.tokens", tokens);
  meta.set_ints("tokenizer.types", all_types);
  if (!merges.empty()) meta.set_strs("tokenizer.merges", merges);
  return meta;
}

Metadata spm_metadata(const TextList& tokens, const std::vector<double>& scores,
                      const std::vector<int64_t>& types) {
  Metadata meta;
  meta.origin = "made.gguf";
  meta.set_str("tokenizer.kind", "spm");
  meta.set_strs("tokenizer.tokens", tokens);
  meta.set_floats("tokenizer.scores", scores);
  meta.set_ints("tokenizer.types", types);
  return meta;
}

TextList cuts(const Pretokenizer& pretokenizer, std::string_view text) {
  const auto pieces = pretokenizer.split(text);
  return {pieces.begin(), pieces.end()};
}

std::string load_error(const Metadata& meta) {
  try {
    Tokenizer::make(meta);
  } catch (const Error& error) {
    CHECK_EQ(static_cast<int>(error.code), static_cast<int>(Exit::bad_file));
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("tokenizer: the published vectors") {
  for (const Vocabulary& vocabulary : kVocabularies) {
    const auto tokenizer = load(vocabulary);
    if (!tokenizer) continue;
    CAPTURE(vocabulary.vectors);
    const std::string base = data(fmt::format("vocab/ggml-vocab-{}.gguf", vocabulary.vectors));
    const TextList texts = split_at(test::read_file(base + ".inp"), "\n__ggml_vocab_test__\n");
    const TextList lines = split_at(test::read_file(base + ".out"), "\n");
    CHECK_EQ(texts.size(), 46);
    REQUIRE_EQ(texts.size(), lines.size());
    for (size_t i = 0; i < texts.size(); ++i) {
      std::istringstream line(lines[i]);
      Ids expected;
      for (TokenId id; line >> id;) expected.push_back(id);
      CAPTURE(texts[i]);
      CHECK_EQ(tokenizer->encode(texts[i]), expected);
      CHECK_EQ(tokenizer->encode_with_control(texts[i]), expected);
      CHECK_EQ(tokenizer->decode(expected), texts[i]);
    }
  }
}

TEST_CASE("tokenizer: decoding gives the text back") {
  for (const Vocabulary& vocabulary : kVocabularies) {
    const auto tokenizer = load(vocabulary);
    if (!tokenizer) continue;
    CAPTURE(vocabulary.vectors);
    for (const auto& file : std::filesystem::directory_iterator(data("eval"))) {
      if (file.path().extension() == ".gz") continue;
      CAPTURE(file.path().string());
      const std::string text = test::read_file(file.path());
      const Ids ids = tokenizer->encode(text);
      CHECK(tokenizer->decode(ids) == text);
      CHECK_LT(ids.size(), text.size() / 2);
    }
  }
}

TEST_CASE("tokenizer: what a user types is never a control token") {
  const std::string typed =
      "</s><s>[INST]<unk><|im_start|>system\n<|im_end|><|eot_id|> "
      "<|begin_of_text|><|end_of_text|><|endoftext|>"
      "<|user|>x<|end|><|EOT|><0x0A>";
  // spm reads U+2581 back as a space
  const std::string deepseek = "<｜begin▁of▁sentence｜><｜end▁of▁sentence｜><｜User｜>";
  for (const Vocabulary& vocabulary : kVocabularies) {
    const auto tokenizer = load(vocabulary);
    if (!tokenizer) continue;
    CAPTURE(vocabulary.vectors);
    const Ids ids = tokenizer->encode(typed);
    for (TokenId id : tokenizer->encode(typed + deepseek))
      CHECK_FALSE((tokenizer->is_control(id) || tokenizer->is_end(id)));
    CHECK_EQ(tokenizer->decode(ids), typed);
    const Ids trusted = tokenizer->encode_with_control(typed + deepseek);
    CHECK(std::any_of(trusted.begin(), trusted.end(),
                      [&](TokenId id) { return tokenizer->is_control(id); }));
  }
}

TEST_CASE("tokenizer: a million equal characters") {
  for (const Vocabulary& vocabulary : kVocabularies) {
    const std::string name = vocabulary.vectors;
    // one of each kind
    if (name != "llama-spm" && name != "deepseek-coder" && name != "llama-bpe") continue;
    const auto tokenizer = load(vocabulary);
    if (!tokenizer) continue;
    CAPTURE(name);
    for (const char* character : {"a", " ", "é", "1", "!"}) {
      CAPTURE(character);
      std::string text;
      for (int i = 0; i < 1'000'000; ++i) text += character;
      text += "x";  // after spaces this is the harder case
      CHECK(tokenizer->decode(tokenizer->encode(text)) == text);
    }
  }
}

TEST_CASE("pretokenizer: no pattern tries every start of a run") {
  const std::string text = std::string(1'000'000, ' ') + "x";
  for (const char* name :
       {"default", "gpt-2", "llama-bpe", "dbrx", "qwen2", "starcoder", "falcon", "deepseek-coder",
        "deepseek-llm", "deepseek-v3", "bloom", "viking", "tekken", "gpt-4o"}) {
    CAPTURE(name);
    CHECK_LE(Pretokenizer::named(name, "").split(text).size(), 3);
    CHECK_GE(Pretokenizer::named(name, "").split(std::string(1'000'000, 'A')).size(), 1);
  }
  CHECK_EQ(Pretokenizer::from_patterns({R"(\s+$)"}, "").split(text).size(), 1);
  CHECK_EQ(cuts(Pretokenizer::from_patterns({R"(\s+$)"}, ""), " a  "), TextList{" a", "  "});
  const auto hopeless = Pretokenizer::from_patterns({R"((?:a|aa)+[bc])"}, "made.gguf");
  CHECK_THROWS_AS(hopeless.split(std::string(1000, 'a')), Error);
}

TEST_CASE("pretokenizer: splits") {
  const auto gpt2 = Pretokenizer::named("gpt-2", "");
  CHECK_EQ(cuts(gpt2, "I've  12345 é\n\n x!?"),
           TextList{"I", "'ve", " ", " 12345", " é", "\n\n", " x", "!?"});
  const auto llama3 = Pretokenizer::named("llama-bpe", "");
  CHECK_EQ(cuts(llama3, "I'VE 12345 é\n\n x!?\n"),
           TextList{"I", "'VE", " ", "123", "45", " é", "\n\n", " x", "!?\n"});
  CHECK_EQ(cuts(Pretokenizer::named("qwen2", ""), "a123"), TextList{"a", "1", "2", "3"});
  CHECK_EQ(cuts(Pretokenizer::named("deepseek-v3", ""), "a1234我x.b"),
           TextList{"a", "123", "4", "我", "x", ".b"});
  CHECK_EQ(cuts(Pretokenizer::named("gpt-4o", ""), "HelloWORLD's"), TextList{"Hello", "WORLD's"});
  CHECK_EQ(cuts(Pretokenizer::named("tekken", ""), "HelloWORLD's"),
           TextList{"Hello", "WORLD", "'s"});
  CHECK_EQ(cuts(Pretokenizer::named("falcon", ""), "a=12345"), TextList{"a", "=", "123", "45"});
  CHECK_EQ(cuts(Pretokenizer::named("bloom", ""), "a b, c"), TextList{"a", " b", ",", " c"});
  // U+180E separates letters in Mongolian and has not been white space since Unicode 6.3.
  CHECK_EQ(cuts(Pretokenizer::from_patterns({R"(\s)"}, ""), "a\u180Eb\u2003c"),
           TextList{"a\u180Eb", "\u2003", "c"});
  CHECK_EQ(cuts(Pretokenizer::from_patterns({"(?=b)", "a"}, ""), "aab"), TextList{"a", "a", "b"});
  CHECK_EQ(cuts(gpt2, "a\xFF\xC3 b\xE2\x82"), TextList{"a", "\xFF\xC3", " b", "\xE2\x82"});
  CHECK(gpt2.split("").empty());
}

TEST_CASE("tokenizer: invalid UTF-8 comes back as it was") {
  std::string text = "a\xC3";
  for (int byte = 1; byte < 256; ++byte) text += static_cast<char>(byte);
  text += "é\xF0\x9F\x98";
  for (const Vocabulary& vocabulary : kVocabularies) {
    const auto tokenizer = load(vocabulary);
    if (!tokenizer) continue;
    CAPTURE(vocabulary.vectors);
    const std::string back = tokenizer->decode(tokenizer->encode(text));
    // deepseek-coder has no pieces for the 13 bytes that never occur in UTF-8; each becomes U+FFFD.
    if (std::string(vocabulary.vectors) == "deepseek-coder")
      CHECK_EQ(back.size(), text.size() + 13 * 2);
    else
      CHECK(back == text);
  }
}

// GPT-NeoX has no pieces for the bytes that never occur in UTF-8, and its unknown token is
// <|endoftext|>.
TEST_CASE("tokenizer: bytes without a piece never become a control token") {
  TextList tokens = {"<|endoftext|>", "a", "b", to_byte_alphabet(" ")};
  Metadata bpe;
  bpe.origin = "made.gguf";
  bpe.set_str("tokenizer.kind", "bpe");
  bpe.set_strs("tokenizer.tokens", tokens);
  bpe.set_ints("tokenizer.types", {3, 1, 1, 1});
  for (const char* key : {"tokenizer.unk_id", "tokenizer.eos_id"}) bpe.set_int(key, 0);
  CHECK_EQ(Tokenizer::make(bpe)->encode("a\xff b"), Ids{1, 3, 2});
  // If it can be spelled, U+FFFD replaces the byte; so does an unknown token that is no control
  // token.
  for (const char* byte : {"\xEF", "\xBF", "\xBD"}) tokens.push_back(to_byte_alphabet(byte));
  bpe.set_strs("tokenizer.tokens", tokens);
  bpe.set_ints("tokenizer.types", {3, 1, 1, 1, 1, 1, 1});
  CHECK_EQ(Tokenizer::make(bpe)->encode("a\xff"), Ids{1, 4, 5, 6});
  bpe.set_int("tokenizer.unk_id", 2);
  CHECK_EQ(Tokenizer::make(bpe)->encode("a\xff"), Ids{1, 2});

  Metadata spm = spm_metadata({"</s>", "a", "\u2581"}, {0, 0, 0}, {3, 1, 1});
  spm.set_int("tokenizer.unk_id", 0);
  CHECK_EQ(Tokenizer::make(spm)->encode("a\xff"), Ids{2, 1});
}

// With a naive sort these took minutes, and so did every text with the same beginning.
TEST_CASE("tokenizer: a million control tokens with one first byte") {
  TextList more;
  for (int i = 0; i < 1'000'000; ++i) more.push_back(fmt::format("<|{}|>", i));
  Metadata meta = bpe_metadata(more, {}, std::vector<int64_t>(more.size(), 3));
  const auto tokenizer = Tokenizer::make(meta);
  CHECK_EQ(tokenizer->encode_with_control("<|17|><|999999|><|1000000|>").size(), 2 + 11);
  std::string many;
  for (int i = 0; i < 100'000; ++i) many += "<|x";
  CHECK_EQ(tokenizer->encode_with_control(many).size(), many.size());
}

TEST_CASE("tokenizer: byte-level merges go by rank, from the left, and never to a control token") {
  const TextList more = {"ab", "bc", "aa", "abc", "<s>"};
  const std::vector<int64_t> types = {1, 1, 1, 1, 3};
  const auto ranked =
      Tokenizer::make(bpe_metadata(more, {"b c", "a b", "a a", "a bc", "< s>"}, types));
  CHECK_EQ(ranked->size(), 261);
  CHECK_EQ(ranked->encode("abc"), Ids{259});
  CHECK_EQ(ranked->encode("ab"), Ids{256});
  CHECK_EQ(ranked->encode("aaa"), Ids{258, 'a'});
  const auto by_id = Tokenizer::make(bpe_metadata(more, {}, types));
  CHECK_EQ(by_id->encode("xabcab"), Ids{'x', 259, 256});
  Metadata whole = bpe_metadata(more, {"a b"}, types);
  CHECK_EQ(Tokenizer::make(whole)->encode("abc"), Ids{256, 'c'});
  whole.set_bool("tokenizer.ignore_merges", true);
  CHECK_EQ(Tokenizer::make(whole)->encode("abc"), Ids{259});
  CHECK_EQ(ranked->encode("<s>"), Ids{'<', 's', '>'});
}

TEST_CASE("tokenizer: user-defined tokens, parts and seams") {
  const TextList more = {"<|a|>", "<|a|><|b|>", "   ", "  ", "ab", "<|b|>"};
  const auto tokenizer = Tokenizer::make(bpe_metadata(more, {"a b"}, {3, 3, 4, 4, 1, 4}));
  CHECK_EQ(tokenizer->encode("x     y"), Ids{'x', 258, 259, 'y'});
  CHECK_EQ(tokenizer->decode(Ids{'x', 258, 259, 256, 'y'}), "x     y");
  CHECK_EQ(tokenizer->encode_with_control("<|a|>x<|a|><|b|><|a|"),
           Ids{256, 'x', 257, '<', '|', 'a', '|'});
  CHECK(tokenizer->is_control(261));                          // user-defined in the file only
  CHECK_EQ(tokenizer->decode(Ids{'x', 262, -1, 'y'}), "xy");  // ids of padding rows
  using Part = Tokenizer::Part;
  const auto parts = [&](std::vector<Part> list) { return tokenizer->encode_parts(list); };
  CHECK_EQ(parts({{"a", true}, {"b"}}), Ids{260});
  CHECK_EQ(parts({{"a", true}, {"b", false, true}}), Ids{'a', 'b'});
  CHECK_EQ(parts({{"<|a", true}, {"|>"}}), Ids{'<', '|', 'a', '|', '>'});
  CHECK_EQ(parts({{"<|a|>", true}, {"<|a|>"}}), Ids{256, '<', '|', 'a', '|', '>'});
}

TEST_CASE("tokenizer: SentencePiece by scores") {
  const std::string space = "\u2581";
  const TextList tokens = {"<unk>", "<s>",       "</s>", "<0x0A>", space, "a", "b",  "c",  "ab",
                           "bc",    space + "a", "aa",   "<",      ">",   "s", "s>", "<s>"};
  const std::vector<double> scores = {0,  0,  0,  0,  -9, -9, -9, -9, -2,
                                      -1, -3, -4, -9, -9, -9, -1, -1};
  const std::vector<int64_t> types = {2, 3, 3, 6, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3};
  const auto tokenizer = Tokenizer::make(spm_metadata(tokens, scores, types));
  CHECK_EQ(tokenizer->encode("abc"), Ids{10, 9});
  CHECK_EQ(tokenizer->encode("caaa"), Ids{4, 7, 11, 5});
  CHECK_EQ(tokenizer->encode("a\nb é"), Ids{10, 3, 6, 4, 0});
  CHECK_EQ(tokenizer->encode("<s>"), Ids{4, 12, 15});
  CHECK_EQ(tokenizer->encode(""), Ids{});
  CHECK_EQ(tokenizer->encode_prompt("a"), Ids{1, 10});
  CHECK_EQ(tokenizer->encode_with_control("a<s>a"), Ids{10, 1, 10});
  CHECK_EQ(tokenizer->decode(Ids{1, 10, 3, 10}), "a\n a");
  CHECK_EQ(tokenizer->piece(10), " a");
  CHECK_EQ(tokenizer->raw(10), space + "a");
  CHECK_EQ(tokenizer->encode_parts(std::vector<Tokenizer::Part>{{"a"}, {"a", false, true}}),
           Ids{10, 5});
  CHECK_EQ(tokenizer->bos(), 1);
  CHECK(tokenizer->is_end(2));

  // A piece may contain a space in its middle. Text after a user-defined token is not the beginning
  // of a text.
  const std::string over = "a" + space;
  const auto phrases =
      Tokenizer::make(spm_metadata({"<unk>", space, "a", "b", over, over + "b", space + "b", "[x]"},
                                   {0, -9, -9, -9, -1, -2, -8, 0}, {2, 1, 1, 1, 1, 1, 1, 4}));
  CHECK_EQ(phrases->encode("a b"), Ids{1, 5});
  CHECK_EQ(phrases->encode("b[x]b"), Ids{6, 7, 3});

  Metadata bare = spm_metadata(tokens, scores, types);
  bare.set_bool("tokenizer.add_space_prefix", false);
  bare.set_bool("tokenizer.add_bos", false);
  CHECK_EQ(Tokenizer::make(bare)->encode_prompt("a"), Ids{5});
  CHECK_EQ(Tokenizer::make(bare)->decode(Ids{10}), " a");
}

TEST_CASE("tokenizer: files that contradict themselves") {
  const auto spm = [](const TextList& tokens) { return spm_metadata(tokens, {0, 0}, {2, 1}); };
  Metadata meta = spm({"<unk>", "a"});
  CHECK_EQ(load_error(meta), "");
  meta.set_int("tokenizer.eos_id", 2);
  CHECK_EQ(load_error(meta),
           "made.gguf: tokenizer.eos_id is 2, expected an id below 2, the number of tokens");
  CHECK_EQ(load_error(spm({"<unk>", "a", "b"})),
           "made.gguf: tokenizer.types has 2 entries, expected 3");
  meta = spm({"<unk>", "a"});
  meta.set_floats("tokenizer.scores", {1});
  CHECK_EQ(load_error(meta), "made.gguf: tokenizer.scores has 1 entries, expected 2");
  meta.set_str("tokenizer.kind", "w\x1b");
  CHECK_EQ(load_error(meta),
           "made.gguf: tokenizer.kind is \"w\\x1b\", expected spm, bpe, "
           "unigram, wordpiece, rwkv or plamo2");
  meta = spm_metadata({"<unk>", "x"}, {0, 0}, {2, 6});
  CHECK_EQ(load_error(meta), "made.gguf: byte token 1 is \"x\", expected <0xNN>");
  meta.set_ints("tokenizer.types", {2, 7});
  CHECK_EQ(load_error(meta), "made.gguf: tokenizer.types[1] is 7, expected 1 to 6");
  CHECK_NE(load_error(spm_metadata({"a", "b"}, {0, 0}, {1, 1})),
           "");  // no byte tokens and no unknown token

  CHECK_EQ(Tokenizer::make(bpe_metadata({"ab"}, {"x yz", "a b", "a c"}))->remark(),
           "made.gguf: tokenizer.merges[0] is \"x yz\", and a piece of it is missing: ignored "
           "2 of 3 merges");
  CHECK_EQ(Tokenizer::make(bpe_metadata({"ab"}, {"x yz", "a b"}))->encode("ab"), Ids{256});
  CHECK_EQ(Tokenizer::make(bpe_metadata({"ab"}, {"a b"}))->remark(), "");
  CHECK_EQ(load_error(bpe_metadata({}, {"ab"})),
           "made.gguf: tokenizer.merges[0] is \"ab\", expected two pieces");
  CHECK_NE(load_error(bpe_metadata({}, {""})), "");
  meta = bpe_metadata({}, {});
  meta.set_ints("tokenizer.eos_ids", {1, 256});
  CHECK_EQ(
      load_error(meta),
      "made.gguf: tokenizer.eos_ids has the id 256, expected ids below 256, the number of tokens");
  meta = bpe_metadata({}, {});
  meta.set_str("tokenizer.pre", "unheard-of");
  CHECK_NE(load_error(meta).find("tokenizer.pre is \"unheard-of\", expected a known name"),
           std::string::npos);
  meta.set_strs("tokenizer.pre_patterns", {"("});  // has priority over the name
  CHECK_NE(load_error(meta).find("tokenizer pattern ( is not a valid regular expression"),
           std::string::npos);
  meta.set_strs("tokenizer.pre_patterns", {"[a&&[b]]"});
  CHECK_NE(load_error(meta).find("intersects classes"), std::string::npos);
  meta.set_strs("tokenizer.tokens", {});
  CHECK_NE(load_error(meta), "");
}
