#include "engine/text/jinja/jinja_text.h"

#include <utf8proc.h>

#include <algorithm>

#include "engine/text/characters.h"
#include "engine/text/utf8.h"

namespace chaski::jinja {

namespace {

constexpr char32_t kByte = 0x11'0000;  // and above: bytes that are not UTF-8

utf8proc_category_t category(char32_t c) {
  return plain(c) < kByte ? utf8proc_category(int32_t(plain(c))) : UTF8PROC_CATEGORY_CN;
}

bool ends_line(char32_t c) {
  c = plain(c);
  return (c >= '\n' && c <= '\r') || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

}  // namespace

Text text_of(std::string_view bytes, char32_t mark) {
  Text out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    const Utf8Char c = read_utf8(bytes);
    if (c.kind == Utf8::valid)
      out += char32_t(first_character(bytes)) | mark;
    else
      for (int i = 0; i < c.size; ++i)
        out += (kByte + static_cast<unsigned char>(bytes[size_t(i)])) | mark;
    bytes.remove_prefix(size_t(c.size));
  }
  return out;
}

std::string utf8(View text) {
  std::string out;
  out.reserve(text.size());
  for (const char32_t marked : text) {
    const char32_t c = plain(marked);
    if (c >= kByte)
      out += char(c - kByte);
    else
      append_utf8(out, int32_t(c));
  }
  return out;
}

Text without_marks(View text) {
  Text out(text);
  for (char32_t& c : out) c = plain(c);
  return out;
}

bool same(View a, View b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char32_t x, char32_t y) { return plain(x) == plain(y); });
}

bool less(View a, View b) {
  return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(),
                                      [](char32_t x, char32_t y) { return plain(x) < plain(y); });
}

bool starts_with(View text, View start) {
  return text.size() >= start.size() && same(text.substr(0, start.size()), start);
}

bool ends_with(View text, View end) {
  return text.size() >= end.size() && same(text.substr(text.size() - end.size()), end);
}

bool is_space(char32_t c) {
  return (plain(c) >= 0x1C && plain(c) <= 0x1F) || is_white_space(int32_t(plain(c)));
}
bool is_upper(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LU; }
bool is_lower(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LL; }
bool is_letter(char32_t c) {
  return category(c) >= UTF8PROC_CATEGORY_LU && category(c) <= UTF8PROC_CATEGORY_LO;
}
bool is_digit(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }
bool is_printable(char32_t c) {
  return plain(c) == ' ' || (!is_other(int32_t(plain(c))) && !is_space(c));
}

char32_t upper(char32_t c) {
  return plain(c) >= kByte ? c : char32_t(utf8proc_toupper(int32_t(plain(c)))) | (c & kFromOutside);
}
char32_t lower(char32_t c) {
  return plain(c) >= kByte ? c : char32_t(utf8proc_tolower(int32_t(plain(c)))) | (c & kFromOutside);
}
Text upper(View text) {
  Text out(text);
  for (char32_t& c : out) c = upper(c);
  return out;
}
Text lower(View text) {
  Text out(text);
  for (char32_t& c : out) c = lower(c);
  return out;
}

View stripped(View text, Side side, std::optional<View> chars) {
  const auto goes = [&](char32_t c) {
    return chars ? std::any_of(chars->begin(), chars->end(),
                               [&](char32_t one) { return plain(one) == plain(c); })
                 : is_space(c);
  };
  if (side != Side::right)
    while (!text.empty() && goes(text.front())) text.remove_prefix(1);
  if (side != Side::left)
    while (!text.empty() && goes(text.back())) text.remove_suffix(1);
  return text;
}

std::vector<View> lines_of(View text, bool keep_ends) {
  std::vector<View> out;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && !ends_line(text[end])) ++end;
    size_t next = std::min(end + 1, text.size());
    if (next < text.size() && plain(text[end]) == '\r' && plain(text[next]) == '\n') ++next;
    out.push_back(text.substr(at, (keep_ends ? next : end) - at));
    at = next;
  }
  return out;
}

}  // namespace chaski::jinja
