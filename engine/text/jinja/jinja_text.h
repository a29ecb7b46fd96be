// Texts of the template language: characters, as Python counts and cuts them, each with its origin.
// A character that came from outside of the template (a message, a tool) carries a mark through
// every filter and method, so that what is rendered can say of each character whether the template
// may answer for it. Comparisons do not see the mark.
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

// Bytes that are no UTF-8 become characters above Unicode's, and themselves again in utf8().
Text text_of(std::string_view utf8, char32_t mark = 0);
std::string utf8(View text);
Text without_marks(View text);

bool same(View a, View b);
bool less(View a, View b);  // by code points
bool starts_with(View text, View start);
bool ends_with(View text, View end);

bool is_space(char32_t c);  // as Python's str.isspace()
bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_letter(char32_t c);
bool is_digit(char32_t c);
bool is_printable(char32_t c);
char32_t upper(char32_t c);  // keeps the mark, as lower() does
char32_t lower(char32_t c);
Text upper(View text);
Text lower(View text);

// Without what is at its ends: white space, or the characters of `chars`.
enum class Side { left, right, both };
View stripped(View text, Side side, std::optional<View> chars = std::nullopt);

// With the line's end if `keep_ends`; "\r\n" is one end, and what Python ends lines at ends them.
std::vector<View> lines_of(View text, bool keep_ends);

}  // namespace chaski::jinja
