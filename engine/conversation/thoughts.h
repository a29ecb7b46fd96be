// Which parts of an answer are what the model thinks: from <think> at its beginning to </think>.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace chaski {

// How many bytes at the end of the text may begin the mark.
size_t mark_begun(std::string_view text, std::string_view mark);

class Thoughts {
 public:
  struct Part {
    std::string text;  // with the marks; not empty
    bool is_thought;
  };
  // `thinks`: the prompt has begun a thought, so the answer ends one.
  explicit Thoughts(bool thinks) : where_(thinks ? Where::thought : Where::beginning) {}
  // The answer in pieces. What may be a part of a mark waits for the next one.
  std::vector<Part> push(std::string_view text);
  std::vector<Part> flush();  // at the end: what still waits

 private:
  enum class Where { beginning, thought, answer };
  Where where_;
  std::string held_;
};

}  // namespace chaski
