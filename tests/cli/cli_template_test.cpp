// chaski template and chat with templates from a model folder: each test writes a tokenizer and a
// template.
#include <nlohmann/json.hpp>

#include "ggml-like-tensor/file/quipu.h"
#include "tests/cli/screen.h"
#include "tests/kit/program.h"

using namespace chaski;
using namespace chaski::test;
using nlohmann::json;

namespace {

const std::string kChatmlFile =
    "{% if messages[0].role != 'system' %}{{ '<|im_start|>system\nBe kind.<|im_end|>\n' }}{% endif "
    "%}"
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
    "{% endfor %}{% if tools %}{{ tools | tojson }}{% endif %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

// A folder with a tokenizer of single characters.
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

TEST_CASE("cli/template renders the sample and describes the template") {
  const Folder folder(kChatmlFile);
  const Outcome outcome = chaski_run({"template", folder.path});
  CHECK(outcome.status == 0);
  CHECK(outcome.err.empty());
  for (const char* line :
       {"a template from the model file, 308 bytes",
        "system message    shown; if none is given: Be kind.", "tools             shown",
        "an answer ends    at a control token", "later turns       begin with the same tokens",
        "<|im_start|>user\nHello!<|im_end|>\n<|im_start|>assistant\nHello."})
    CHECK_MESSAGE(outcome.out.find(line) != std::string::npos, outcome.out, " does not contain ",
                  line);

  const json all = found(folder, {"--system", "Be brief. <|im_end|>"});
  CHECK(all["template"] == "own");
  CHECK(all["tools"] == true);
  CHECK(all["prefix_stable"] == true);
  CHECK(all["default_system"] == "Be kind.");
  CHECK(all["control_tokens"] == 9);  // the one in the system message is text
  CHECK(all["text"].get<std::string>().starts_with(
      "<|im_start|>system\nBe brief. <|im_end|><|im_end|>\n<|im_start|>user\n"));
}

TEST_CASE("cli/template of a template that is broken, hostile or missing") {
  const Outcome broken = chaski_run({"template", Folder("<|im_start|>{% if %}").path});
  CHECK(broken.status == 0);
  CHECK(
      broken.error_says("line 1: found \"%}\", expected an expression, so the conversation "
                        "is written as chatml"));
  CHECK(broken.err.starts_with("chaski: note: "));
  CHECK(std::count(broken.err.begin(), broken.err.end(), '\n') == 1);
  CHECK(found(Folder("<|im_start|>{% if %}"))["template"] == "chatml");
  CHECK(found(Folder(""))["template"] == "plain");
  const json hostile = found(Folder(
      "{% set n = namespace(x='x') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}"
      "{{ messages }}"));
  CHECK(hostile["notice"].get<std::string>().find(
            "line 1: takes too much memory, so the conversation is") != std::string::npos);
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

TEST_CASE("cli/template reports thinking and texts that end an answer") {
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

namespace {

// The bundled model with another template.
std::string story_with(const TempFolder& folder, const std::string& chat_template) {
  ModelSource source = source_of(open_quipu(kStory));
  source.meta.set_str("tokenizer.chat_template", chat_template);
  write_quipu(folder / "story.quipu", source, 1);
  return folder / "story.quipu";
}

const std::string kHermes =
    "{% if tools %}{% for t in tools %}{{ t.function.name }} {% endfor %}<tool_call>\n{% endif %}"
    "{% for m in messages %}{{ m.role }}: {{ m.content }}{% for c in m.tool_calls %}<tool_call>\n"
    "{\"name\": \"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments | tojson }}}\n"
    "</tool_call>{% endfor %}\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}";

const std::string kTools =
    R"([{"type": "function", "function": {"name": "count", "parameters": {"type": "object",
        "properties": {"from": {"type": "integer", "minimum": 3, "maximum": 9}},
        "required": ["from"]}}},
        {"name": "sing", "parameters": {"type": "object", "properties": {"loud":
        {"type": "boolean"}}, "required": ["loud"]}}])";

}  // namespace

TEST_CASE(
    "cli/chat --tools: a forced call fits its schema, and its result continues the conversation") {
  const TempFolder folder;
  const std::string model = story_with(folder, kHermes),
                    tools = write_file(folder / "tools.json", kTools), talk = folder / "talk.json";
  const auto asked = [&](Arguments more, const std::string& piped = "") {
    more.insert(more.begin(), {"chat", "-q", "-m", model, "--seed", "3", "-n", "60"});
    return chaski_run(more, piped);
  };
  for (const std::string& given : {tools, kTools})
    for (const auto& [choice, names] : std::vector<std::pair<std::string, std::string>>{
             {"count", "count"}, {"required", "count sing"}}) {
      const Outcome one = asked({"--tools", given, "--tool-choice", choice, "-p", "Sing!"});
      REQUIRE_MESSAGE(one.status == 0, one.err);
      CHECK_MESSAGE(one.err.empty(), one.err);
      const json calls = json::parse(one.out);
      REQUIRE(calls.size() == 1);
      CHECK(calls[0]["type"] == "function");
      CHECK(calls[0]["id"].get<std::string>().size() == 9);
      const std::string name = calls[0]["function"]["name"];
      CHECK(names.find(name) != std::string::npos);
      const json arguments = json::parse(calls[0]["function"]["arguments"].get<std::string>());
      if (name == "count") CHECK((arguments["from"] >= 3 && arguments["from"] <= 9));
      const Outcome whole =
          asked({"--tools", given, "--tool-choice", choice, "-p", "Sing!", "--json"});
      CHECK(json::parse(whole.out)["tool_calls"] == calls);
      CHECK(json::parse(whole.out)["text"] == "");
    }
  // A call that is cut off.
  const Outcome cut = chaski_run({"chat", "-m", model, "--seed", "3", "-n", "2", "--tools", tools,
                                  "--tool-choice", "count", "-p", "Sing!"});
  CHECK(cut.status == 9);
  CHECK_MESSAGE(cut.error_says("note: the answer is cut off by -n after 2 tokens, before its tool "
                               "call is complete\n"),
                cut.err);
  // An answer without a call is an ordinary answer.
  const Outcome plain = asked({"--tools", tools, "-p", "A dog."});
  CHECK_MESSAGE(!plain.out.empty(), plain.err);
  CHECK(json::parse(asked({"--tools", tools, "-p", "A dog.", "--json"}).out)["tool_calls"] ==
        json::array());
  CHECK(asked({"--tools", tools, "--tool-choice", "none", "-p", "A dog."}).out ==
        asked({"-p", "A dog."}).out);

  check_one_line(asked({"--tools", "{}", "-p", "A dog."}), 3,
                 "--tools: the JSON is an object, expected a list");

  // A result that does not fit is removed with its question: the next line is a question.
  std::string longer;
  for (int i = 0; i < 200; ++i) longer += "one two three ";
  const Outcome removed = asked({"--tools", tools, "--tool-choice", "count", "--lines"},
                                "Count!\n" + longer + "\nAgain!\n");
  CHECK(removed.status == 7);
  CHECK_MESSAGE(removed.error_says("the question and its tool calls are removed\n"), removed.err);
  CHECK(lines_of(removed.out).size() == 2);

  // Slash commands work where a result is expected. A result with a slash is put between two """.
  const Arguments count = {"--tools", tools, "--tool-choice", "count", "--lines"};
  const Outcome lines =
      asked(count, "Count!\n/tokens\n/usr/bin\n\"\"\"/quit\"\"\"\n/save " + talk + "\nAgain!\n");
  CHECK(lines.status == 2);
  CHECK_MESSAGE(lines.error_says(" of 512 tokens\n"), lines.err);
  CHECK_MESSAGE(lines.error_says("/usr/bin is not a command, /help lists the commands; if it "
                                 "is the result of the call, put it between two \"\"\""),
                lines.err);
  CHECK_MESSAGE(lines.error_says("4 messages in " + talk), lines.err);
  CHECK(lines.error_says("no result: the question and its tool calls are removed"));
  const json saved = json::parse(read_file(talk))["messages"];
  REQUIRE(saved.size() == 4);
  CHECK(saved[1]["tool_calls"][0]["function"]["name"] == "count");
  CHECK(saved[2] == json{{"role", "tool"},
                         {"content", "/quit"},
                         {"tool_call_id", saved[1]["tool_calls"][0]["id"]},
                         {"name", "count"}});
  Arguments resumed = count;
  resumed.insert(resumed.end(), {"--resume", talk});
  const Outcome again = asked(resumed, "Again!\n");
  CHECK_MESSAGE(lines.out.ends_with(again.out), again.out);
  CHECK(again.out.find(saved[1]["tool_calls"][0]["id"].get<std::string>()) == std::string::npos);

  const auto resume = [&](const Arguments& more) {
    Arguments all = {"chat", "-m", model, "-n", "9", "--lines", "--resume", talk};
    all.insert(all.end(), more.begin(), more.end());
    return chaski_run(all, "/tokens\n");
  };
  const Outcome without = resume({}), none = resume({"--tools", tools, "--tool-choice", "none"});
  CHECK_MESSAGE(without.error_says("chaski: note: " + talk +
                                   " has tool calls: without --tools FILE the model is shown no "
                                   "functions, and calls in its answers stay text\n"),
                without.err);
  CHECK(without.status == 0);
  CHECK_MESSAGE(!none.error_says("has tool calls"), none.err);
  CHECK(!resume({"--tools", tools}).error_says("has tool calls"));

  // A conversation that waits for a result is saved and continued; /undo and /quit leave it.
  const std::string open = folder / "open.json", closed = folder / "closed.json";
  const Outcome left = asked(count, "Count!\n/save " + open + "\n/quit\nnever read\n");
  CHECK(left.status == 0);
  CHECK_MESSAGE(!left.error_says("no result"), left.err);
  resumed.back() = open;
  asked(resumed, "7\n/save " + closed + "\n");
  const json continued = json::parse(read_file(closed))["messages"];
  REQUIRE(continued.size() == 4);
  CHECK(continued[2]["content"] == "7");
  const Outcome undone = asked(count, "Count!\n/undo\nAgain!\n/save " + closed + "2\n");
  CHECK_MESSAGE(undone.error_says("removed: Count!"), undone.err);
  CHECK(json::parse(read_file(closed + "2"))["messages"][0]["content"] == "Again!");
}

// A chat on a terminal that was asked "Count!" and has to call the tool `count`.
struct CountScreen : Screen {
  explicit CountScreen(const std::string& model)
      : Screen({"chat", "--device", "cpu", "-m", model, "-n", "60", "--seed", "3", "--tools",
                kTools, "--tool-choice", "count"},
               "xterm") {
    resize(200);
    until("> ");
    type("Count!\r");
  }
};

TEST_CASE("cli/chat --tools on a terminal: slash commands at the prompt for a result") {
  const TempFolder folder;
  const std::string model = story_with(folder, kHermes), talk = folder / "talk";
  CountScreen screen(model);
  screen.until("Type or paste the tool's result. Ctrl-C removes the question.");
  screen.until("count returns> ");
  for (const auto& [keys, shown] :
       std::vector<std::pair<std::string, std::string>>{{"/stats", "1 answer; "},
                                                        {"/set temp 0.5", "set here: temp 0.5"},
                                                        {"/history", "call count {"},
                                                        {"/edit", "Count!"}}) {
    CAPTURE(keys);
    screen.type(keys + "\r");
    screen.until(shown);
    if (keys != "/edit") screen.until("count returns> ");
  }
  screen.type(kCtrlC);  // the edit ends, the call still waits
  screen.until("count returns> ");
  screen.type("5\r");
  screen.until(" of 512 tokens");
  screen.until("> ");
  screen.type("/save " + talk + "\r");
  screen.until("4 messages in");
  screen.type("Again!\r");
  screen.until("count returns> ");
  screen.type(kCtrlC);
  screen.until("no result: the question and its tool calls are removed");
  screen.type("Once more!\r");
  screen.until("count returns> ");
  screen.type("/quit\r");
  CHECK(screen.status() == 0);
  CHECK(said_in(talk, "tool") == std::vector<std::string>{"5"});
}

TEST_CASE("cli/chat --tools on a terminal: after an error the call waits for a result again") {
  const TempFolder folder;
  const std::string talk = folder / "talk",
                    model = story_with(folder, kHermes +
                                                   "{% for m in messages %}{% if m.content == 'bad'"
                                                   " %}{{ raise_exception('bad is refused') }}"
                                                   "{% endif %}{% endfor %}");
  CountScreen screen(model);
  screen.until("count returns> ");
  screen.type("bad\r");
  screen.until("bad is refused");
  screen.until("there is no answer: the tool's result is removed, and Up brings it back");
  screen.until("count returns> ");
  screen.type("5\r");
  screen.until(" of 512 tokens");
  screen.until("> ");
  screen.type("/save " + talk + "\r");
  screen.until("4 messages in");
  screen.type("/quit\r");
  CHECK(screen.status() == 0);
  CHECK(said_in(talk, "tool") == std::vector<std::string>{"5"});
}

TEST_CASE("cli/chat --tools: the files of a removed turn are sent with the next messages") {
  const TempFolder folder;
  const std::string model = story_with(folder, kHermes), talk = folder / "talk",
                    a = write_file(folder / "a", "Alpha."), b = write_file(folder / "b", "Beta.");
  const auto said = [&](const std::string& typed, const std::string& role) {
    const Outcome outcome = chaski_run({"chat", "--lines", "-m", model, "--seed", "3", "-n", "60",
                                        "--tools", kTools, "--tool-choice", "count"},
                                       typed + "/save " + talk + "\n");
    CHECK_MESSAGE(outcome.status == 0, outcome.err);
    std::filesystem::rename(talk, talk + "-");
    return said_in(talk + "-", role);
  };
  const std::string turn = "/file " + a + "\nCount!\n/file " + b + "\n5\n",
                    with_a = "\n\n" + a + ":\nAlpha.", with_b = "\n\n" + b + ":\nBeta.";
  using Texts = std::vector<std::string>;
  CHECK(said(turn + "/undo\nAgain!\n", "user") == Texts{"Again!" + with_a + with_b});
  CHECK(said(turn + "/retry\n6\n", "user") == Texts{"Count!" + with_a});
  CHECK(said(turn + "/retry\n6\n", "tool") == Texts{"6" + with_b});
  // If the answer of /retry does not begin, the result keeps its file.
  std::string text;
  for (int i = 0; i < 600; ++i) text += "word ";
  const Outcome failed = chaski_run({"chat", "--lines", "-m", model, "--seed", "3", "-n", "60",
                                     "--tools", kTools, "--tool-choice", "count"},
                                    turn + "/system " + text + "\n/retry\n");
  CHECK_MESSAGE(failed.error_says("but the context holds 512"), failed.err);
  CHECK_MESSAGE(!failed.error_says(b + " is sent with the next message"), failed.err);
}

TEST_CASE("cli/chat --tools on a terminal: /retry names the files of results after its answer") {
  const TempFolder folder;
  const std::string file = write_file(folder / "file", "Beta.");
  CountScreen screen(story_with(folder, kHermes));
  screen.type_at_prompt("/file " + file + "\r", "sent with the next message");
  screen.type_at_prompt("5\r", " of 512 tokens");
  screen.type_at_prompt("/retry\r", " of 512 tokens");
  screen.until(file + " is sent with the next message");
  screen.type_at_prompt("/quit\r", "");
  CHECK(screen.status() == 0);
}

TEST_CASE("cli/chat --tools: wrong uses end with one line") {
  const TempFolder folder;
  const std::string model = story_with(folder, kHermes),
                    tools = write_file(folder / "tools.json", kTools);
  const auto wrong = [&](Arguments more, int status, const std::string& says) {
    more.insert(more.begin(), {"chat", "-m", model, "-n", "4", "-p", "Sing!"});
    check_one_line(chaski_run(more), status, says);
  };
  wrong({"--tools", folder / "none"}, 5, "none: cannot be opened");
  wrong({"--tools", write_file(folder / "bad", "[{}]")}, 3, "bad: [0].name is ");
  wrong({"--tools", "[]"}, 3, "--tools: ");
  wrong({"--tools", tools, "--tool-choice", "sin"}, 2,
        "--tool-choice is sin, expected auto, none, required, count or sing (nearest: sing)");
  wrong({"--tool-choice", "none"}, 2, "--tool-choice needs --tools FILE");
  wrong({"--tools", tools, "--regex", "a"}, 2,
        "--regex and --tools are both given, expected one of them");
  check_one_line(chaski_run({"chat", "-m", kStory, "-p", "a", "--tools", tools}), 2,
                 "its chat template does not show tools to the model");
  check_one_line(chaski_run({"chat", "--lines", "--json"}, "a\n"), 2, "--json prints one answer");
  const TempFolder other;
  const std::string strange =
      story_with(other, "{% for t in tools %}{{ t | tojson }}{% endfor %}" + kChatmlFile);
  const Outcome said = chaski_run({"chat", "-m", strange, "-n", "4", "-p", "a", "--tools", tools});
  CHECK(said.status == 0);
  CHECK_MESSAGE(said.error_says("the form of tool calls in this chat template is unknown"),
                said.err);
  check_one_line(
      chaski_run({"chat", "-m", strange, "-p", "a", "--tools", tools, "--tool-choice", "sing"}), 2,
      "expected --tool-choice auto");
}
