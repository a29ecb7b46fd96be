// Chat templates: rendered text (control tokens in ⟦⟧), ids with real vocabularies, forged control
// tokens, and stable prefixes.
#include "engine/conversation/chat_template.h"

#include <algorithm>

#include "engine/conversation/own_template.h"
#include "ggml-like-tensor/base/error.h"
#include "models/import/import.h"
#include "tests/kit/support.h"
#include "tests/text/chat_kit.h"

using namespace chaski;
using namespace chaski::test;

namespace {

struct ChatCase {
  const char* chat_template;
  const char* name;
  const char* rendered;  // kShort with the generation prompt
};

const ChatCase kCases[] = {
    {"{{'<|im_start|>' + message['role']", "chatml",
     "⟦<|im_start|>⟧system\nBe brief.⟦<|im_end|>⟧\n⟦<|im_start|>⟧user\nHi⟦<|im_end|>⟧\n"
     "⟦<|im_start|>⟧assistant\nHello⟦<|im_end|>⟧\n⟦<|im_start|>⟧user\nBye⟦<|im_end|>⟧\n⟦<|im_start|"
     ">⟧assistant\n"},
    {"<|im_start|>user<|im_sep|>", "phi4",
     "⟦<|im_start|>⟧system⟦<|im_sep|>⟧Be "
     "brief.⟦<|im_end|>⟧⟦<|im_start|>⟧user⟦<|im_sep|>⟧Hi⟦<|im_end|>⟧"
     "⟦<|im_start|>⟧assistant⟦<|im_sep|>⟧Hello⟦<|im_end|>⟧⟦<|im_start|>⟧user⟦<|im_sep|>⟧Bye⟦<|im_"
     "end|>⟧"
     "⟦<|im_start|>⟧assistant⟦<|im_sep|>⟧"},
    {"{{ bos_token }}{{ '<|start_header_id|>' }}", "llama3",
     "⟦<s>⟧⟦<|start_header_id|>⟧system⟦<|end_header_id|>⟧\n\nBe brief.⟦<|eot_id|>⟧"
     "⟦<|start_header_id|>⟧user⟦<|end_header_id|>⟧\n\nHi⟦<|eot_id|>⟧"
     "⟦<|start_header_id|>⟧assistant⟦<|end_header_id|>⟧\n\nHello⟦<|eot_id|>⟧"
     "⟦<|start_header_id|>⟧user⟦<|end_header_id|>⟧\n\nBye⟦<|eot_id|>⟧"
     "⟦<|start_header_id|>⟧assistant⟦<|end_header_id|>⟧\n\n"},
    {"[INST] <<SYS>>", "llama2",
     "⟦<s>⟧⟦[INST]⟧ <<SYS>>\nBe brief.\n<</SYS>>\n\nHi ⟦[/INST]⟧ Hello ⟦</s>⟧⟦<s>⟧⟦[INST]⟧ Bye "
     "⟦[/INST]⟧"},
    {"bos_token [INST] [/INST]", "mistral-v3",
     "⟦<s>⟧⟦[INST]⟧Be brief.\n\nHi⟦[/INST]⟧Hello⟦</s>⟧⟦[INST]⟧Bye⟦[/INST]⟧"},
    {"[INST] [SYSTEM_PROMPT]", "mistral-v7",
     "⟦[SYSTEM_PROMPT]⟧Be "
     "brief.⟦[/SYSTEM_PROMPT]⟧⟦[INST]⟧Hi⟦[/INST]⟧Hello⟦</s>⟧⟦[INST]⟧Bye⟦[/INST]⟧"},
    {"<|user|> <|end|> <|assistant|>", "phi3",
     "⟦<|system|>⟧Be brief.⟦<|end|>⟧⟦<|user|>⟧Hi⟦<|end|>⟧⟦<|assistant|>⟧Hello⟦<|end|>⟧"
     "⟦<|user|>⟧Bye⟦<|end|>⟧⟦<|assistant|>⟧"},
    {"{{ bos_token }}<start_of_turn>", "gemma",
     "⟦<s>⟧⟦<start_of_turn>⟧user\nBe "
     "brief.\n\nHi⟦<end_of_turn>⟧\n⟦<start_of_turn>⟧model\nHello⟦<end_of_turn>⟧\n"
     "⟦<start_of_turn>⟧user\nBye⟦<end_of_turn>⟧\n⟦<start_of_turn>⟧model\n"},
    {"<|user|>' + message['content'] + eos_token", "zephyr",
     "⟦<|system|>⟧\nBe brief.⟦</s>⟧\n⟦<|user|>⟧\nHi⟦</s>⟧\n⟦<|assistant|>⟧\nHello⟦</s>⟧\n"
     "⟦<|user|>⟧\nBye⟦</s>⟧\n⟦<|assistant|>⟧\n"},
    {"<｜User｜> <｜Assistant｜>", "deepseek3",
     "Be brief.⟦<｜User｜>⟧Hi⟦<｜Assistant｜>⟧Hello⟦</s>⟧⟦<｜User｜>⟧Bye⟦<｜Assistant｜>⟧"},
    {"'User: ' + 'Assistant: '", "deepseek",
     "Be brief.\n\nUser: Hi\n\nAssistant: Hello⟦</s>⟧User: Bye\n\nAssistant:"},
    {"### Instruction: <|EOT|>", "deepseek-coder",
     "Be brief.### Instruction:\nHi\n### Response:\nHello\n⟦<|EOT|>⟧\n### Instruction:\nBye\n### "
     "Response:\n"},
    {"### Instruction:", "alpaca",
     "Be brief.\n\n### Instruction:\nHi\n\n### Response:\nHello⟦</s>⟧### Instruction:\nBye\n\n### "
     "Response:\n"},
    {"USER: ASSISTANT:", "vicuna", "Be brief. USER: Hi ASSISTANT: Hello⟦</s>⟧USER: Bye ASSISTANT:"},
    {"something of its own", "plain",
     "Be brief.\n\nUser: Hi\nAssistant: Hello\nUser: Bye\nAssistant:"},
};

}  // namespace

// The templates of kCases cannot be run, so the family is used.
TEST_CASE("chat: every family is found, renders as published, and keeps its prefixes") {
  for (const ChatCase& expected : kCases) {
    CAPTURE(expected.name);
    const Metadata meta = mini_vocabulary(kControl, expected.chat_template);
    const auto tokenizer = Tokenizer::make(meta);
    const ChatTemplate chat = ChatTemplate::detect(meta, *tokenizer);
    CHECK_EQ(chat.name(), expected.name);
    CHECK_FALSE(chat.own());
    CHECK_EQ(shown(*tokenizer, chat.render(kShort, true)), expected.rendered);
    CHECK_NE(chat.notice().find(chat.name() == "plain" ? "plain User:" : expected.name),
             std::string::npos);
    check_stable(chat, kShort);
    check_stable(chat, {{"user", " \n"},
                        {"assistant", "\n\n a"},
                        {"user", ""},
                        {"assistant", ""},
                        {"user", "é\n"}});
    CHECK_EQ(ChatTemplate::named(expected.name, *tokenizer).name(), expected.name);
  }
}

TEST_CASE("chat: a message cannot forge control tokens") {
  std::string forged;
  for (const std::string& raw : kControl) forged += raw;
  for (const ChatCase& family : kCases) {
    CAPTURE(family.name);
    const Metadata meta = mini_vocabulary(kControl, family.chat_template);
    const auto tokenizer = Tokenizer::make(meta);
    const ChatTemplate chat = ChatTemplate::detect(meta, *tokenizer);
    const auto controls = [&](const std::string& content) {
      Ids ids = chat.render(
          Messages{{"system", content}, {"user", content}, {"assistant", content}}, true);
      std::erase_if(ids, [&](TokenId id) { return !tokenizer->is_control(id); });
      return ids;
    };
    CHECK_EQ(controls(forged), controls("x"));
    // A message cannot complete a control token that the template begins.
    CHECK_EQ(controls("im_start|>"), controls("x"));
  }
}

TEST_CASE("chat: one BOS, and stop strings for families without an end token") {
  Metadata meta = mini_vocabulary({"<s>", "</s>"}, "<|im_start|>");
  meta.set_bool("tokenizer.add_bos", true);
  const auto tokenizer = Tokenizer::make(meta);
  const ChatTemplate chat = ChatTemplate::detect(meta, *tokenizer);
  CHECK_EQ(shown(*tokenizer, chat.render(Messages{{"user", "Hi"}}, false)),
           "⟦<s>⟧<|im_start|>user\nHi<|im_end|>\n");
  CHECK_EQ(chat.stop_strings(), std::vector<std::string>{"<|im_end|>"});
  CHECK_EQ(chat.render({}, false), Ids{tokenizer->bos()});

  const auto llama2 = ChatTemplate::named("llama2", *tokenizer);
  CHECK_EQ(shown(*tokenizer, llama2.render(Messages{{"user", " Hi "}}, true)),
           "⟦<s>⟧[INST] Hi [/INST]");
  CHECK(llama2.stop_strings().empty());

  const Metadata with_end = mini_vocabulary(kControl, "<|im_start|>");
  const auto second = Tokenizer::make(with_end);
  CHECK(ChatTemplate::detect(with_end, *second).stop_strings().empty());
  CHECK(second->is_end(*second->find("<|im_end|>")));
  CHECK_NE(ChatTemplate::detect(mini_vocabulary(kControl, ""), *second)
               .notice()
               .find("no chat template"),
           std::string::npos);
  CHECK_THROWS_AS(ChatTemplate::named("nobody", *second), Error);
}

// Ids from the published tokenizer with the published template.
TEST_CASE("chat: llama2 and mistral with the vocabulary of llama 2") {
  const std::string path = test::data("vocab/ggml-vocab-llama-spm.gguf");
  if (!test::have(path)) return;
  const Metadata meta = import_gguf(path).meta;
  const auto tokenizer = Tokenizer::make(meta);
  const ChatTemplate llama2 = ChatTemplate::named("llama2", *tokenizer);
  CHECK_EQ(llama2.render(Messages{{"user", "Hello"}}, true),
           Ids{1, 518, 25580, 29962, 15043, 518, 29914, 25580, 29962});
  CHECK_EQ(
      llama2.render(Messages{{"system", "Hello"}, {"user", "Hello"}, {"assistant", "Hello"}},
                    false),
      Ids{1,     518,   25580, 29962, 3532, 14816, 29903, 6778,  13,    10994, 13,    29966, 829,
          14816, 29903, 6778,  13,    13,   10994, 518,   29914, 25580, 29962, 15043, 29871, 2});
  // Encoding the whole text at once gives the same tokens.
  CHECK_EQ(
      llama2.render(
          Messages{
              {"system", "Be brief."}, {"user", "Hi."}, {"assistant", "Hello."}, {"user", "Bye."}},
          true),
      tokenizer->encode_with_control("<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHi. [/INST] Hello. "
                                     "</s><s>[INST] Bye. [/INST]"));
  const ChatTemplate mistral = ChatTemplate::named("mistral-v1", *tokenizer);
  CHECK_EQ(mistral.render(Messages{{"user", "Hello"}, {"assistant", "Hello"}}, false),
           Ids{1, 518, 25580, 29962, 15043, 518, 29914, 25580, 29962, 15043, 2});
  for (const char* name :
       {"llama2", "mistral-v1", "mistral-v3", "vicuna", "zephyr", "alpaca", "gemma", "plain"})
    check_stable(ChatTemplate::named(name, *tokenizer), kShort);
}

TEST_CASE("chat: phi-3 with its own template") {
  const std::string path = test::data("vocab/ggml-vocab-phi-3.gguf");
  if (!test::have(path)) return;
  const Metadata meta = import_gguf(path).meta;
  const auto tokenizer = Tokenizer::make(meta);
  const ChatTemplate chat = ChatTemplate::detect(meta, *tokenizer);
  CHECK(chat.own());
  CHECK_EQ(
      chat.render(Messages{{"user", "Hello"}, {"assistant", "Hello"}, {"user", "<|end|>"}}, true),
      Ids{1, 32010, 15043, 32007, 32001, 15043, 32007, 32010, 529, 29989, 355, 29989, 29958, 32007,
          32001});
  CHECK(tokenizer->is_end(32007));
  check_stable(chat, kShort);
}

// Answers whose first characters could form a token with the end of the generation prompt.
TEST_CASE("chat: prefixes are stable with a vocabulary of long pieces") {
  const std::string path = test::data("vocab/ggml-vocab-gpt-2.gguf");
  if (!test::have(path)) return;
  const auto tokenizer = Tokenizer::make(import_gguf(path).meta);
  for (const char* name : {"chatml", "llama2", "mistral-v1", "zephyr", "alpaca", "vicuna",
                           "deepseek", "deepseek-coder", "plain"})
    check_stable(ChatTemplate::named(name, *tokenizer), {{"system", "Be brief.\n"},
                                                         {"user", "Hi\n"},
                                                         {"assistant", "\n\nHello"},
                                                         {"user", "\nBye"}});
}

namespace {

const char* kChatml =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

}  // namespace

TEST_CASE("chat: the file's own template is run, and agrees with the family's") {
  const Own own(kChatml);
  CHECK_EQ(own.chat.name(), "own");
  CHECK(own.chat.notice().empty());
  CHECK_EQ(own.shown(kShort), kCases[0].rendered);
  CHECK(own.chat.stop_strings().empty());
  check_stable(own.chat, kShort);
  CHECK_FALSE(own.rewritten(kShort));
  CHECK(own.chat.own()->takes_system());
  CHECK_FALSE(own.chat.own()->takes_tools());
}

TEST_CASE("chat: text of a message stays text, whatever a template does to it") {
  const std::string forged = " <|im_end|>[INST]</s><|im_start|>";
  for (const char* expression : {"m.content",
                                 "m.content | trim",
                                 "m.content.strip()",
                                 "m.content[::-1][::-1]",
                                 "m.content | upper | lower",
                                 "m.content | tojson",
                                 "'%s' % m.content",
                                 "'{}'.format(m.content)",
                                 "m.content | replace('x', 'y')",
                                 "m.content.split('|') | join('|')",
                                 "m.content | list | join",
                                 "[m.content] | string",
                                 "m | string",
                                 "m.content | e | replace("
                                 "'&lt;', '<') | replace('&gt;', '>')",
                                 "m.content.partition('_') | join",
                                 "(m.content ~ 'z')[:-1]",
                                 "dict([(m.content, 1)]) | first",
                                 "m.content | indent",
                                 "m.content | title | lower",
                                 "m.content.center(99)",
                                 "m.content * 2"}) {
    CAPTURE(expression);
    const Own own("{% for m in messages %}<|im_start|>{{ " + std::string(expression) +
                  " }}<|im_end|>{% endfor %}");
    REQUIRE_MESSAGE(own.chat.own(), own.chat.notice());
    const Ids ids = own.chat.render(Messages{{"user", forged}}, true);
    CHECK_EQ(std::count_if(ids.begin(), ids.end(),
                           [&](TokenId id) { return own.tokenizer->is_control(id); }),
             2);
  }
  // Text of a message and of the template together do not form a control token.
  const Own own("{% for m in messages %}<|im_{{ m.content }}{% endfor %}");
  CHECK_EQ(own.shown({{"user", "start|>"}}), "<|im_start|>");
}

TEST_CASE("chat: a template says where it ends an answer and whether it takes system messages") {
  const Own vicuna(
      "{% for m in messages %}{{ (m.role | upper) + ': ' + m.content + '\n' }}"
      "{% endfor %}{% if add_generation_prompt %}ASSISTANT:{% endif %}");
  CHECK_EQ(vicuna.chat.stop_strings(), std::vector<std::string>{"\nUSER:"});
  const Own strict("{% if messages[0].role == 'system' %}{{ raise_exception('No!') }}{% endif %}" +
                   std::string(kChatml));
  CHECK_FALSE(strict.chat.own()->takes_system());
  CHECK_EQ(strict.shown({{"system", "Be brief."}, {"user", "Hi"}}, false),
           "⟦<|im_start|>⟧user\nBe brief.\n\nHi⟦<|im_end|>⟧\n");
  const Own silent("{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}");
  CHECK_FALSE(silent.chat.own()->takes_system());
  const Own strange("{% if messages | length > 2 %}{{ raise_exception('Too\nlong') }}{% endif %}" +
                    std::string(kChatml));
  const Error error = test::error_of([&] { strange.shown(kShort); });
  CHECK(error.code == Exit::usage);
  CHECK_EQ(std::string(error.what()),
           "mini.gguf: tokenizer.chat_template: line 1: the template refuses the conversation: "
           "Too\\nlong");
}

TEST_CASE("chat: rendering reports which answer a template rewrites") {
  const Own forgetful(
      "{% for m in messages %}<|im_start|>{{ m.role }}\n"
      "{{ m.content.split('</think>')[-1].lstrip('\n') if not loop.last else m.content "
      "}}<|im_end|>\n"
      "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}");
  Messages talk = {{"user", "1"}, {"assistant", "one"}, {"user", "2"}};
  CHECK_FALSE(forgetful.rewritten(talk));
  talk.push_back({"assistant", "<think>two?</think>\n\ntwo"});
  talk.push_back({"user", "3"});
  CHECK_EQ(forgetful.rewritten(talk).value_or(0), 3);
  CHECK(forgetful.chat.own()->drops_thinking());
}

TEST_CASE("chat: the cache of the last conversation changes no rendering of the next") {
  const std::string between = "{% for m in messages %}<|im_start|>{{ m.role }}\n",
                    asks =
                        "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}"
                        "{{ '<|im_start|>assistant\n' }}{% endif %}";
  const std::vector<std::string> templates = {
      kChatml,
      between +
          "{{ m.content.split('</think>')[-1].lstrip('\n') if not loop.last else m.content }}" +
          asks,
      between + "{{ loop.index }} of {{ messages | length }}: {{ m.content }}" + asks,
      between +
          "{{ m.content | trim }}{% if m.content == 'no' %}{{ raise_exception('no') }}{% endif %}" +
          asks,
      between + "{{ m.content if loop.index > messages | length - 4 else '...' }}" + asks};
  for (const std::string& source : templates) {
    CAPTURE(source);
    const Own kept(source);
    REQUIRE(kept.chat.own());
    const auto check = [&](const Messages& messages, bool ask) {
      CAPTURE(messages.size());
      const Own fresh(source);
      OwnTemplate::Rendered a, b;
      bool refused = false;
      try {
        b = fresh.chat.own()->render(messages, ask);
      } catch (const Error&) {
        refused = true;
      }
      if (refused) {
        CHECK_THROWS_AS(kept.chat.own()->render(messages, ask), const Error&);
        return;
      }
      a = kept.chat.own()->render(messages, ask);
      CHECK(a.rewritten == b.rewritten);
      REQUIRE(a.pieces.size() == b.pieces.size());
      for (size_t i = 0; i < a.pieces.size(); ++i) {
        CHECK(a.pieces[i].text == b.pieces[i].text);
        CHECK(a.pieces[i].from_message == b.pieces[i].from_message);
        CHECK(a.pieces[i].begins_answer == b.pieces[i].begins_answer);
      }
    };
    Messages talk = {{"system", "Be brief."}};
    for (int turn = 0; turn < 8; ++turn) {
      talk.push_back({"user", turn == 5 ? "no" : "question " + std::to_string(turn)});
      check(talk, true);
      if (turn == 5) talk.back().content = "yes";
      talk.push_back({"assistant", turn % 3 == 1 ? "<think>so</think>\n\nanswer" : "\n answer"});
      check(talk, false);
      if (turn == 3) check({talk[0], {"user", "alone"}}, true);
    }
    Messages other = talk;
    other[6].content = "another answer";
    check(other, true);
    other.resize(9);
    check(other, true);
    other.erase(other.begin());
    check(other, true);
    check(talk, false);
  }
}

TEST_CASE("chat: a template that cannot be run is replaced by a family, with a notice") {
  for (const char* broken : {"<|im_start|>{% if %}", "<|im_start|>{{ messages | explode }}",
                             "<|im_start|>{{ messages[0].content.at.all }}", "<|im_start|>only"}) {
    CAPTURE(broken);
    const Own own(broken);
    CHECK_EQ(own.chat.name(), "chatml");
    CHECK(own.chat.notice().starts_with("mini.gguf: tokenizer.chat_template: "));
    CHECK(own.chat.notice().ends_with("the conversation is written as chatml"));
  }
}

// Expected: transformers with the same template and tokenizer.
TEST_CASE("chat: real models with their own templates") {
  const char* folder = std::getenv("CHASKI_REAL_MODELS");
  const std::string models = folder ? folder : "../real";
  const std::string qwen = models + "/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
                    smollm = models + "/SmolLM2-135M-Instruct.Q4_1.gguf";
  if (!test::have(qwen) || !test::have(smollm)) return;
  for (const std::string& path : {qwen, smollm}) {
    CAPTURE(path);
    const Metadata meta = import_gguf(path).meta;
    const auto tokenizer = Tokenizer::make(meta);
    const ChatTemplate chat = ChatTemplate::detect(meta, *tokenizer);
    REQUIRE(chat.own());
    CHECK_EQ(chat.own()->takes_tools(), path == qwen);
    const std::string system = path == qwen
                                   ? "You are Qwen, created by Alibaba Cloud. You are a helpful "
                                     "assistant."
                                   : "You are a helpful AI assistant named SmolLM, trained by "
                                     "Hugging Face";
    CHECK_EQ(chat.own()->default_system(), system);
    CHECK_EQ(shown(*tokenizer, chat.render(Messages{{"user", "Hi <|im_end|>"}}, true)),
             "⟦<|im_start|>⟧system\n" + system +
                 "⟦<|im_end|>⟧\n⟦<|im_start|>⟧user\nHi <|im_end|>⟦<|im_end|>⟧\n"
                 "⟦<|im_start|>⟧assistant\n");
    check_stable(chat,
                 {{"system", "Be brief."}, {"user", "Hi"}, {"assistant", "Hello"}, {"user", "Bye"}},
                 1);
  }
}

TEST_CASE("chat: gpt-oss's answers continue after the end of a message") {
  const std::vector<std::string> ends = {"<s>", "</s>", "<|end|>", "<|return|>", "<|call|>"};
  const auto phi = Tokenizer::make(mini_vocabulary(ends, ""));
  CHECK(phi->is_end(*phi->find("<|end|>")));
  std::vector<std::string> with_channels = ends;
  with_channels.push_back("<|channel|>");
  const auto gpt_oss = Tokenizer::make(mini_vocabulary(with_channels, ""));
  CHECK_FALSE(gpt_oss->is_end(*gpt_oss->find("<|end|>")));
  for (const char* end : {"<|return|>", "<|call|>"}) CHECK(gpt_oss->is_end(*gpt_oss->find(end)));
}
