// Reads answers in gpt-oss's format ("harmony"), which are messages that each name a channel. A
// message in the channel "analysis" is a thought. The others are text for the reader:
//
//   <|channel|>analysis<|message|>A<|end|><|start|>assistant<|channel|>final<|message|>B
//   becomes <think>\nA\n</think>\n\nB
#pragma once
#include <string>
#include <string_view>

namespace chaski {

class Channels {
 public:
  // Control tokens that must be spelled out in the generated text.
  static constexpr std::string_view kMarks[] = {"<|start|>", "<|channel|>", "<|message|>",
                                                "<|end|>"};
  // What begins a message for the reader, after the generation prompt.
  static constexpr std::string_view kFinal = "<|channel|>final<|message|>";
  static bool used_by(std::string_view chat_template) {
    return chat_template.find(kMarks[1]) != std::string_view::npos;
  }
  // `content` without a thought at its beginning.
  static std::string without_thought(const std::string& content);

  // `in_text`: the prompt ends inside a message for the reader.
  explicit Channels(bool in_text) : where_(in_text ? Where::text : Where::header) {}
  // Takes the next piece of the answer and returns the text that is certain by now.
  std::string push(std::string_view piece);
  std::string flush();  // the rest, at the end of the answer

 private:
  enum class Where { header, thought, text };
  bool step(std::string& out);
  bool read_header(std::string& out);
  void begin_text(std::string& out);

  Where where_;
  bool thinking_ = false, answered_ = false;
  std::string held_;
};

}  // namespace chaski
