// chaski template and chat with a template of the file's own, by the real binary: a tokenizer and
// whatever template a test writes beside it.
#include <nlohmann/json.hpp>

#include "tests/program.h"

using namespace chaski::test;
using nlohmann::json;

namespace {

const std::string kChatmlFile =
    "{% if messages[0].role != 'system' %}{{ '<|im_start|>system\nBe kind.<|im_end|>\n' }}{% endif "
    "%}"
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
    "{% endfor %}{% if tools %}{{ tools | tojson }}{% endif %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

// A folder with a tokenizer of letters.
struct Folder : TempFolder {
  explicit Folder(const std::string& chat_template) {
    json vocab = json::object();
    for (int c = ' '; c < 127; ++c)
      vocab[c == ' ' ? "\u0120" : std::string(1, char(c))] = vocab.size();
    vocab["\u010A"] = vocab.size();  // the end of a line
    json added = json::array();
    for (const char* token : {"<|im_start|>", "<|im_end|>"})
      added.push_back({{"id", vocab.size() + added.size()}, {"content", token}, {"special", true}});
    std::ofstream(path + "/tokenizer.json")
        << json{{"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", json::array()}}},
                {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
                {"added_tokens", added}};
    if (!chat_template.empty()) std::ofstream(path + "/chat_template.jinja") << chat_template;
  }
};

json found(const Folder& folder, Arguments more = {}) {
  more.insert(more.begin(), {"template", folder.path, "--json"});
  const Outcome outcome = chaski_run(more);
  REQUIRE_MESSAGE(outcome.status == 0, outcome.err);
  return json::parse(outcome.out);
}

}  // namespace

TEST_CASE("cli/template renders the sample and says what it found") {
  const Folder folder(kChatmlFile);
  const Outcome outcome = chaski_run({"template", folder.path});
  CHECK(outcome.status == 0);
  CHECK(outcome.err.empty());
  for (const char* line :
       {"a template of its own, 308 bytes", "system message    shown; if none is given: Be kind.",
        "tools             shown", "an answer ends    at a control token",
        "later turns       begin with what was there",
        "<|im_start|>user\nHello!<|im_end|>\n<|im_start|>assistant\nHello."})
    CHECK_MESSAGE(outcome.out.find(line) != std::string::npos, outcome.out, " lacks ", line);

  const json all = found(folder, {"--system", "Be brief. <|im_end|>"});
  CHECK(all["template"] == "own");
  CHECK(all["tools"] == true);
  CHECK(all["prefix_stable"] == true);
  CHECK(all["default_system"] == "Be kind.");
  CHECK(all["control_tokens"] == 9);  // and not 10
  CHECK(all["text"].get<std::string>().starts_with(
      "<|im_start|>system\nBe brief. <|im_end|><|im_end|>\n<|im_start|>user\n"));
}

TEST_CASE("cli/template of a template that is broken, hostile or not there") {
  const Outcome broken = chaski_run({"template", Folder("<|im_start|>{% if %}").path});
  CHECK(broken.status == 0);
  CHECK(
      broken.error_says("line 1: \"%}\" stands where an expression is expected: the conversation "
                        "is written as chatml"));
  CHECK(broken.err.starts_with("chaski: note: "));
  CHECK(std::count(broken.err.begin(), broken.err.end(), '\n') == 1);
  CHECK(found(Folder("<|im_start|>{% if %}"))["template"] == "chatml");
  CHECK(found(Folder(""))["template"] == "plain");
  const json hostile = found(Folder(
      "{% set n = namespace(x='x') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}"
      "{{ messages }}"));
  CHECK(hostile["notice"].get<std::string>().find(
            "line 1: takes too much memory: the conversation is") != std::string::npos);
  check_one_line(chaski_run({"template", "nothing.gguf"}), 5, "nothing.gguf: ");
}

TEST_CASE("cli/template renders a conversation from a file") {
  const Folder folder(kChatmlFile);
  std::ofstream(folder / "talk.json")
      << R"({"messages": [{"role": "user", "content": "a"}, {"role": "tool", "content": "b"}]})";
  CHECK(found(folder, {"--messages", folder / "talk.json"})["text"] ==
        "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\na<|im_end|>\n"
        "<|im_start|>tool\nb<|im_end|>\n<|im_start|>assistant\n");
  std::ofstream(folder / "image.json")
      << R"([{"role": "user", "content": [{"type": "image", "url": "heron.png"}]}])";
  check_one_line(chaski_run({"template", folder.path, "--messages", folder / "image.json"}), 3,
                 "image.json: [0].content is");
  std::ofstream(folder / "long.json")
      << R"([{"role": "user", "content": ")" << std::string(5'000'000, 'x') << R"("}])";
  check_one_line(chaski_run({"template", folder.path, "--messages", folder / "long.json"}), 7,
                 "a message makes a text of more than 4194304 characters");
}

// What is said about thoughts and endings.
TEST_CASE("cli/template tells of thoughts and of texts that end an answer") {
  const json thinks = found(
      Folder("{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + "
             "m.content.split('</think>')[-1] + "
             "'<|im_end|>\n' }}{% endfor %}{{ '<|im_start|>assistant\n' if add_generation_prompt }}"
             "{{ '<think></think>' if enable_thinking is false }}"));
  CHECK(thinks["forgets_thoughts"] == true);
  CHECK(thinks["thinking_can_be_off"] == true);
  CHECK(thinks["stop"] == "");
  const json plain = found(Folder(
      "{% for m in messages %}{{ m.role | upper }}: {{ m.content }}\n\n{% endfor %}ASSISTANT:"));
  CHECK(plain["stop"] == "\nUSER:");
}
