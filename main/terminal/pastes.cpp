#include "main/terminal/pastes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "main/terminal/output.h"

namespace chaski {

namespace {

// In the history file this byte and a letter write a line feed, the byte itself, and the borders of
// a paste. Lines of older chats have none of them.
constexpr char kMark = 0x10, kLineFeed = 'n', kItself = 'p', kBegins = '[', kEnds = ']';

void append_marked(std::string& out, std::string_view text) {
  for (const char c : text)
    if (c == '\n')
      out += {kMark, kLineFeed};
    else if (c == kMark)
      out += {kMark, kItself};
    else
      out += c;
}

}  // namespace

std::string Pastes::add(std::string text, std::string_view kind) {
  const size_t feeds = size_t(std::count(text.begin(), text.end(), '\n'));
  std::string placeholder =
      fmt::format("[{} {}: {}]", kind, ++counts_[std::string(kind)],
                  feeds > 0 ? counted(feeds + 1, "line") : counted(text.size(), "byte"));
  texts_[placeholder] = std::move(text);
  placeholders_.push_back(placeholder);
  return placeholder;
}

template <class OnText, class OnPaste>
void Pastes::each_part(std::string_view line, OnText on_text, OnPaste on_paste) const {
  size_t begin = 0;  // of the text that was not passed on yet
  for (size_t at = line.find('['); at != line.npos; at = line.find('[', at)) {
    const size_t end = std::min(line.find(']', at), line.size() - 1) + 1;
    const auto paste = texts_.find(std::string(line.substr(at, end - at)));
    if (paste == texts_.end()) {
      ++at;
      continue;
    }
    on_text(line.substr(begin, at - begin));
    on_paste(paste->second);
    begin = at = end;
  }
  on_text(line.substr(begin));
}

bool Pastes::begins(std::string_view line) const {
  return line.starts_with('[') && texts_.contains(std::string(line.substr(0, line.find(']') + 1)));
}

std::string Pastes::expanded(std::string_view line) const {
  std::string out;
  const auto append = [&](std::string_view part) { out += part; };
  each_part(line, append, append);
  return out;
}

std::string Pastes::damaged(std::string_view line) const {
  std::string typed;  // without whole placeholders
  each_part(
      line, [&](std::string_view part) { typed += part; }, [](const std::string&) {});
  for (const std::string& placeholder : placeholders_) {
    const std::string begins = placeholder.substr(0, placeholder.find(':'));
    const size_t at = typed.find(begins);
    if (at == std::string::npos) continue;
    const char next = at + begins.size() < typed.size() ? typed[at + begins.size()] : ' ';
    if (!std::isdigit(static_cast<unsigned char>(next))) return placeholder;
  }
  return "";
}

std::string Pastes::to_history(std::string_view line) const {
  std::string out;
  each_part(
      line, [&](std::string_view part) { append_marked(out, part); },
      [&](const std::string& paste) {
        out += {kMark, kBegins};
        append_marked(out, paste);
        out += {kMark, kEnds};
      });
  return out;
}

std::string Pastes::from_history(std::string_view kept) {
  std::string line, paste;
  std::string* out = &line;
  for (size_t i = 0; i < kept.size(); ++i) {
    if (kept[i] != kMark || i + 1 == kept.size()) {
      *out += kept[i];
      continue;
    }
    const char letter = kept[++i];
    if (letter == kLineFeed) *out += '\n';
    if (letter == kItself) *out += kMark;
    if (letter == kBegins) out = &paste;
    if (letter == kEnds) line += add(std::exchange(paste, ""), "earlier paste"), out = &line;
  }
  return line + paste;
}

}  // namespace chaski
