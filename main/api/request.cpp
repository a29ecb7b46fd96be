#include "main/api/request.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <system_error>
#include <thread>
#include <utility>

#include "engine/conversation/own_template.h"

namespace chaski {

namespace {

constexpr int kMostThreads = 64;  // of one request; more texts at once gain little
constexpr std::string_view kSpace = " \t\r\n", kThought = "<think>", kThoughtEnd = "</think>";

// Turns the events of a conversation into those of an API: thoughts lose their marks and the white
// space around them. White space before the text is left out after a thought and before calls.
class ChatReader {
 public:
  ChatReader(const ChatRequest& request, ChatAnswer& answer, const OnChatEvent& on_event)
      : may_call_(!request.tools.tools.empty()),
        one_call_(!request.parallel_calls),
        answer_(answer),
        on_event_(on_event) {}

  void take(const AnswerEvent& event) {
    using Kind = AnswerEvent::Kind;
    switch (event.kind) {
      case Kind::prompt:
        return on_event_({.kind = ChatEvent::Kind::prompt, .count = event.count});
      case Kind::token:
        ++tokens_;
        return on_event_({.kind = ChatEvent::Kind::token,
                          .token = event.token,
                          .log_probabilities = event.log_probabilities});
      case Kind::thinking:
        return take_thought(event.text);
      case Kind::thinking_end:
        answer_.reasoning_tokens = tokens_, thought_ = true;
        return;
      case Kind::text:
        return take_text(event.text);
      case Kind::call_text:
        spelled_ += event.text;
        return;
      case Kind::call_begun:
        return begin_call(*event.call);
      case Kind::call_part:
        if (!ignores_) put_part(event.text);
        return;
      case Kind::tool_call:
        return take_call(*event.call);
      default:
        return;
    }
  }
  // Call it at the end. A damaged call is text.
  void end(const Answer& answer) {
    if (answer.damaged || answer.calls.empty()) take_text(spelled_);
    if (answer_.calls.empty() && !thought_) send_text(std::exchange(held_, ""));
  }
  // No more calls are wanted.
  bool is_enough() const { return one_call_ && !answer_.calls.empty(); }

 private:
  void take_thought(std::string_view part) {
    std::string text = std::exchange(held_thought_, "") + std::string(part);
    if (answer_.reasoning.empty()) {
      text.erase(0, std::min(text.find_first_not_of(kSpace), text.size()));
      if (std::exchange(may_be_marked_, false) && text.starts_with(kThought))
        text.erase(0, kThought.size());
      text.erase(0, std::min(text.find_first_not_of(kSpace), text.size()));
    }
    if (text.ends_with(kThoughtEnd)) text.erase(text.size() - kThoughtEnd.size());
    const size_t end = text.find_last_not_of(kSpace) + 1;  // 0: only white space
    held_thought_ = text.substr(end);
    text.resize(end);
    if (text.empty()) return;
    answer_.reasoning += text;
    on_event_({.kind = ChatEvent::Kind::reasoning, .text = text});
  }
  void take_text(std::string_view part) {
    if (!answer_.content.empty() || (!may_call_ && !thought_)) return send_text(std::string(part));
    held_ += part;
    if (thought_) held_.erase(0, std::min(held_.find_first_not_of(kSpace), held_.size()));
    if (held_.find_first_not_of(kSpace) != std::string::npos) send_text(std::exchange(held_, ""));
  }
  void send_text(const std::string& text) {
    if (text.empty()) return;
    answer_.content += text;
    on_event_({.kind = ChatEvent::Kind::text, .text = text});
  }
  void begin_call(const ToolCall& call) {
    ignores_ = one_call_ && !begun_.empty();
    if (ignores_) return;
    begun_.push_back(call.id);
    on_event_({.kind = ChatEvent::Kind::call_begun, .count = begun_.size() - 1, .call = &call});
  }
  void put_part(std::string_view text) {
    on_event_({.kind = ChatEvent::Kind::call_part, .text = text, .count = begun_.size() - 1});
  }
  void take_call(const ToolCall& call) {
    if (is_enough()) return;
    size_t index = size_t(std::ranges::find(begun_, call.id) - begun_.begin());
    if (index == begun_.size()) {
      begin_call(call);
      if (ignores_) return;
      put_part(call.arguments);
    }
    answer_.calls.push_back(call);
    on_event_({.kind = ChatEvent::Kind::call, .count = index, .call = &call});
  }

  const bool may_call_, one_call_;
  ChatAnswer& answer_;
  const OnChatEvent& on_event_;
  std::string held_, held_thought_, spelled_;
  std::vector<std::string> begun_;  // the ids of calls
  int tokens_ = 0;
  bool ignores_ = false;  // the call that has begun last
  bool thought_ = false, may_be_marked_ = true;
};

GenerateOptions options_of(const ServedModel& served, const AnswerSettings& settings, int number,
                           const std::atomic<bool>& interrupt, const OnChatEvent& on_event) {
  GenerateOptions options;
  static_cast<RequestSettings&>(options) = settings.request;
  for (const auto& [text, value] : settings.text_bias)
    for (const TokenId token : served.engine().tokenizer().encode(text))
      options.sampling.bias.emplace_back(token, value);
  options.sampling.seed += uint64_t(number);
  options.rules = settings.rules, options.random_seed = settings.random_seed;
  options.interrupt = &interrupt;
  options.on_read = [&on_event](int known, int all) {
    on_event({.kind = ChatEvent::Kind::reading, .count = size_t(known), .all = size_t(all)});
  };
  return options;
}

// A bias is read before the model is known.
void check_bias(const ServedModel& served, const AnswerSettings& settings) {
  const int size = served.engine().vocab_size();
  for (const auto& [token, value] : settings.request.sampling.bias)
    if (token >= size)
      refuse_field("logit_bias", fmt::format("has token {}, expected 0 to {}", token, size - 1));
}

}  // namespace

ApiError too_long(size_t prompt_tokens, const ServedModel& served) {
  return too_long(int(prompt_tokens), served.engine().context_length(),
                  served.memory_chose_context);
}

void note_cut(const GenerateResult& result, std::vector<std::string>& warnings) {
  if (result.finish == Finish::interrupted)
    warnings.push_back(fmt::format("{}: it ends with the text so far", kTimeIsOver));
}

std::unique_ptr<Conversation> conversation_of(const ServedModel& served,
                                              const ChatRequest& request) {
  const Engine& engine = served.engine();
  ConversationOptions options;
  options.thinks = request.thinks, options.tools = request.tools;
  options.tools.may_describe = true;
  options.chat_template = served.chat_template, options.variables = request.variables;
  try {
    auto conversation = std::make_unique<Conversation>(
        ConversationModel{engine.meta(), engine.tokenizer(), engine.context_length(), served.name},
        options);
    conversation->set_messages(request.messages);
    const ToolSyntax* const calls = conversation->tool_calling().syntax();
    if (request.settings.rules && !options.tools.tools.empty() && !(calls && calls->can_be_forced))
      refuse_field(request.settings.rules_field,
                   "is given together with tools, which is not possible in the form that this chat "
                   "template uses for calls, expected one of them");
    return conversation;
  } catch (const VariablesError& error) {
    throw ApiError(400, "invalid_request_error", "invalid_value",
                   fmt::format("chat_template_kwargs: {}", error.what()), "chat_template_kwargs");
  } catch (const Error& error) {
    throw ApiError(400, "invalid_request_error", "invalid_value", error.what(),
                   request.tools.tools.empty() ? "messages" : "tools");
  }
}

ChatAnswer answer_chat(const ServedModel& served, const ChatRequest& request, int number,
                       const std::atomic<bool>& gone, const OnChatEvent& on_event) {
  const std::unique_ptr<Conversation> conversation = conversation_of(served, request);
  if (!conversation->last_question())
    refuse_field("messages", "has no message of a user, expected at least one");
  if (conversation->begun_answer() &&
      (request.settings.rules || conversation->tool_calling().forced()))
    refuse_field("messages",
                 "ends with an assistant's message, which cannot be continued together with a "
                 "grammar, a schema or a required tool call");
  ChatAnswer out;
  check_bias(served, request.settings);
  ChatReader reader(request, out, on_event);
  std::atomic<bool> enough = false;
  GenerateOptions options = options_of(served, request.settings, number, gone, on_event);
  options.also_interrupt = &enough;
  try {
    const Answer answer =
        conversation->answer(options, true, served.generate, [&](const AnswerEvent& event) {
          reader.take(event);
          if (reader.is_enough()) enough = true;
        });
    reader.end(answer);
    out.faults = answer.faults, out.result = answer.result;
    if (!reader.is_enough()) note_cut(out.result, out.faults);
    return out;
  } catch (const ContextOverflow&) {
    conversation->set_messages(request.messages);  // an error removes the question
    throw too_long(conversation->prompt().size(), served);
  } catch (const Error& error) {
    throw api_error_of(error);
  }
}

GenerateResult complete_text(const ServedModel& served, const TextRequest& request, int number,
                             const std::atomic<bool>& gone, const OnChatEvent& on_event) {
  check_bias(served, request.settings);
  GenerateOptions options = options_of(served, request.settings, number, gone, on_event);
  options.on_token = [&](TokenId token, const LogProbabilities* log_probabilities) {
    on_event(
        {.kind = ChatEvent::Kind::token, .token = token, .log_probabilities = log_probabilities});
  };
  if (options.context_policy == ContextPolicy::stop &&
      int(request.prompt.size()) >= served.engine().context_length())
    throw too_long(request.prompt.size(), served);
  on_event({.kind = ChatEvent::Kind::prompt, .count = request.prompt.size()});
  try {
    return served.generate(request.prompt, options, [&](std::string_view part) {
      on_event({.kind = ChatEvent::Kind::text, .text = part});
    });
  } catch (const Error& error) {
    throw api_error_of(error);
  }
}

Spelled spelled_in(const Field& fields, Spelled otherwise) {
  const auto parses = fields.find("parse_special");
  if (!parses) return otherwise;
  return parses->flag() ? Spelled::control : Spelled::text;
}

std::vector<TokenId> tokens_of(const ServedModel& served, const std::string& prompt,
                               const std::string& path, Spelled as) {
  std::vector<TokenId> tokens = served.engine().tokenizer().encode_prompt(prompt, as);
  if (tokens.empty())
    refuse_field(path, "is empty and the model has no token that begins a text, expected a text");
  return tokens;
}

std::vector<TokenId> tokens_of(const ServedModel& served, const Field& prompt, Spelled as) {
  const Tokenizer& tokenizer = served.engine().tokenizer();
  const int last = served.engine().vocab_size() - 1;
  if (prompt.is_text()) return tokens_of(served, prompt.text(), prompt.path(), as);
  if (prompt.is_object()) {
    if (const auto media = prompt.find("multimodal_data"))
      media->refuse("is given: the model reads text only");
    const Field text = prompt["prompt_string"];
    return tokens_of(served, text.text(), text.path(), as);
  }
  if (!prompt.is_list()) prompt.wrong("a text or a list");
  if (prompt.json().empty()) prompt.wrong("a text or token ids");
  if (std::ranges::none_of(prompt.json(), [](const auto& one) { return one.is_string(); }))
    return prompt.wholes(0, last);
  std::vector<TokenId> tokens;
  for (const Field& part : prompt.items()) {
    if (!part.is_text()) {
      tokens.push_back(part.whole(0, last));
      continue;
    }
    const std::string text = part.text();
    const std::vector<TokenId> more = tokens.empty() ? tokens_of(served, text, part.path(), as)
                                      : as == Spelled::control ? tokenizer.encode_with_control(text)
                                                               : tokenizer.encode(text);
    tokens.insert(tokens.end(), more.begin(), more.end());
  }
  return tokens;
}

bool is_one_prompt(const Field& prompt) {
  const OrderedJson& json = prompt.json();
  return !json.is_array() || json.empty() ||
         std::ranges::any_of(json, [](const auto& one) { return one.is_number(); });
}

void answer_all(int n, const std::function<void(int number)>& answer) {
  if (n == 1) return answer(0);
  std::vector<std::exception_ptr> errors(static_cast<size_t>(n));
  std::atomic<int> next = 0;
  const auto work = [&] {
    for (int i = next++; i < n; i = next++) try {
        answer(i);
      } catch (...) {
        errors[size_t(i)] = std::current_exception();
      }
  };
  {
    std::vector<std::jthread> threads;
    try {
      for (int i = 1; i < std::min(n, kMostThreads); ++i) threads.emplace_back(work);
    } catch (const std::system_error&) {  // no more threads: those that are there answer all
    }
    work();
  }
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

}  // namespace chaski
