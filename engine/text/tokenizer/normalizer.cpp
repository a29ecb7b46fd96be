#include "engine/text/tokenizer/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#include <utility>

#include "engine/text/characters.h"
#include "engine/text/tokenizer/charsmap.h"
#include "engine/text/tokenizer/pretokenizer.h"
#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/base/nearest.h"

namespace chaski {

namespace {

// Calls f(stretch, is ASCII) for consecutive stretches. Most text is ASCII, which most steps leave
// unchanged.
template <class F>
void each_stretch(std::string_view text, F&& f) {
  for (size_t at = 0, end; at < text.size(); at = end) {
    end = end_of_ascii(text, at);
    const bool ascii = end > at;
    while (end < text.size() && !ascii && (text[end] & 0x80) != 0) ++end;
    f(text.substr(at, end - at), ascii);
  }
}

std::string normal_form_of_all(const std::string& text, int options) {
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t n =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &mapped,
                   static_cast<utf8proc_option_t>(options | UTF8PROC_STABLE));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, std::free);
  if (n == UTF8PROC_ERROR_NOMEM) throw std::bad_alloc();
  ENSURE(n >= 0, "the text is valid UTF-8");
  return {reinterpret_cast<const char*>(mapped), static_cast<size_t>(n)};
}

// An ASCII character does not change the text before it, but may combine with a mark after it.
std::string normal_form(const std::string& text, int options) {
  std::string out;
  out.reserve(text.size());
  each_stretch(text, [&](std::string_view part, bool ascii) {
    if (ascii) {
      out += part;
      return;
    }
    std::string with_last(out.empty() ? "" : out.substr(out.size() - 1));
    if (!out.empty()) out.pop_back();
    out += normal_form_of_all(with_last.append(part), options);
  });
  return out;
}

// Rewrites a text: calls of_ascii(out, stretch) for each stretch of ASCII, and f(out, character,
// its bytes) for each character that is not ASCII.
template <class A, class F>
std::string mapped(const std::string& text, A&& of_ascii, F&& f) {
  std::string out;
  out.reserve(text.size());
  each_stretch(text, [&](std::string_view part, bool ascii) {
    if (ascii)
      of_ascii(out, part);
    else
      each_character(part, [&](int32_t c, std::string_view bytes) { f(out, c, bytes); });
  });
  return out;
}

// The same with ASCII unchanged.
template <class F>
std::string mapped_beyond_ascii(const std::string& text, F&& f) {
  return mapped(
      text, [](std::string& out, std::string_view part) { out += part; }, std::forward<F>(f));
}

template <bool (*drop)(int32_t)>
std::string without_marks(std::string text) {
  return mapped_beyond_ascii(text, [](std::string& out, int32_t c, std::string_view bytes) {
    if (!drop(c)) out += bytes;
  });
}

std::string lowercase(std::string text) {
  return mapped(
      text,
      [](std::string& out, std::string_view part) {
        for (const char c : part) out += c >= 'A' && c <= 'Z' ? char(c + 32) : c;
      },
      [](std::string& out, int32_t c, std::string_view) { append_lowercase(out, c); });
}

std::string bert_clean(std::string text) {
  return mapped(
      text,
      [](std::string& out, std::string_view part) {
        for (const char c : part)
          if (c == '\t' || c == '\n' || c == '\r')
            out += ' ';
          else if (c >= ' ' && c != 0x7F)
            out += c;
      },
      [](std::string& out, int32_t c, std::string_view bytes) {
        if (is_white_space(c) && !is_other(c))
          out += ' ';
        else if (c != 0xFFFD && !is_other(c))
          out += bytes;
      });
}

std::string bert_han(std::string text) {
  return mapped_beyond_ascii(text, [](std::string& out, int32_t c, std::string_view bytes) {
    if (is_han(c))
      out.append(" ").append(bytes).append(" ");
    else
      out += bytes;
  });
}

std::string strip_left(std::string text) {
  size_t begin = 0;
  while (begin < text.size() &&
         is_white_space(first_character(std::string_view(text).substr(begin))))
    begin += character_size(text[begin]);
  return text.substr(begin);
}

std::string strip_right(std::string text) {
  size_t end = 0, at = 0;
  each_character(text, [&](int32_t c, std::string_view bytes) {
    at += bytes.size();
    if (!is_white_space(c)) end = at;
  });
  return text.substr(0, end);
}

std::string squeeze(std::string text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text)
    if (c != ' ' || (!out.empty() && out.back() != ' ')) out += c;
  if (out.ends_with(' ')) out.pop_back();
  return out;
}

std::string replaced(const std::string& text, const std::string& from, const std::string& to) {
  std::string out;
  size_t at = 0;
  for (size_t found; (found = text.find(from, at)) != std::string::npos; at = found + from.size())
    out.append(text, at, found - at).append(to);
  return out.append(text, at);
}

struct NamedStep {
  const char* name;
  std::string (*apply)(std::string text);
};
constexpr NamedStep kSteps[] = {
    {"nfc", [](std::string t) { return normal_form(t, UTF8PROC_COMPOSE); }},
    {"nfd", [](std::string t) { return normal_form(t, UTF8PROC_DECOMPOSE); }},
    {"nfkc", [](std::string t) { return normal_form(t, UTF8PROC_COMPOSE | UTF8PROC_COMPAT); }},
    {"nfkd", [](std::string t) { return normal_form(t, UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT); }},
    {"lowercase", lowercase},
    {"strip_marks", without_marks<is_nonspacing_mark>},
    {"strip_accents", without_marks<is_mark>},
    {"strip_left", strip_left},
    {"strip_right", strip_right},
    {"squeeze", squeeze},
    {"bert_clean", bert_clean},
    {"bert_han", bert_han},
};

}  // namespace

// Bounds the output that a malicious file can cause. Unicode's own normal forms grow a text at most
// 18 times.
constexpr size_t kLongestArgument = 4096, kMostGrowth = 64;

Normalizer Normalizer::of(const Metadata& meta) {
  Normalizer out;
  out.origin_ = meta.origin;
  const Texts& list = meta.strs("tokenizer.normalizer");
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string_view name = list[i];
    const auto argument = [&] {
      if (++i == list.size())
        fail(Exit::bad_file, "{}: tokenizer.normalizer ends after \"{}\", expected its argument",
             meta.origin, escaped(name));
      if (list[i].size() > kLongestArgument)
        fail(Exit::bad_file, "{}: tokenizer.normalizer[{}] has {} bytes, expected at most {}",
             meta.origin, i, list[i].size(), kLongestArgument);
      return valid_utf8(list[i]);
    };
    const auto* plain = std::find_if(std::begin(kSteps), std::end(kSteps),
                                     [&](const NamedStep& s) { return s.name == name; });
    if (plain != std::end(kSteps)) {
      out.steps_.push_back(plain->apply);
    } else if (name == "replace") {
      const std::string from = argument(), to = argument();
      if (from.empty())
        fail(Exit::bad_file, "{}: tokenizer.normalizer replaces an empty text", meta.origin);
      out.steps_.push_back([=](std::string text) { return replaced(text, from, to); });
    } else if (name == "regex") {
      const Pretokenizer pattern = Pretokenizer::from_patterns({argument()}, meta.origin);
      const std::string to = argument();
      out.steps_.push_back([=](std::string text) { return pattern.replace(text, to); });
    } else if (name == "prepend") {
      const std::string before = argument();
      out.steps_.push_back([=](std::string text) { return text.empty() ? text : before + text; });
    } else if (name == "charsmap") {
      const auto map =
          std::make_shared<const CharsMap>(meta.ints("tokenizer.charsmap"), meta.origin);
      out.steps_.push_back([=](std::string text) { return map->apply(text); });
    } else {
      std::vector<std::string> known = {"replace", "regex", "prepend", "charsmap"};
      for (const NamedStep& s : kSteps) known.emplace_back(s.name);
      fail(Exit::bad_file, "{}: tokenizer.normalizer has \"{}\", expected {}", meta.origin,
           escaped(name), expected_names(name, known));
    }
  }
  return out;
}

std::string Normalizer::apply(std::string_view text) const {
  if (steps_.empty()) return std::string(text);
  std::string out = valid_utf8(text);
  for (const Step& step : steps_) {
    out = step(std::move(out));
    if (out.size() > kMostGrowth * text.size() + kLongestArgument)
      fail(Exit::bad_file,
           "{}: tokenizer.normalizer turns {} bytes into {}, expected at most {} times as many",
           origin_, text.size(), out.size(), kMostGrowth);
  }
  return out;
}

}  // namespace chaski
