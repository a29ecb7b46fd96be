// Texts of the template language: characters counted and cut like Python's, each with its origin. A
// character from outside the template (a message, a tool) has a mark that survives every filter and
// method. So the rendered text shows which characters come from the template. Comparisons ignore
// the mark.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace chaski::jinja {

using Text = std::u32string;
using View = std::u32string_view;

constexpr char32_t kFromOutside = 0x8000'0000;
constexpr char32_t plain(char32_t c) { return c & ~kFromOutside; }

// Bytes that are not UTF-8 become code points above Unicode's range; utf8() converts them back.
Text text_of(std::string_view utf8, char32_t mark = 0);
std::string utf8(View text);
Text without_marks(View text);

bool same(View a, View b);
bool less(View a, View b);  // by code point
bool starts_with(View text, View start);
bool ends_with(View text, View end);

bool is_space(char32_t c);  // like Python's str.isspace()
bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_letter(char32_t c);
bool is_digit(char32_t c);
bool is_printable(char32_t c);
char32_t upper(char32_t c);  // keeps the mark; so does lower()
char32_t lower(char32_t c);
Text upper(View text);
Text lower(View text);

// Removes white space, or the characters of `chars`, at the given ends.
enum class Side { left, right, both };
View stripped(View text, Side side, std::optional<View> chars = std::nullopt);

// Splits like Python's splitlines(): "\r
// " is one line end. `keep_ends` keeps the line ends.
std::vector<View> lines_of(View text, bool keep_ends);

}  // namespace chaski::jinja
