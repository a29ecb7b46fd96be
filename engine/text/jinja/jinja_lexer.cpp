#include "engine/text/jinja/jinja_lexer.h"

#include <algorithm>
#include <charconv>

#include "ggml-like-tensor/base/error.h"

namespace chaski::jinja {

namespace {

using Kind = Token::Kind;

// Line ends become '
// '; one at the end of the template is dropped.
Text with_line_feeds(std::string_view source) {
  Text out;
  const Text text = text_of(source);
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') continue;
    out += text[i] == '\r' ? U'\n' : text[i];
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

bool is_name(char32_t c) { return c == '_' || is_letter(c) || is_digit(c); }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(with_line_feeds(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) data();
    put(Kind::end);
    return std::move(out_);
  }

 private:
  template <class... Args>
  [[noreturn]] void wrong(fmt::format_string<Args...> format, Args&&... args) {
    fault("line {}: {}", line_, fmt::format(format, std::forward<Args>(args)...));
  }

  Token& put(Kind kind) {
    out_.push_back({kind, line_, {}, {}});
    return out_.back();
  }
  char32_t peek(size_t ahead = 0) const {
    return at_ + ahead < source_.size() ? source_[at_ + ahead] : U'\0';
  }
  bool matches(std::u32string_view text, size_t ahead = 0) const {
    return View(source_).substr(std::min(at_ + ahead, source_.size())).starts_with(text);
  }
  void skip(size_t count) {
    line_ += int(std::count(source_.begin() + ptrdiff_t(at_),
                            source_.begin() + ptrdiff_t(at_ + count), U'\n'));
    at_ += count;
    line_starts_ = at_ == 0 || source_[at_ - 1] == '\n';
  }
  void skip_space() {
    size_t count = 0;
    while (at_ + count < source_.size() && is_space(source_[at_ + count])) ++count;
    skip(count);
  }

  // Reads the text up to the next tag, without white space that the tag removes, and then the tag.
  void data() {
    size_t tag = at_;
    const auto begins = [&](size_t i) {
      return source_[i] == '{' && i + 1 < source_.size() &&
             (source_[i + 1] == '{' || source_[i + 1] == '%' || source_[i + 1] == '#');
    };
    while (tag < source_.size() && !begins(tag)) ++tag;
    const bool at_end = tag == source_.size();
    const char32_t kind = at_end ? U'\0' : source_[tag + 1];
    const char32_t sign = tag + 2 < source_.size() ? source_[tag + 2] : U'\0';
    put_data(tag - at_, at_end ? U'+' : kind == '{' && sign != '-' ? U'+' : sign);
    if (at_end) return;
    skip(sign == '-' || sign == '+' ? 3 : 2);
    if (kind == '#') return comment();
    if (kind == '%' && begins_raw()) return raw();
    put(kind == '{' ? Kind::print_begin : Kind::block_begin);
    tag_words(kind == '{' ? U'}' : U'%');
  }

  // `sign` belongs to the tag that follows the text. '-' removes all white space before the tag,
  // '+' none. Without a sign, white space is removed if the tag is the first on its line.
  void put_data(size_t size, char32_t sign) {
    View text = View(source_).substr(at_, size);
    const bool line_starts = line_starts_;
    Token& token = put(Kind::data);
    if (sign == '-') {
      text = stripped(text, Side::right);
    } else if (sign != '+') {
      const size_t feed = text.rfind(U'\n');
      const View last = feed == View::npos ? text : text.substr(feed + 1);
      const bool whole = feed != View::npos || line_starts;
      if (whole && stripped(last, Side::left).empty()) text.remove_suffix(last.size());
    }
    token.text = text;
    skip(size);
    if (out_.back().text.empty()) out_.pop_back();
  }

  // Reads the end of a tag: -%} removes all following white space, %} a line end.
  bool close_block(char32_t mark) {
    const Text close = {mark, U'}'};
    if (matches(U'-' + close)) {
      skip(3), skip_space();
    } else if (matches(U'+' + close)) {
      skip(3);
    } else if (matches(close)) {
      skip(2);
      if (peek() == '\n') skip(1);
    } else {
      return false;
    }
    return true;
  }

  void comment() {
    const int begin = line_;
    while (!close_block(U'#')) {
      if (at_ >= source_.size()) fault("line {}: comment {{# has no end #}}", begin);
      skip(1);
    }
  }

  // The size of the word and of the rest up to the percent sign; 0 if the tag is another one.
  size_t raw_tag(std::u32string_view word) const {
    size_t ahead = 0;
    while (is_space(peek(ahead))) ++ahead;
    if (!matches(word, ahead)) return 0;
    ahead += word.size();
    while (is_space(peek(ahead))) ++ahead;
    return ahead;
  }
  bool begins_raw() {
    const size_t words = raw_tag(U"raw");
    if (words == 0 || !(matches(U"%}", words) || matches(U"-%}", words))) return false;
    skip(words);
    if (peek() == '-')
      skip(3), skip_space();
    else
      skip(2);
    return true;
  }
  void raw() {
    const int begin = line_;
    for (size_t size = 0;; ++size) {
      if (at_ + size >= source_.size()) fault("line {}: {{% raw %}} has no {{% endraw %}}", begin);
      if (!matches(U"{%", size)) continue;
      const char32_t sign = peek(size + 2);
      const size_t open = sign == '-' || sign == '+' ? 3 : 2;
      const size_t before = at_;
      at_ += size + open;
      const size_t words = raw_tag(U"endraw");
      const bool closes =
          words > 0 && (matches(U"%}", words) || matches(U"-%}", words) || matches(U"+%}", words));
      at_ = before;
      if (!closes) continue;
      put_data(size, sign);
      skip(open + words);
      close_block(U'%');
      return;
    }
  }

  void tag_words(char32_t mark) {
    const int begin = line_;
    std::string open;  // brackets
    for (;;) {
      skip_space();
      if (at_ >= source_.size()) fault("line {}: {} has no end", begin, mark == '%' ? "{%" : "{{");
      if (open.empty() && closes(mark)) return;
      const char32_t c = peek();
      if (is_digit(c) && c < 0x80)
        number();
      else if (is_name(c))
        name();
      else if (c == '\'' || c == '"')
        text();
      else
        sign(open);
    }
  }

  bool closes(char32_t mark) {
    const Kind kind = mark == '%' ? Kind::block_end : Kind::print_end;
    const int line = line_;
    if (mark == '%') {
      if (!close_block(mark)) return false;
    } else if (matches(U"-}}")) {
      skip(3), skip_space();
    } else if (matches(U"}}")) {
      skip(2);
    } else {
      return false;
    }
    put(kind).line = line;
    return true;
  }

  void name() {
    size_t size = 0;
    while (is_name(peek(size))) ++size;
    put(Kind::name).word = utf8(View(source_).substr(at_, size));
    skip(size);
  }

  std::string digits(size_t& ahead) const {
    std::string out;
    for (;; ++ahead) {
      const char32_t c = peek(ahead);
      if (c >= '0' && c <= '9')
        out += char(c);
      else if (c != '_' || !(peek(ahead + 1) >= '0' && peek(ahead + 1) <= '9'))
        return out;
    }
  }

  void number() {
    size_t ahead = 0;
    std::string text = digits(ahead);
    const auto digit = [&](size_t i) { return peek(i) >= '0' && peek(i) <= '9'; };
    bool real = false;
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';  // messages.0.content
    if (!after_dot && peek(ahead) == '.' && digit(ahead + 1)) {
      real = true;
      text += '.', ++ahead;
      text += digits(ahead);
    }
    if (!after_dot && (peek(ahead) == 'e' || peek(ahead) == 'E')) {
      const bool sign = peek(ahead + 1) == '+' || peek(ahead + 1) == '-';
      if (digit(ahead + 1 + sign)) {
        real = true;
        text += 'e';
        if (sign && peek(ahead + 1) == '-') text += '-';
        ahead += 1 + sign;
        text += digits(ahead);
      }
    }
    Token& token = put(real ? Kind::real : Kind::integer);
    const char *begin = text.data(), *end = begin + text.size();
    const auto result =
        real ? std::from_chars(begin, end, token.real) : std::from_chars(begin, end, token.integer);
    if (result.ec != std::errc()) wrong("the number {} is too large", text);
    skip(ahead);
  }

  void text() {
    const char32_t quote = peek();
    Token token{Kind::text, line_, {}, {}};
    size_t ahead = 1;
    while (at_ + ahead < source_.size() && peek(ahead) != quote)
      if (peek(ahead) == '\\')
        ahead += escape(ahead, token.text);
      else
        token.text += peek(ahead++);
    if (at_ + ahead >= source_.size()) wrong("a text has no end, expected {}", char(quote));
    skip(ahead + 1);
    out_.push_back(std::move(token));
  }

  // Appends the character of an escape sequence and returns the length of the sequence.
  size_t escape(size_t at, Text& out) {
    const char32_t c = peek(at + 1);
    constexpr std::string_view kKnown = "\\\\''\"\"n\nr\rt\tb\bf\fa\av\v";
    for (size_t i = 0; i < kKnown.size(); i += 2)
      if (c == char32_t(kKnown[i])) return out += char32_t(kKnown[i + 1]), 2;
    if (c == '\n') return 2;
    const bool octal = c >= '0' && c <= '7';
    const size_t most = octal ? 3 : c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (most == 0) return out += U'\\', 1;
    std::string digits;
    const size_t first = at + (octal ? 1 : 2);
    const auto fits = [&](char32_t d) {
      return octal ? d >= '0' && d <= '7'
                   : (d >= '0' && d <= '9') || (d >= 'a' && d <= 'f') || (d >= 'A' && d <= 'F');
    };
    while (digits.size() < most && fits(peek(first + digits.size())))
      digits += char(peek(first + digits.size()));
    const uint64_t code = std::stoull("0" + digits, nullptr, octal ? 8 : 16);
    if ((!octal && digits.size() < most) || code > 0x10FFFF)
      wrong("\\{}{} in a string is not a valid escape", char(c), digits);
    out += char32_t(code);
    return first - at + digits.size();
  }

  void sign(std::string& open) {
    constexpr std::u32string_view kPairs[] = {U"//", U"**", U"==", U"!=", U">=", U"<="};
    constexpr std::u32string_view kSingles = U"+-/*%~[](){}><=.:|,;";
    size_t size = kSingles.find(peek()) != View::npos ? 1 : 0;
    for (const auto pair : kPairs)
      if (matches(pair)) size = 2;
    if (size == 0)
      wrong("unexpected \"{}\" in an expression", escaped(utf8(View(&source_[at_], 1))));
    const std::string word = utf8(View(source_).substr(at_, size));
    const size_t closing = std::string_view(")]}").find(word);
    if (std::string_view("([{").find(word) != std::string_view::npos) {
      open += word;
    } else if (closing != std::string_view::npos) {
      if (open.empty() || open.back() != "([{"[closing]) wrong("\"{}\" closes nothing", word);
      open.pop_back();
    }
    put(Kind::sign).word = word;
    skip(size);
  }

  const Text source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starts_ = true;
  std::vector<Token> out_;
};

}  // namespace

std::vector<Token> tokens_of(std::string_view source) { return Lexer(source).run(); }

std::string described(const Token& token) {
  switch (token.kind) {
    case Kind::data:
      return "text";
    case Kind::print_begin:
      return "\"{{\"";
    case Kind::print_end:
      return "\"}}\"";
    case Kind::block_begin:
      return "\"{%\"";
    case Kind::block_end:
      return "\"%}\"";
    case Kind::text:
      return "\"" + escaped(utf8(View(token.text).substr(0, 40))) + "\"";
    case Kind::integer:
      return std::to_string(token.integer);
    case Kind::real:
      return shown(token.real);
    case Kind::end:
      return "the end of the template";
    default:
      return "\"" + escaped(token.word) + "\"";
  }
}

}  // namespace chaski::jinja
