// Reads answers in gpt-oss's format ("harmony"), which are messages that each name a channel. A
// message in the channel "analysis" is a thought, and one to a function is a call, in the spelling
// of common_tool_syntax(). The others are text for the reader:
//
//   <|channel|>analysis<|message|>A<|end|><|start|>assistant<|channel|>final<|message|>B
//   becomes <think>\nA\n</think>\n\nB
//
//   <|channel|>commentary to=functions.F <|constrain|>json<|message|>{}
//   becomes <tool_call>\n{"name": "F", "arguments": {}}\n</tool_call>
#pragma once
#include <string>
#include <string_view>

namespace chaski {

class Channels {
 public:
  // Control tokens that must be spelled out in the generated text. All but kMessage begin a header,
  // which ends with it.
  static constexpr std::string_view kMessage = "<|message|>", kChannel = "<|channel|>",
                                    kMarks[] = {"<|start|>", kChannel, kMessage, "<|end|>"};
  // What begins a thought and a text, after the generation prompt, and a text after a thought.
  static constexpr std::string_view kThought = "<|channel|>analysis<|message|>",
                                    kFinal = "<|channel|>final<|message|>",
                                    kAfterThought =
                                        "<|end|><|start|>assistant<|channel|>final<|message|>";
  static bool used_by(std::string_view chat_template) {
    return chat_template.find(kChannel) != std::string_view::npos;
  }
  // The content of a message with a thought at its beginning.
  struct Content {
    bool thinks = false, ends = true;  // there is a thought; it ends
    std::string_view thought, text;
  };
  static Content parts_of(std::string_view content);

  enum class Where { header, thought, text, call };
  // The prompt ends at `where`. `calls`: calls are read; otherwise their arguments are text.
  Channels(Where where, bool calls)
      : where_(where), calls_(calls), thinking_(where == Where::thought) {}
  // Takes the next piece of the answer and returns the text that is certain by now.
  std::string push(std::string_view piece);
  std::string flush();  // the rest, at the end of the answer

 private:
  bool step(std::string& out);
  bool read_header(std::string& out);
  void begin_text(std::string& out);

  Where where_;
  bool calls_, thinking_, answered_ = false;
  std::string held_;
};

}  // namespace chaski
