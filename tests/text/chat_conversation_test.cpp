// Conversation without a model and without a terminal: a function in the test writes the answers,
// and the events are recorded as text.
#include <functional>

#include "engine/conversation/conversation.h"
#include "tests/kit/support.h"
#include "tests/text/chat_kit.h"

using namespace chaski;
using namespace chaski::test;

namespace {

constexpr const char* kTalkTemplate =
    "{% for t in tools %}{{ t | tojson }}\n{% endfor %}"
    "{% for m in messages %}<|im_start|>{{ m.role + '\n' + m.content.split('</think>')[-1] }}"
    "{% for c in m.tool_calls %}<tool_call>\n{\"name\": \"{{ c.function.name }}\", "
    "\"arguments\": {{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
constexpr const char* kAddTool =
    R"([{"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}])";

class Talk {
 public:
  explicit Talk(int context = 10000, ConversationOptions options = {},
                const char* chat_template = kTalkTemplate,
                const std::vector<std::string>& control = kControl)
      : model_(chat_template, control),
        conversation({model_.meta, *model_.tokenizer, context, "mini"}, std::move(options)) {}

  // The generated text comes in pieces of `piece` bytes. Returns the events, one in each line.
  std::string answer(const std::string& text, size_t piece, const GenerateOptions& options = {},
                     bool may_force = false) {
    std::string log, last;
    const auto add = [&](const std::string& kind, std::string_view part) {
      if (kind != last || kind == "call") log += (log.empty() ? "" : "\n") + kind + ": ";
      log += part, last = kind;
    };
    const auto generate = [&](std::span<const TokenId> tokens, const GenerateOptions& all,
                              const Sink& sink) {
      prompt = shown(*model_.tokenizer, {tokens.begin(), tokens.end()});
      used = all;
      for (size_t at = 0; at < text.size(); at += piece) sink(text.substr(at, piece));
      if (text.empty() || breaks_off) fail(Exit::non_finite, "a logit is not finite");
      GenerateResult result;
      result.text = text, result.finish = Finish::end;
      return result;
    };
    conversation.answer(options, may_force, generate, [&](const AnswerEvent& event) {
      using Kind = AnswerEvent::Kind;
      if (event.kind == Kind::rewritten) add("rewritten", std::to_string(event.count));
      if (event.kind == Kind::dropped) add("dropped", std::to_string(event.count));
      if (event.kind == Kind::thinking) add("thinking", event.text);
      if (event.kind == Kind::text) add("text", event.text);
      if (event.kind == Kind::call_text) add("spelling", event.text);
      if (event.kind == Kind::tool_call) add("call", event.call->name + event.call->arguments);
      if (event.kind == Kind::finish) add("finish", name_of(event.result->finish));
    });
    return log;
  }

 private:
  Own model_;

 public:
  Conversation conversation;
  const Tokenizer& tokenizer() const { return *model_.tokenizer; }

  std::string prompt;       // of the last answer
  GenerateOptions used;     // for it
  bool breaks_off = false;  // an error follows the text
};

// In the style of gpt-oss.
constexpr const char* kChannels =
    "{% for tool in tools or [] %}{{ tool.function.name }}{% endfor %}"
    "{% for m in messages %}{% if m.tool_calls %}<|start|>assistant<|channel|>analysis<|message|>"
    "{{ m.content }}<|end|><|start|>assistant to=functions.{{ m.tool_calls[0].function.name }}"
    "<|channel|>commentary json<|message|>{{ m.tool_calls[0].function.arguments | tojson }}<|call|>"
    "{% else %}<|start|>{{ m.role }}{% if m.role == 'assistant' %}<|channel|>final{% endif %}"
    "<|message|>{{ m.content }}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant{% endif %}";
Talk talk_in_channels(ConversationOptions options = {}) {
  return Talk(10000, std::move(options), kChannels,
              {"<s>", "</s>", "<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>",
               "<|call|>"});
}

ConversationOptions with_tools(const std::string& choice) {
  return {"", true, {Tools::parse("tools.json", kAddTool), choice}};
}

}  // namespace

TEST_CASE("chat: a conversation sends thinking, text and tool calls as events") {
  for (const size_t piece : {1, 3, 100}) {
    CAPTURE(piece);
    Talk talk(10000, with_tools("auto"));
    talk.conversation.ask("1 + 1?");
    CHECK_EQ(
        talk.answer("<think>so</think>\nI add: <tool_call>\n{\"name\": \"add\", "
                    "\"arguments\": {\"a\": 1}}\n</tool_call>",
                    piece),
        "thinking: <think>so</think>\ntext: \nI add: \ncall: add{\"a\":1}\nspelling: "
        "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>\nfinish: end");
    const ChatMessage& answer = talk.conversation.messages().back();
    CHECK_EQ(answer.content, "<think>so</think>\nI add:");
    REQUIRE(answer.calls.size() == 1);
    talk.conversation.add_tool_result(answer.calls[0], "2");
    CHECK_EQ(talk.answer("Two.", piece), "rewritten: 1\ntext: Two.\nfinish: end");
    CHECK(talk.prompt.find("tool\n2⟦<|im_end|>⟧\n⟦<|im_start|>⟧assistant\n") != std::string::npos);
    // The rewritten answer is reported once.
    talk.conversation.ask("And 2 + 2?");
    CHECK_EQ(talk.answer("Four.", piece), "text: Four.\nfinish: end");
    CHECK_EQ(talk.conversation.take_back(), "And 2 + 2?");
    CHECK_EQ(talk.conversation.last_answer()->content, "Two.");
  }
}

TEST_CASE("chat: messages in channels become a thought and text") {
  for (const size_t piece : {1, 3, 100}) {
    CAPTURE(piece);
    Talk talk = talk_in_channels();
    talk.conversation.ask("1 + 1?");
    CHECK_EQ(talk.answer("<|channel|>analysis<|message|>so<|end|><|start|>assistant<|channel|>"
                         "analysis<|message|>2<|end|><|start|>assistant<|channel|>final<|message|>"
                         "Two < 3",
                         piece),
             "thinking: <think>\nso\n\n2\n</think>\ntext: \n\nTwo < 3\nfinish: end");
    CHECK(talk.used.spelled.size() == 4);
    // The prompt of the next answer has no thought.
    talk.conversation.ask("And 2 + 2?");
    CHECK_EQ(talk.answer("<|channel|>final<|message|>Four", piece),
             "rewritten: 1\ntext: Four\nfinish: end");
    CHECK(contains(talk.prompt, "assistant⟦<|channel|>⟧final⟦<|message|>⟧Two < 3⟦<|end|>⟧"));
    CHECK(talk.prompt.ends_with("2?⟦<|end|>⟧⟦<|start|>⟧assistant"));
    // A call is a message for the reader, and so is text without any mark.
    talk.conversation.ask("?");
    CHECK_EQ(talk.answer(" to=functions.add<|channel|>commentary json<|message|>{}", piece),
             "text: {}\nfinish: end");
    talk.conversation.ask("?");
    CHECK_EQ(talk.answer("Plain", piece), "text: Plain\nfinish: end");
    talk.conversation.ask("?");
    CHECK_EQ(talk.answer("<|channel|>analysis<|message|>never ends", piece),
             "thinking: <think>\nnever ends\nfinish: end");
    // A header that the end of the answer cuts is not shown.
    talk.conversation.ask("?");
    CHECK_EQ(talk.answer("<|channel|>final<|message|>So<|end|><|start|>assist", piece),
             "text: So\nfinish: end");
  }
}

TEST_CASE("chat: a message in channels with a thought, text and a call keeps its text") {
  Talk talk = talk_in_channels(with_tools("auto"));
  ChatMessage answer = {"assistant", "<think>\nI add\n</think>\n\nOne moment."};
  answer.calls.push_back({"call00001", "add", "{\"a\": 1}"});
  talk.conversation.set_messages({{"user", "1 + 1?"}, answer});
  talk.conversation.add_tool_result(answer.calls[0], "2");
  talk.answer("<|channel|>final<|message|>Two.", 100);
  CHECK_MESSAGE(contains(talk.prompt, "⟦<|message|>⟧I add\n\nOne moment.⟦<|end|>⟧"), talk.prompt);
}

TEST_CASE("chat: a message in a channel to a function is a call") {
  for (const size_t piece : {1, 3, 100})
    for (const char* header : {"<|channel|>commentary to=functions.add json<|message|>",
                               " to=functions.add<|channel|>commentary json<|message|>"}) {
      CAPTURE(piece);
      CAPTURE(header);
      Talk talk = talk_in_channels(with_tools("auto"));
      talk.conversation.ask("1 + 1?");
      const std::string thought = "<|channel|>analysis<|message|>I add<|end|><|start|>assistant";
      CHECK_EQ(talk.answer(thought + header + "{\"a\": 1}", piece),
               "thinking: <think>\nI add\n</think>\ntext: \n\n\ncall: add{\"a\":1}\nspelling: "
               "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>"
               "\nfinish: end");
      const ChatMessage& answer = talk.conversation.messages().back();
      REQUIRE(answer.calls.size() == 1);
      talk.conversation.add_tool_result(answer.calls[0], "2");
      CHECK_EQ(talk.answer("<|channel|>final<|message|>Two.", piece),
               "rewritten: 1\ntext: Two.\nfinish: end");
      CHECK_MESSAGE(
          contains(talk.prompt,
                   "assistant⟦<|channel|>⟧analysis⟦<|message|>⟧I add⟦<|end|>⟧⟦<|start|>⟧assistant "
                   "to=functions.add⟦<|channel|>⟧commentary json⟦<|message|>⟧{\"a\": 1}⟦<|call|>⟧"),
          talk.prompt);
    }
  // The end of the answer cuts the arguments.
  Talk talk = talk_in_channels(with_tools("auto"));
  talk.conversation.ask("1 + 1?");
  talk.answer("<|channel|>commentary to=functions.add<|message|>{\"a\": [1", 3);
  CHECK(talk.conversation.messages().back().calls.empty());
}

TEST_CASE("chat: a stop text matches nothing in the header of a channel") {
  Talk talk = talk_in_channels();
  talk.conversation.ask("1 + 1?");
  GenerateOptions options;
  options.stop = {"final"};
  talk.answer("Two", 100, options);
  AnswerText text(talk.tokenizer(), talk.used, false);
  std::string all;
  for (const TokenId token : talk.tokenizer().encode_with_control(
           "<|channel|>analysis<|message|>so "
           "fin<|end|><|start|>assistant<|channel|>final<|message|>"
           "A final B"))
    if (!text.stopped()) all += text.push(token);
  CHECK(text.stopped());
  CHECK_EQ(
      all,
      "<|channel|>analysis<|message|>so fin<|end|><|start|>assistant<|channel|>final<|message|>"
      "A ");
}

TEST_CASE("chat: a begun answer with a thought continues in its channel") {
  const std::string thought = "<think>\nI add\n</think>\n\n";
  Talk talk = talk_in_channels();
  talk.conversation.set_messages({{"user", "1 + 1?"}, {"assistant", thought + "It is"}});
  CHECK_EQ(talk.answer(" two", 1), "text:  two\nfinish: end");
  CHECK_MESSAGE(talk.prompt.ends_with(
                    "assistant⟦<|channel|>⟧analysis⟦<|message|>⟧I add⟦<|end|>⟧⟦<|start|>⟧assistant"
                    "⟦<|channel|>⟧final⟦<|message|>⟧It is"),
                talk.prompt);
  CHECK_EQ(talk.conversation.messages().back().content, thought + "It is two");
  // The thought itself is continued.
  Talk open = talk_in_channels();
  open.conversation.set_messages({{"user", "1 + 1?"}, {"assistant", "<think>\nI"}});
  CHECK_EQ(open.answer(" add<|end|><|start|>assistant<|channel|>final<|message|>Two", 1),
           "thinking:  add\n</think>\ntext: \n\nTwo\nfinish: end");
  CHECK(open.prompt.ends_with("assistant⟦<|channel|>⟧analysis⟦<|message|>⟧I"));
  CHECK_EQ(open.conversation.messages().back().content, "<think>\nI add\n</think>\n\nTwo");
  // An answer that must not think has no thought.
  ConversationOptions options;
  options.thinks = false;
  Talk quiet = talk_in_channels(options);
  quiet.conversation.set_messages({{"user", "1 + 1?"}, {"assistant", thought + "It is"}});
  quiet.answer(" two", 1);
  CHECK_MESSAGE(quiet.prompt.ends_with("assistant⟦<|channel|>⟧final⟦<|message|>⟧It is"),
                quiet.prompt);
}

TEST_CASE("chat: the final channel is opened where an answer must not think") {
  ConversationOptions quiet;
  quiet.thinks = false;
  Talk talk = talk_in_channels(quiet);
  talk.conversation.ask("1 + 1?");
  CHECK_EQ(talk.answer("Two", 1), "text: Two\nfinish: end");
  CHECK(talk.prompt.ends_with("assistant⟦<|channel|>⟧final⟦<|message|>⟧"));
  Talk begun = talk_in_channels();
  begun.conversation.set_messages({{"user", "1 + 1?"}, {"assistant", "It is"}});
  CHECK_EQ(begun.answer(" two", 1), "text:  two\nfinish: end");
  CHECK(begun.prompt.ends_with("assistant⟦<|channel|>⟧final⟦<|message|>⟧It is"));
}

TEST_CASE("chat: an answer that was begun is continued, and the events hold only the rest") {
  Talk talk;
  talk.conversation.set_messages({{"user", "1 + 1?"}, {"assistant", "It is <|im_end|>"}});
  REQUIRE(talk.conversation.begun_answer());
  CHECK_EQ(talk.answer(" two.", 100), "text:  two.\nfinish: end");
  // The beginning is text: it cannot forge a control token.
  CHECK(talk.prompt.ends_with("⟦<|im_start|>⟧assistant\nIt is <|im_end|>"));
  CHECK_EQ(talk.conversation.messages().back().content, "It is <|im_end|> two.");
  CHECK_EQ(talk.conversation.messages().size(), 2);
  // After a question or a tool's result an answer begins anew.
  talk.conversation.ask("And 2 + 2?");
  CHECK_FALSE(talk.conversation.begun_answer());

  Talk full(30);
  full.conversation.set_messages({{"user", "1 + 1?"}, {"assistant", std::string(60, 'x')}});
  CHECK_THROWS_AS(full.answer("x", 1), ContextOverflow);
}

TEST_CASE("chat: the text before an error stays as the answer, and the error is thrown") {
  const auto break_off = [](Talk& talk, const std::string& text, bool may_force = false) {
    talk.breaks_off = true;
    CHECK(error_of([&] { talk.answer(text, 3, {}, may_force); }).code == Exit::non_finite);
    talk.breaks_off = false;
    return talk.conversation.messages().back().content;
  };
  Talk talk(10000, with_tools("auto"));
  talk.conversation.ask("1 + 1?");
  CHECK_EQ(break_off(talk, "It is"), "It is");
  REQUIRE(talk.conversation.messages().size() == 2);
  talk.conversation.ask("And 2 + 2?");
  CHECK_EQ(talk.answer("Four.", 100), "text: Four.\nfinish: end");
  CHECK_EQ(talk.prompt, talk.prompt.substr(0, talk.prompt.find("It is")) +
                            "It is⟦<|im_end|>⟧\n⟦<|im_start|>⟧user\nAnd 2 + 2?⟦<|im_end|>⟧\n"
                            "⟦<|im_start|>⟧assistant\n");
  // Text that might begin a call is kept, and a call that is not complete stays text.
  talk.conversation.ask("3?");
  CHECK_EQ(break_off(talk, "So <tool_"), "So <tool_");
  CHECK_EQ(talk.conversation.take_back(), "3?");
  Talk forced(10000, with_tools("required"));
  forced.conversation.ask("1 + 1?");
  CHECK_EQ(break_off(forced, "{\"name\": ", true), "<tool_call>\n{\"name\": ");
  CHECK(forced.conversation.open_call() == nullptr);
  Talk channels = talk_in_channels();
  channels.conversation.ask("1 + 1?");
  CHECK_EQ(break_off(channels, "<|channel|>final<|message|>Tw"), "Tw");
  // Without any text there is no answer, and no question.
  talk.conversation.ask("4?");
  const size_t messages = talk.conversation.messages().size();
  CHECK(error_of([&] { talk.answer("", 9); }).code == Exit::non_finite);
  CHECK_EQ(talk.conversation.messages().size(), messages - 1);
}

TEST_CASE("chat: after an error before any text, a tool's result is removed and its call is not") {
  Talk talk(10000, with_tools("auto"));
  talk.conversation.ask("1 + 1?");
  talk.answer("<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 1}}</tool_call>", 100);
  REQUIRE(talk.conversation.open_call());
  talk.conversation.add_tool_result(*talk.conversation.open_call(), "2");
  CHECK(error_of([&] { talk.answer("", 9); }).code == Exit::non_finite);
  REQUIRE(talk.conversation.open_call());
  CHECK_EQ(talk.conversation.messages().size(), 2);
  talk.conversation.add_tool_result(*talk.conversation.open_call(), "3");
  CHECK_EQ(talk.answer("Three.", 100), "text: Three.\nfinish: end");
}

TEST_CASE("chat: tool calls are sent when they are complete, and no call is sent that is none") {
  const auto call = [](int a) {
    return fmt::format("<tool_call>{{\"name\": \"add\", \"arguments\": {{\"a\": {}}}}}</tool_call>",
                       a);
  };
  const std::string spelled = call(1) + " and " + call(2),
                    calls = "call: add{\"a\":1}\ncall: add{\"a\":2}";
  for (const size_t piece : {1, 7}) {
    CAPTURE(piece);
    Talk talk(10000, with_tools("auto"));
    talk.conversation.ask("1 + 1?");
    CHECK_EQ(talk.answer(spelled, piece), calls + "\nspelling: " + spelled + "\nfinish: end");
    // The later mark turns the text before it into a thought, so calls wait for the end.
    talk.conversation.ask("1 + 1?");
    CHECK_EQ(talk.answer("So " + spelled, piece),
             "text: So \nspelling: " + spelled + "\n" + calls + "\nfinish: end");
    talk.conversation.ask("1 + 1?");
    CHECK_EQ(talk.answer("So " + spelled + "</think>2", piece),
             "text: So \nspelling: " + spelled + "</think>2\nfinish: end");
  }
}

TEST_CASE("chat: a required tool call is opened by the prompt and closed by the conversation") {
  Talk talk(10000, with_tools("required"));
  talk.conversation.ask("1 + 1?");
  CHECK_EQ(talk.answer(R"({"name":"add","arguments":{"a":1}})", 4, {}, true),
           "spelling: <tool_call>\n{\"name\":\"add\",\"arguments\":{\"a\":1}}\n"
           "call: add{\"a\":1}\nfinish: end");
  CHECK(talk.prompt.ends_with("assistant\n<tool_call>\n"));
  CHECK(talk.used.rules != nullptr);
  CHECK_EQ(talk.conversation.messages().back().content, "");
  const Error error = error_of([] { Talk(10000, {"", true, {Tools::parse("t", kAddTool), "x"}}); });
  CHECK(error.code == Exit::bad_file);  // no call fits a schema without functions
}

TEST_CASE("chat: a conversation drops its oldest turns, and an error leaves it as it was") {
  Talk talk(180, {"Be brief.", true, {}});
  for (int i = 0; i < 3; ++i) {
    talk.conversation.ask("Question " + std::to_string(i));
    talk.answer("Answer " + std::to_string(i), 100);
  }
  const std::vector<ChatMessage> before = talk.conversation.messages();
  talk.conversation.ask("And the next question, please?");
  CHECK(error_of([&] { talk.answer("Yes.", 9); }).code == Exit::prompt_too_long);
  CHECK(talk.conversation.messages() == before);
  GenerateOptions shifts;
  shifts.context_policy = ContextPolicy::shift;
  // Also if messages were dropped for an answer that failed or was interrupted before its first
  // token, and after /undo.
  talk.conversation.ask("And the next question, please?");
  CHECK(error_of([&] { talk.answer("", 9, shifts); }).code == Exit::non_finite);
  CHECK(talk.conversation.messages() == before);
  for (const bool undone : {false, true}) {
    const Conversation::Snapshot earlier = talk.conversation.snapshot();
    talk.conversation.ask("And the next question, please?");
    talk.answer("Yes.", 9, shifts);
    CHECK_EQ(talk.conversation.messages().size(), 3);
    CHECK_EQ(talk.conversation.all_messages().size(), 9);
    if (undone)
      talk.conversation.take_back();
    else
      talk.conversation.restore(earlier);
    CHECK(talk.conversation.messages() == before);
  }
  talk.conversation.ask("And the next question, please?");
  const std::string log = talk.answer("Yes.", 9, shifts);
  CHECK_EQ(log.substr(0, log.find('\n')), "dropped: 6");
  CHECK_EQ(talk.conversation.messages().size(), 3);
  CHECK(talk.conversation.has_system());
  CHECK(talk.used.keep > 10);  // tokens of the system message
  talk.conversation.ask("A question that fails");
  CHECK(error_of([&] { talk.answer("", 9); }).code == Exit::non_finite);
  CHECK_EQ(talk.conversation.messages().size(), 3);
  talk.conversation.ask(std::string(300, 'a'));
  CHECK(error_of([&] { talk.answer("Yes.", 9, shifts); }).code == Exit::prompt_too_long);
}

TEST_CASE("chat: a conversation is saved under its own name only, and loaded with its settings") {
  const TempFolder folder;
  const std::string path = folder / "talk.json";
  Talk talk(10000, {"Be brief.", true, {}}), other;
  talk.conversation.ask("Hi");
  talk.answer("Hello", 2);
  talk.conversation.save(path, {{"temp", "0.5"}}, "some-model");
  const SavedConversation saved = other.conversation.load(path);
  CHECK_EQ(saved.settings, Settings{{"temp", "0.5"}});
  CHECK_EQ(saved.model, "some-model");
  CHECK(other.conversation.messages() == talk.conversation.messages());
  CHECK_EQ(other.conversation.system(), "Be brief.");
  other.conversation.clear();
  CHECK_EQ(other.conversation.messages().size(), 1);
  other.conversation.save(path, {}, "");  // it was loaded from there
  CHECK_NOTHROW(talk.conversation.save(path, {}, ""));
  Talk third;
  third.conversation.ask("Something else");
  CHECK(error_of([&] { third.conversation.save(path, {}, ""); }).code == Exit::usage);
}

TEST_CASE("chat: a conversation knows which call waits for its result") {
  const auto call = [](int a) {
    return fmt::format("<tool_call>{{\"name\": \"add\", \"arguments\": {{\"a\": {}}}}}</tool_call>",
                       a);
  };
  Talk talk(10000, with_tools("auto"));
  Conversation& conversation = talk.conversation;
  CHECK(conversation.open_call() == nullptr);
  conversation.ask("1 + 1?");
  CHECK(conversation.open_call() == nullptr);
  talk.answer(call(1) + call(2), 100);
  for (const char* arguments : {"{\"a\":1}", "{\"a\":2}"}) {
    const ToolCall* const open = conversation.open_call();
    REQUIRE(open);
    CHECK_EQ(open->arguments, arguments);
    conversation.add_tool_result(ToolCall(*open), "2");
  }
  CHECK(conversation.open_call() == nullptr);
  talk.answer("Two.", 100);
  CHECK(conversation.open_call() == nullptr);
  conversation.ask("And?");
  talk.answer(call(3), 100);
  conversation.take_back();
  CHECK(conversation.open_call() == nullptr);
}

TEST_CASE("chat: another model continues a conversation with its own or a chosen template") {
  const std::string colons = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
  Talk talk;
  Conversation& conversation = talk.conversation;
  conversation.set_system("Be kind.");
  conversation.ask("One?");
  talk.answer("First.", 100);
  const Own other(colons);
  const ConversationModel model{other.meta, *other.tokenizer, 10000, "other"};
  conversation.change_model(model);
  conversation.ask("Two?");
  talk.answer("Second.", 100);
  CHECK_EQ(talk.prompt, "system: Be kind.\nuser: One?\nassistant: First.\nuser: Two?\n");
  conversation.change_model(model, {"", "{{ messages[-1].content }}!", "here"});
  conversation.ask("Three?");
  talk.answer("Third.", 100);
  CHECK_EQ(talk.prompt, "Three?!");
  // A template that cannot be run changes nothing.
  CHECK_THROWS_AS(conversation.change_model(model, {"", "{% for %}", "here"}), Error);
  conversation.ask("Four?");
  talk.answer("Fourth.", 100);
  CHECK_EQ(talk.prompt, "Four?!");
  conversation.set_system("");
  CHECK_FALSE(conversation.has_system());
}
