#include "engine/grammar/reader.h"

#include <algorithm>

#include "engine/text/utf8.h"

namespace chaski {

void expect_size(const GrammarSource& source) {
  if (source.text.size() > kMostGrammarBytes)
    fail(source.code, "{}: the grammar has {} bytes, expected at most {}", source.name,
         source.text.size(), kMostGrammarBytes);
}

GrammarReader::GrammarReader(const GrammarSource& source) : source_(source) { expect_size(source); }

bool GrammarReader::take(std::string_view text) {
  if (!sees(text)) return false;
  at_ += text.size();
  return true;
}

uint32_t GrammarReader::character() {
  if (at_end()) expected("a character");
  const Utf8Char c = read_utf8(rest());
  if (c.kind != Utf8::valid) expected("UTF-8");
  at_ += size_t(c.size);
  return code_of(std::string_view(source_.text).substr(at_ - size_t(c.size), size_t(c.size)));
}

uint32_t GrammarReader::hex(int digits) {
  uint32_t code = 0;
  const size_t begin = at_;
  for (int i = 0; i < digits; ++i) {
    const char c = next();
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) expected(fmt::format("{} hexadecimal digits", digits));
    code = code << 4 | uint32_t(digit);
    ++at_;
  }
  if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF))
    wrong(begin, fmt::format("U+{:04X} is no character, expected one up to U+10FFFF", code));
  return code;
}

std::optional<uint32_t> GrammarReader::escape() {
  constexpr std::string_view kNames = "nrtfv0";
  const char c = next();
  if (const size_t i = kNames.find(c); !at_end() && i != kNames.npos) {
    ++at_;
    return uint32_t(std::string_view("\n\r\t\f\v\0", 6)[i]);
  }
  if (c != 'x' && c != 'u' && c != 'U') return std::nullopt;
  ++at_;
  return hex(c == 'x' ? 2 : c == 'u' ? 4 : 8);
}

int GrammarReader::number() {
  const size_t begin = at_;
  int value = 0;
  for (; next() >= '0' && next() <= '9'; ++at_) {
    value = value * 10 + (next() - '0');
    if (value > Rules::kMostRepeats)
      wrong(begin, fmt::format("more than {} repetitions, expected fewer", Rules::kMostRepeats));
  }
  if (at_ == begin) expected("a number");
  return value;
}

std::optional<GrammarReader::Repeats> GrammarReader::repeats(bool blanks) {
  if (take("*")) return Repeats{0, Rules::kUnlimited};
  if (take("+")) return Repeats{1, Rules::kUnlimited};
  if (take("?")) return Repeats{0, 1};
  const size_t begin = at_;
  if (!take("{")) return std::nullopt;
  const auto skip = [&] {
    while (blanks && (take(" ") || take("\t"))) continue;
  };
  const auto count = [&] {
    skip();
    const int n = number();
    skip();
    return n;
  };
  Repeats r;
  skip();
  // Programs disagree on {,n}: plain text in ECMA-262, an error in llama.cpp, {0,n} elsewhere.
  if (next() == ',') wrong(begin, "found {, without a minimum of repetitions, expected {0,n}");
  r.least = r.most = count();
  if (take(",")) {
    skip();
    r.most = next() == '}' ? Rules::kUnlimited : count();
  }
  if (!take("}")) expected("'}'");
  if (r.most != Rules::kUnlimited && r.most < r.least)
    wrong(begin, fmt::format("the minimum of repetitions {} is larger than the maximum {}, "
                             "expected the smaller first",
                             r.least, r.most));
  return r;
}

}  // namespace chaski
