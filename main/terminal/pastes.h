// The pastes of a chat. In a line that is typed, a short placeholder such as "[paste 1: 20 lines]"
// represents a paste. The history file keeps the text of the paste in its place.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace chaski {

class Pastes {
 public:
  // Remembers a text and returns its placeholder. `kind` is the placeholder's first word.
  std::string add(std::string text, std::string_view kind = "paste");
  // Whether a line begins with a placeholder.
  bool begins(std::string_view line) const;
  // The line with the texts of its placeholders.
  std::string expanded(std::string_view line) const;
  // The placeholder of which the line has only the beginning; empty: none.
  std::string damaged(std::string_view line) const;

  // A line with placeholders as one line of the history file, and back. Reading it adds its pastes.
  std::string to_history(std::string_view line) const;
  std::string from_history(std::string_view kept);

 private:
  template <class OnText, class OnPaste>
  void each_part(std::string_view line, OnText on_text, OnPaste on_paste) const;

  std::unordered_map<std::string, std::string> texts_;  // by placeholder
  std::vector<std::string> placeholders_;
  std::unordered_map<std::string, size_t> counts_;  // of pastes by kind
};

}  // namespace chaski
