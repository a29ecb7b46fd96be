// The table of published pre-tokenizer patterns, and how they split a text.
//
// A pattern could do harm in two ways. Recursion: PCRE2 10.30 and later match on the heap, and the
// interpreter takes over if the JIT's stack overflows. Time: there is a step limit that grows with
// the text, and one published pattern is rewritten below.
#include "engine/text/tokenizer/pretokenizer.h"

#include <algorithm>

#include "engine/text/utf8.h"
#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/base/nearest.h"

namespace chaski {

namespace {

// The patterns as their models publish them (tokenizer.json, tiktoken). llama.cpp paraphrases some
// of them for its own matcher; these are the originals.
#define GPT2 R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"
#define ENGLISH_ENDINGS R"((?i:'s|'t|'re|'ve|'m|'ll|'d))"
#define WORD_OR_SIGNS(digits)                            \
  ENGLISH_ENDINGS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|)" digits \
                  R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"
#define UPPER R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define LOWER R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"
#define CASED_WORD_OR_SIGNS(ending, digits)                                                   \
  R"([^\r\n\p{L}\p{N}]?)" UPPER "*" LOWER "+" ending R"(|[^\r\n\p{L}\p{N}]?)" UPPER "+" LOWER \
  "*" ending "|" digits R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"
#define CJK_TO_HANGUL R"([\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+)"
#define NO_SENTENCE_MARKS R"( ?[^(\s|.,!?\x{2026}\x{3002}\x{FF0C}\x{3001}\x{964}\x{6D4}\x{60C})]+)"

// The cased letters of deepseek-llm, listed one by one as in the original, because the set is not
// \p{L&} of any Unicode version.
#define CASED_LETTERS                                                                                                         \
  R"(A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293}\x{295}-\x{2AF}\x{370}-\x{373})"       \
  R"(\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481})"         \
  R"(\x{48A}-\x{52F}\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF})"    \
  R"(\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45})"                 \
  R"(\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC})"          \
  R"(\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4})"         \
  R"(\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D})"   \
  R"(\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4})"  \
  R"(\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-\x{A78E})" \
  R"(\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F})"               \
  R"(\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}\x{1E900}-\x{1E943})"

struct Family {
  std::vector<std::string_view> names;  // values of tokenizer.ggml.pre
  Texts patterns;
  bool whole_words_first = false, adds_bos = false;
};

// The Asian scripts that afmoe separates.
#define ASIAN                                                                                 \
  R"([\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{F900}-\x{FAFF}\x{3040}-\x{309F}\x{30A0}-\x{30FF})" \
  R"(\x{FF65}-\x{FF9F}\x{2F00}-\x{2FDF}\x{E00}-\x{E7F}\x{E80}-\x{EFF}\x{1780}-\x{17FF})"      \
  R"(\x{1000}-\x{109F}\x{AA60}-\x{AA7F}\x{A9E0}-\x{A9FF}\x{AC00}-\x{D7AF}\x{1100}-\x{11FF}]+)"
#define CHINESE_OR_KANA R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)"
#define ASCII_SIGN R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~])"
#define MARKED_WORD_OR_SIGNS(signs_end)                                                    \
  ASCII_SIGN R"([A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+)" signs_end \
             R"(|\s+(?!\S)|\s+)"
// The letter classes of kimi-k2, which exclude Han.
#define KIMI_UPPER R"((?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define KIMI_LOWER R"((?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}])"
#define KIMI_WORD(first, second) \
  R"([^\r\n\p{L}\p{N}]?(?:)" KIMI_UPPER ")" first "(?:" KIMI_LOWER ")" second ENGLISH_ENDINGS "?|"

const std::vector<Family>& families() {
  static const std::vector<Family> table = {
      {{"default"}, {R"([\p{P}\$\+<=>\^~\|]+)", GPT2, R"(\p{N}+)", R"([0-9][0-9][0-9])"}},
      {{"gpt-2",      "gpt2",         "phi-2",       "mpt",         "olmo",
        "jais",       "trillion",     "gigachat",    "mellum",      "jina-es",
        "jina-de",    "jina-v2-es",   "jina-v2-de",  "a.x-4.0",     "exaone4",
        "jina-v1-en", "jina-v2-code", "roberta-bpe", "modern-bert", "granite-docling"},
       {GPT2}},
      {{"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2",
        "jina-v5-nano"},
       {WORD_OR_SIGNS(R"(\p{N}{1,3})")},
       true,
       true},
      {{"dbrx", "smaug-bpe", "glm4", "chatglm-bpe"}, {WORD_OR_SIGNS(R"(\p{N}{1,3})")}},
      {{"qwen2", "deepseek-r1-qwen", "stablelm2", "hunyuan", "megrez", "kormo", "f2llmv2",
        "solar-open", "grok-2"},
       {WORD_OR_SIGNS(R"(\p{N})")}},
      {{"qwen35"},
       {ENGLISH_ENDINGS
        R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}},
      {{"laguna"}, {R"([^\n]+|[\n]+)", WORD_OR_SIGNS(R"(\p{N})")}},
      {{"minicpm5"}, {R"(\p{N}{1,3})", WORD_OR_SIGNS(R"(\p{N}+)")}},
      {{"ufakzeka"},
       {R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}},
      {{"seed-coder"},
       {ENGLISH_ENDINGS
        R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)"}},
      {{"bailingmoe", "bailingmoe2", "llada-moe"},
       {R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)"}},
      {{"exaone-moe"},
       {ENGLISH_ENDINGS
        R"(|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)"}},
      {{"starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b",
        "mellum2"},
       {R"(\p{N})", GPT2}},
      {{"falcon"}, {R"([\p{P}\$\+<=>\^~\|`]+)", GPT2, R"([0-9][0-9][0-9])"}},
      {{"chameleon"},
       {R"(<sentinel:[0-9]+>)", R"((IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z)", R"(([\t\n]|    |  ))",
        R"(\p{N})", R"([\p{P}!-/:-@\[-`{-~])", GPT2},
       false,
       true},
      {{"deepseek-coder"},
       {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", CJK_TO_HANGUL, R"(\p{N})"}},
      {{"deepseek-llm"},
       {R"([\r\n])", R"(\s?[)" CASED_LETTERS "]+",
        R"(\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+)",
        R"(\s+$)", CJK_TO_HANGUL, R"(\p{N}+)"}},
      {{"deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"},
       {R"(\p{N}{1,3})", CHINESE_OR_KANA, MARKED_WORD_OR_SIGNS(R"([\r\n]*|\s*[\r\n]+)")}},
      {{"spark2_5"},
       {R"(\p{N}{1,3})", CHINESE_OR_KANA, MARKED_WORD_OR_SIGNS(R"(|[\r\n])"), R"(\p{N})"}},
      {{"afmoe"},
       {R"(\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N})))", ASIAN,
        MARKED_WORD_OR_SIGNS(R"([\r\n]*|\s*[\r\n]+)")}},
      {{"bloom", "poro-chat", "gpt3-finnish"}, {NO_SENTENCE_MARKS}},
      {{"viking"}, {NO_SENTENCE_MARKS, R"(\p{N})"}},
      {{"tekken"}, {CASED_WORD_OR_SIGNS("", R"(\p{N})")}, true, true},
      {{"gpt-4o", "o200k", "llama4", "kanana2", "talkie", "minimax-m2"},
       {CASED_WORD_OR_SIGNS(ENGLISH_ENDINGS "?", R"(\p{N}{1,3})")}},
      {{"granite-embed-multi-97m"},
       {CASED_WORD_OR_SIGNS(ENGLISH_ENDINGS "?", R"(\p{N}{1,3})")},
       true},
      {{"tiny_aya", "cohere2moe"},
       {R"(\d{1,3}(?=(?:\d{3})*\b))", CASED_WORD_OR_SIGNS(ENGLISH_ENDINGS "?", R"(\p{N}{1,3})")}},
      {{"youtu"},
       {R"([\x{AC00}-\x{D7A3}\x{3131}-\x{318E}]+|[\x{FF01}\x{2026}\x{201C}\x{201D}\x{2018}\x{2019}\x{2014}\x{FF1A}\x{FF1B}\x{FF0C}\x{3001}-\x{303F}\x{FE30}-\x{FE4F}]+|[\x{3105}-\x{312F}]+|)" CHINESE_OR_KANA,
        CASED_WORD_OR_SIGNS(ENGLISH_ENDINGS "?", R"(\p{N})")},
       true},
      {{"superbpe"}, {R"(\p{N}+)", R"((?=(\d{3})+(?!\d)))"}},
      // moonshotai/Kimi-K2, tokenization_kimi.py
      {{"kimi-k2"},
       {R"(\p{Han}+|)" KIMI_WORD("*", "+") KIMI_WORD(
           "+", "*") R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}},
  };
  return table;
}

const Family& family_named(std::string_view name, const std::string& origin) {
  for (const Family& family : families())
    if (std::find(family.names.begin(), family.names.end(), name) != family.names.end())
      return family;
  fail(Exit::bad_file, "{}: tokenizer.pre is \"{}\", expected a known name (nearest: {})", origin,
       escaped(name), nearest_name(name, Pretokenizer::names()));
}

// Rewrites the parts of a published pattern that PCRE2 reads differently or too slowly. \s is
// Unicode White_Space for Rust and Oniguruma, but in PCRE2 it also has U+180E (Mongolian vowel
// separator). \s+$ tries every start in a run of n spaces, n^2 steps, although only the first one
// can match.
std::string translated(std::string_view pattern) {
  if (pattern == R"(\s+$)") return R"((?<!\p{White_Space})\p{White_Space}++$)";
  std::string out;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const std::string_view two = std::string_view(pattern).substr(i, 2);
    if (two == "\\s" || two == "\\S")
      out += two == "\\s" ? R"(\p{White_Space})" : R"(\P{White_Space})";
    else
      out += two[0] == '\\' ? two : two.substr(0, 1);
    if (two[0] == '\\') ++i;
  }
  return out;
}

Pattern compiled(std::string_view pattern, const std::string& origin) {
  // "&&" intersects classes in Oniguruma. PCRE2 would read it as two characters and split
  // elsewhere.
  if (pattern.find("&&[") != std::string::npos)
    fail(Exit::bad_file,
         "{}: tokenizer pattern {} intersects classes (&&), expected a pattern without &&", origin,
         escaped(pattern));
  try {
    return {translated(pattern), Pattern::Of::characters};
  } catch (const PatternError& error) {
    fail(Exit::bad_file,
         "{}: tokenizer pattern {} is not a valid regular expression ({} at byte {})", origin,
         escaped(pattern), error.what, error.at);
  }
}

// Separates valid from invalid stretches. PCRE2 gets only valid UTF-8, so it need not check at
// every match.
std::vector<std::string_view> by_validity(std::string_view text, std::vector<bool>& valid) {
  std::vector<std::string_view> out;
  for (size_t begin = 0; begin < text.size();) {
    const bool good = read_utf8(text.substr(begin)).kind == Utf8::valid;
    size_t end = begin;
    while (end < text.size()) {
      const Utf8Char next = read_utf8(text.substr(end));
      if ((next.kind == Utf8::valid) != good) break;
      end += next.size;
    }
    out.push_back(text.substr(begin, end - begin));
    valid.push_back(good);
    begin = end;
  }
  return out;
}

// A reasonable pattern takes a few steps per character. PCRE2's default limit of ten million steps
// is too low for a long text.
PatternSearch search_in(std::string_view text) {
  return PatternSearch(10'000'000 + 64 * text.size());
}

// Matches and the gaps between them both become pieces.
void cut(PatternSearch& search, const Pattern& pattern, std::string_view piece,
         std::vector<std::string_view>& out) {
  size_t done = 0;
  const auto cut_at = [&](size_t end) {
    if (end > done) out.push_back(piece.substr(done, end - done));
    done = end;
  };
  for (bool empty = false; search.find(pattern, piece, done, empty);) {
    empty = search.begin() == search.end();
    const size_t end = search.end();
    cut_at(search.begin());
    cut_at(end);
  }
  cut_at(piece.size());
}

[[noreturn]] void cannot_cut(const PatternError& error, std::string_view text,
                             const std::string& origin) {
  fail(Exit::bad_file, "{}: a tokenizer pattern fails on a text of {} bytes: {}", origin,
       text.size(), error.what);
}

}  // namespace

Pretokenizer Pretokenizer::named(std::string_view name, const std::string& origin) {
  const Family& family = family_named(name, origin);
  Pretokenizer out = from_patterns(family.patterns, origin);
  out.whole_words_first_ = family.whole_words_first;
  out.adds_bos_ = family.adds_bos;
  return out;
}

const Texts& Pretokenizer::published(std::string_view name, const std::string& origin) {
  return family_named(name, origin).patterns;
}

std::vector<std::string> Pretokenizer::names() {
  std::vector<std::string> all;
  for (const Family& family : families())
    all.insert(all.end(), family.names.begin(), family.names.end());
  return all;
}

std::string Pretokenizer::replace(std::string_view text, std::string_view by) const try {
  PatternSearch search = search_in(text);
  std::string out;
  size_t done = 0;
  for (bool empty = false; search.find(patterns_[0], text, done, empty);) {
    out.append(text, done, search.begin() - done).append(by);
    empty = search.begin() == search.end();
    done = search.end();
  }
  return out.append(text, done);
} catch (const PatternError& error) {
  cannot_cut(error, text, origin_);
}

Pretokenizer Pretokenizer::from_patterns(const Texts& patterns, const std::string& origin) {
  Pretokenizer out;
  out.origin_ = origin;
  for (const std::string_view pattern : patterns)
    out.patterns_.push_back(compiled(pattern, origin));
  return out;
}

std::vector<std::string_view> Pretokenizer::split(std::string_view text) const try {
  std::vector<bool> valid;
  const std::vector<std::string_view> stretches = by_validity(text, valid);
  PatternSearch search = search_in(text);
  std::vector<std::string_view> out, pieces, next;
  for (size_t i = 0; i < stretches.size(); ++i) {
    pieces.assign(1, stretches[i]);
    for (const Pattern& pattern : patterns_) {
      if (!valid[i]) break;
      next.clear();
      for (const std::string_view piece : pieces) cut(search, pattern, piece, next);
      pieces.swap(next);
    }
    out.insert(out.end(), pieces.begin(), pieces.end());
  }
  return out;
} catch (const PatternError& error) {
  cannot_cut(error, text, origin_);
}

}  // namespace chaski
