// Separates thinking from the rest of an answer: from <think> at its beginning to </think>.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace chaski {

// The number of bytes at the end of the text that may be the beginning of the mark.
size_t mark_begun(std::string_view text, std::string_view mark);

class Thoughts {
 public:
  struct Part {
    std::string text;  // not empty; a thought has its marks
    bool is_thought;
  };
  // `thinks`: the prompt ends inside a thought.
  explicit Thoughts(bool thinks) : where_(thinks ? Where::thought : Where::beginning) {}
  // Takes the next piece of the answer. Text that may be part of a mark waits for the next piece.
  std::vector<Part> push(std::string_view text);
  std::vector<Part> flush();  // the text that still waits, at the end of the answer

 private:
  enum class Where { beginning, thought, answer };
  Where where_;
  std::string held_;
};

}  // namespace chaski
