#include "engine/conversation/conversation.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <utility>

#include "engine/conversation/answer_rules.h"
#include "engine/conversation/call_reader.h"
#include "engine/conversation/channels.h"
#include "ggml-like-tensor/base/error.h"

namespace chaski {

namespace {

ChatTemplate format_of(const ConversationModel& model, const ConversationOptions& options) try {
  const Tools& tools = options.tools.tools;
  return options.chat_template.given()
             ? ChatTemplate::chosen(options.chat_template, model.tokenizer, options.thinks, tools,
                                    options.variables)
             : ChatTemplate::detect(model.meta, model.tokenizer, options.thinks, tools,
                                    options.variables);
} catch (const Error& error) {
  if (options.variables.empty()) throw;
  throw VariablesError(error.code, error.what());
}

std::string template_text(const ConversationModel& model, const TemplateChoice& choice) {
  return choice.given() ? choice.text : model.meta.str("tokenizer.chat_template", "");
}

bool shows_thoughts(const std::string& text) { return text.find("<think>") != std::string::npos; }

}  // namespace

Conversation::Conversation(const ConversationModel& model, const ConversationOptions& options)
    : model_(model),
      thinks_(options.thinks),
      tools_(options.tools),
      variables_(options.variables),
      format_(format_of(model, options)),
      tool_calling_(tools_, format_, template_text(model, options.chat_template), model.tokenizer,
                    model.name),
      system_(options.system) {
  read_template(options.chat_template);
  clear();
}

void Conversation::read_template(const TemplateChoice& choice) {
  const std::string text = template_text(*model_, choice);
  thinks_by_itself_ = shows_thoughts(text), channels_ = Channels::used_by(text);
}

void Conversation::change_model(const ConversationModel& model,
                                const TemplateChoice& chat_template) {
  ChatTemplate format = format_of(model, {"", thinks_, tools_, chat_template, variables_});
  ToolCalling calling(tools_, format, template_text(model, chat_template), model.tokenizer,
                      model.name);
  model_.emplace(model);
  format_ = std::move(format), tool_calling_ = std::move(calling);
  read_template(chat_template);
  rewriting_reported_ = false;
}

std::vector<TokenId> Conversation::tokens() const {
  return messages_.empty() ? std::vector<TokenId>() : render(messages_, false);
}

bool Conversation::fits() const {
  try {
    return int(tokens().size()) < model_->context_length;
  } catch (const Error&) {  // the template refuses the messages: the next question reports it
    return true;
  }
}

std::vector<TokenId> Conversation::prompt() const {
  const ChatMessage* const begun = begun_answer();
  if (!begun) return render(messages_, true);
  std::vector<TokenId> prompt = render(std::span(messages_).first(messages_.size() - 1), true);
  append_begun(begun->content, prompt);
  return prompt;
}

std::vector<TokenId> Conversation::render(std::span<const ChatMessage> messages,
                                          bool add_generation_prompt,
                                          std::optional<size_t>* rewritten) const {
  std::vector<size_t> sources;
  std::vector<ChatMessage> shown = tool_calling_.shown(messages, &sources);
  for (ChatMessage& m : shown) {
    if (!channels_ || m.role != "assistant") continue;
    // The template shows the content of a message with calls as the thought before them, so a
    // text after the thought becomes its end.
    const Channels::Content parts = Channels::parts_of(m.content);
    std::string content(parts.thinks && !m.calls.empty() ? parts.thought : "");
    if (!content.empty() && !parts.text.empty()) content += "\n\n";
    m.content = content.append(parts.text);
  }
  std::vector<TokenId> tokens = format_.render(shown, add_generation_prompt, rewritten);
  if (add_generation_prompt && !thinks_) {
    if (channels_) append_final_channel(tokens);
    // A template without enable_thinking begins every answer with a thought.
    if (ends_in_thought(tokens)) append_control("</think>", tokens);
  }
  if (rewritten && *rewritten) *rewritten = sources[**rewritten];
  return tokens;
}

void Conversation::set_system(const std::string& text) {
  if (has_system()) messages_.erase(messages_.begin());
  system_ = text;
  if (!text.empty()) messages_.insert(messages_.begin(), {"system", system_});
}

std::vector<ChatMessage> Conversation::all_messages() const {
  std::vector<ChatMessage> all = messages_;
  all.insert(all.begin() + (has_system() ? 1 : 0), dropped_.begin(), dropped_.end());
  return all;
}

void Conversation::clear() {
  messages_.clear(), dropped_.clear();
  if (!system_.empty()) messages_.push_back({"system", system_});
}

void Conversation::set_messages(std::vector<ChatMessage> messages) {
  messages_ = std::move(messages), dropped_.clear();
  system_ = has_system() ? messages_[0].content : "";
}

void Conversation::ask(const std::string& question) { messages_.push_back({"user", question}); }

const ToolCall* Conversation::open_call() const {
  const auto answer = std::find_if(messages_.rbegin(), messages_.rend(),
                                   [](const ChatMessage& m) { return m.role != "tool"; });
  const size_t results = size_t(answer - messages_.rbegin());
  const bool open = answer != messages_.rend() && results < answer->calls.size();
  return open ? &answer->calls[results] : nullptr;
}

void Conversation::add_tool_result(const ToolCall& call, const std::string& text) {
  messages_.push_back({"tool", text, {}, call.id, call.name});
}

std::vector<ChatMessage>::iterator Conversation::find_question() {
  const auto last = std::find_if(messages_.rbegin(), messages_.rend(),
                                 [](const ChatMessage& m) { return m.role == "user"; });
  return last == messages_.rend() ? messages_.end() : last.base() - 1;
}

const ChatMessage* Conversation::last_question() const {
  const auto at = std::find_if(messages_.rbegin(), messages_.rend(),
                               [](const ChatMessage& m) { return m.role == "user"; });
  return at == messages_.rend() ? nullptr : &*at;
}

const ChatMessage* Conversation::last_answer() const {
  const auto at = std::find_if(messages_.rbegin(), messages_.rend(),
                               [](const ChatMessage& m) { return m.role == "assistant"; });
  return at == messages_.rend() ? nullptr : &*at;
}

const ChatMessage* Conversation::begun_answer() const {
  const bool begun = !messages_.empty() && messages_.back().role == "assistant" &&
                     messages_.back().calls.empty() && last_question();
  return begun ? &messages_.back() : nullptr;
}

void Conversation::drop_question() {
  messages_.erase(find_question(), messages_.end());
  if (!last_question()) put_back(dropped_.size());
}

// Removes the last message, a question or a tool's result. The messages that were dropped to make
// room for its answer come back.
void Conversation::drop_unanswered() {
  if (messages_.back().role == "tool")
    messages_.pop_back();
  else
    drop_question();
  put_back(std::min(std::exchange(newly_dropped_, 0), dropped_.size()));
}

// The last `dropped` messages that were dropped are in the context again.
void Conversation::put_back(size_t dropped) {
  const auto first = dropped_.end() - ptrdiff_t(dropped);
  messages_.insert(messages_.begin() + (has_system() ? 1 : 0), first, dropped_.end());
  dropped_.erase(first, dropped_.end());
}

void Conversation::restore(const Snapshot& earlier) {
  messages_ = earlier.messages, dropped_ = earlier.dropped;
  newly_dropped_ = 0;
}

std::string Conversation::take_back() {
  const auto last = find_question();
  if (last == messages_.end()) fail(Exit::usage, "there is no question yet");
  const std::string question = last->content;
  drop_question();
  return question;
}

// The prompt of the next answer, with the oldest turns dropped if they have no room.
std::vector<TokenId> Conversation::fitting_prompt(const GenerateOptions& options,
                                                  const OnAnswerEvent& on_event) {
  std::optional<size_t> rewritten;
  std::vector<TokenId> prompt = render(messages_, true, &rewritten);
  // Reported once: a template that rewrites one answer rewrites all of them.
  if (rewritten && !std::exchange(rewriting_reported_, true)) {
    const auto question =
        std::count_if(messages_.begin(), messages_.begin() + ptrdiff_t(*rewritten),
                      [](const ChatMessage& m) { return m.role == "user"; });
    on_event({.kind = AnswerEvent::Kind::rewritten, .count = size_t(question)});
  }
  const size_t whole = prompt.size();
  if (int(whole) < model_->context_length) return prompt;
  const bool drops = options.context_policy != ContextPolicy::stop;
  const size_t dropped = drops ? drop_turns(prompt) : 0;
  if (drops && int(prompt.size()) >= model_->context_length)
    throw ContextOverflow(
        fmt::format("this message alone does not fit into the context of {} tokens, expected a "
                    "shorter one or a larger --ctx",
                    model_->context_length),
        prompt.size(), model_->context_length, true);
  if (!drops) {
    const bool alone = !last_turn_fits();
    throw ContextOverflow(
        fmt::format("the conversation with this question has {} tokens, but the context holds {} "
                    "and the answer needs room: give --ctx N for a larger context if the model "
                    "supports it{}",
                    whole, model_->context_length, alone ? "" : ", or --context-policy shift"),
        whole, model_->context_length, alone);
  }
  on_event({.kind = AnswerEvent::Kind::dropped, .count = dropped});
  return prompt;
}

// Whether the last question fits into the context without the messages before it.
bool Conversation::last_turn_fits() const {
  std::vector<ChatMessage> last = messages_;
  const auto first = last.begin() + (has_system() ? 1 : 0);
  const auto question = std::find_if(last.rbegin(), last.rend(),
                                     [](const ChatMessage& m) { return m.role == "user"; });
  if (question != last.rend()) last.erase(first, question.base() - 1);
  return int(render(last, true).size()) < model_->context_length;
}

// Drops the oldest questions and their answers until half of the context is free.
size_t Conversation::drop_turns(std::vector<TokenId>& prompt) {
  std::vector<ChatMessage> kept = messages_;
  const ptrdiff_t first = has_system() ? 1 : 0;
  while (int(prompt.size()) > model_->context_length / 2) {
    const auto next = std::find_if(kept.begin() + first + 1, kept.end(),
                                   [](const ChatMessage& m) { return m.role == "user"; });
    if (next == kept.end()) break;
    kept.erase(kept.begin() + first, next);
    prompt = render(kept, true);
  }
  if (int(prompt.size()) >= model_->context_length) return 0;
  const auto dropped = ptrdiff_t(messages_.size() - kept.size());
  dropped_.insert(dropped_.end(), messages_.begin() + first, messages_.begin() + first + dropped);
  messages_ = std::move(kept);
  return newly_dropped_ = size_t(dropped);
}

// How many tokens a shift in the middle of an answer keeps: the ones that this conversation has in
// common with another one of the same system message, which may come from the template.
int Conversation::kept_by_shift(std::span<const TokenId> prompt) const {
  const size_t first = has_system() ? 1 : 0;
  std::vector<ChatMessage> other(messages_.begin(), messages_.begin() + ptrdiff_t(first));
  other.push_back({"user", messages_[first].content.starts_with('a') ? "b" : "a"});
  const std::vector<TokenId> tokens = render(other, true);
  return int(std::mismatch(prompt.begin(), prompt.end(), tokens.begin(), tokens.end()).first -
             prompt.begin());
}

// True if the template begins every answer with a thought: the prompt ends with <think> and white
// space. An earlier <think> may be a user's.
bool Conversation::ends_in_thought(std::span<const TokenId> prompt) const {
  constexpr size_t kLooked = 8;  // tokens
  std::string end;
  for (const TokenId token : prompt.last(std::min(prompt.size(), kLooked)))
    end += model_->tokenizer.is_control(token) ? model_->tokenizer.raw(token)
                                               : model_->tokenizer.piece(token);
  end.erase(end.find_last_not_of(" \t\r\n") + 1);
  return end.ends_with("<think>");
}

// Appends the beginning of an answer as the tokens of text in the middle of an answer. Only the
// marks around a thought become control tokens.
void Conversation::append_begun(const std::string& begun, std::vector<TokenId>& prompt) const {
  constexpr std::string_view kOpens = "<think>\n", kCloses = "\n</think>\n\n";
  // Text before it keeps the tokenizer from adding a space at the start.
  std::vector<Tokenizer::Part> parts = {{"\n"}};
  const size_t before = model_->tokenizer.encode_parts(parts).size();
  const auto append = [&] {
    const std::vector<TokenId> tokens = model_->tokenizer.encode_parts(parts);
    prompt.insert(prompt.end(), tokens.begin() + ptrdiff_t(before), tokens.end());
  };
  if (channels_) {
    for (const Tokenizer::Part& part : begun_in_channels(begun)) parts.push_back(part);
    return append();
  }
  std::string_view rest = begun;
  const size_t end = rest.starts_with(kOpens) ? rest.find(kCloses) : std::string_view::npos;
  const bool opened = ends_in_thought(prompt);
  if (end != std::string_view::npos) {
    if (!opened) parts.push_back({kOpens, true, true});
    parts.push_back({rest.substr(kOpens.size(), end - kOpens.size()), false, true});
    rest.remove_prefix(end + kCloses.size());
  }
  if (end != std::string_view::npos || opened) parts.push_back({kCloses, true, true});
  parts.push_back({rest, false, true});
  append();
}

// The same in a format with channels, after the generation prompt. If the answer must not think,
// the generation prompt already opens the final channel.
std::vector<Tokenizer::Part> Conversation::begun_in_channels(const std::string& begun) const {
  const Channels::Content content = Channels::parts_of(begun);
  std::vector<Tokenizer::Part> parts;
  if (thinks_ && content.thinks) {
    parts = {{Channels::kThought, true, true}, {content.thought, false, true}};
    if (!content.ends) return parts;
    parts.push_back({Channels::kAfterThought, true, true});
  } else if (thinks_) {
    parts.push_back({Channels::kFinal, true, true});
  }
  parts.push_back({content.text, false, true});
  return parts;
}

// Begins the text of the answer in a format with channels. So it has no thought.
void Conversation::append_final_channel(std::vector<TokenId>& prompt) const {
  append_control(Channels::kFinal, prompt);
}

void Conversation::append_control(std::string_view text, std::vector<TokenId>& prompt) const {
  const auto tokens = model_->tokenizer.encode_with_control(text);
  prompt.insert(prompt.end(), tokens.begin(), tokens.end());
}

void Conversation::expect_room(std::span<const TokenId> prompt) const {
  if (int(prompt.size()) >= model_->context_length)
    throw ContextOverflow(fmt::format("the conversation with the beginning of its answer has {} "
                                      "tokens, but the context holds {} and the rest needs room",
                                      prompt.size(), model_->context_length),
                          prompt.size(), model_->context_length, false);
}

// A grammar constrains the answer after its thought, and leaves room for calls instead.
void Conversation::constrain(std::span<const TokenId> prompt, GenerateOptions& options) const {
  const Rules* rules = options.grammar ? &options.grammar->rules() : options.rules.get();
  if (!rules) return;
  std::shared_ptr<const Rules> own;
  const auto use = [&](std::shared_ptr<const Rules> made) {
    own = std::move(made), rules = own.get();
  };
  if (const ToolSyntax* syntax = tool_calling_.syntax(); syntax && syntax->can_be_forced)
    use(rules_or_calls(*rules, *syntax, tools_.tools, model_->tokenizer));
  const bool opened = ends_in_thought(prompt);
  if (opened || (thinks_ && thinks_by_itself_))
    use(rules_after_thought(*rules, opened, model_->tokenizer));
  if (own) options.grammar = nullptr, options.rules = std::move(own);
}

Answer Conversation::answer(const GenerateOptions& options, bool may_force,
                            const Generate& generate, const OnAnswerEvent& on_event) {
  ENSURE(last_question(), "an answer needs a question");
  newly_dropped_ = 0;
  const ToolSyntax* const syntax = tool_calling_.syntax();
  Answer answer;
  std::string begun;
  if (begun_answer()) {
    begun = std::move(messages_.back().content);
    messages_.pop_back();
  }
  std::optional<CallIds> ids;
  std::optional<AnswerStream> stream;
  std::exception_ptr fault;  // after the beginning of the answer
  try {
    std::vector<TokenId> prompt = fitting_prompt(options, on_event);
    if (!begun.empty()) append_begun(begun, prompt), expect_room(prompt);
    GenerateOptions all = options;
    for (const std::string& text : format_.stop_strings()) all.stop.push_back(text);
    all.spelled = tool_calling_.spelled();
    if (channels_)
      for (const std::string_view mark : Channels::kMarks)
        if (const auto token = model_->tokenizer.find(mark)) {
          all.spelled.push_back(*token);
          if (mark == Channels::kMessage)
            all.resumes_stop = *token;
          else
            all.pauses_stop.push_back(*token);
        }
    all.keep = options.context_policy == ContextPolicy::stop ? 0 : kept_by_shift(prompt);
    all.on_token = [&](TokenId token, const LogProbabilities* log_probabilities) {
      if (options.on_token) options.on_token(token, log_probabilities);
      on_event({.kind = AnswerEvent::Kind::token,
                .token = token,
                .log_probabilities = log_probabilities});
    };
    const bool forced = may_force && begun.empty() && tool_calling_.forced() != nullptr;
    if (forced) {
      all.grammar = nullptr, all.rules = tool_calling_.forced();
      answer.text = syntax->opens;
      append_control(answer.text, prompt);
    } else if (begun.empty()) {
      constrain(prompt, all);
    }
    const bool in_thought = channels_ && thinks_ && !Channels::parts_of(begun).ends;
    const bool in_text = channels_ && !in_thought &&
                         (!thinks_ || !begun.empty() || forced || all.rules || all.grammar);
    if (in_text && thinks_ && begun.empty() && !forced) append_final_channel(prompt);
    std::optional<Channels> channels;
    if (channels_)
      channels.emplace(in_thought ? Channels::Where::thought
                       : in_text  ? Channels::Where::text
                                  : Channels::Where::header,
                       syntax != nullptr);
    on_event({.kind = AnswerEvent::Kind::prompt, .count = prompt.size()});
    ids.emplace(std::as_bytes(std::span(prompt)), options.sampling.seed);
    stream.emplace(in_thought || ends_in_thought(prompt), syntax, tools_.tools, *ids, on_event);
    stream->push(answer.text);
    std::string read;
    const auto take = [&](std::string_view part) {
      read += part;
      stream->push(part);
      on_event({AnswerEvent::Kind::generated, part});
    };
    const Sink sink = [&](std::string_view part) {
      if (!channels) return take(part);
      if (const std::string text = channels->push(part); !text.empty()) take(text);
    };
    try {
      answer.result = generate(prompt, all, sink);
    } catch (const Error&) {
      if (read.empty()) throw;
      fault = std::current_exception();
    }
    if (channels)
      if (const std::string rest = channels->flush(); !rest.empty()) take(rest);
    if (channels || fault) answer.result.text = read;
    stream->end();
    answer.thought = stream->thought();
    answer.text += answer.result.text;
    if (forced && answer.result.complete && !fault) answer.text += syntax->closes;
  } catch (const Error&) {
    drop_unanswered();
    throw;
  }
  if (fault) {
    messages_.push_back({"assistant", begun + answer.text});
    std::rethrow_exception(fault);
  }
  if (syntax) {
    ToolAnswer read = read_calls(*syntax, tools_.tools, answer.text, *ids);
    answer.content = std::move(read.content), answer.calls = std::move(read.calls);
    answer.faults = std::move(read.faults), answer.damaged = read.damaged;
    answer.cut_call = read.cut;
  }
  if (answer.calls.empty()) answer.content = answer.text;
  messages_.push_back({"assistant", begun + answer.content, answer.calls});
  stream->send_calls(answer.calls);
  on_event({.kind = AnswerEvent::Kind::finish, .result = &answer.result});
  return answer;
}

void Conversation::expect_can_save(const std::string& path) const {
  std::error_code none;
  if (!std::filesystem::exists(path, none) || std::ranges::count(own_files_, path) > 0) return;
  std::vector<ChatMessage> saved;
  try {
    saved = read_conversation(path).messages;
  } catch (const Error&) {
    fail(Exit::usage, "{}: the file exists and is not a conversation, expected another name", path);
  }
  const auto same = [](const ChatMessage& a, const ChatMessage& b) {
    return a.role == b.role && a.content == b.content;
  };
  const std::vector<ChatMessage> all = all_messages();
  if (saved.size() > all.size() || !std::equal(saved.begin(), saved.end(), all.begin(), same))
    fail(Exit::usage,
         "{}: the file holds another conversation, expected another name, or load this file first",
         path);
}

void Conversation::save(const std::string& path, const Settings& settings,
                        const std::string& model) {
  expect_can_save(path);
  write_conversation(path, {all_messages(), settings, model, dropped_.size()});
  own_files_.push_back(path);
}

SavedConversation Conversation::load(const std::string& path) {
  SavedConversation saved = read_saved_conversation(path);
  set_messages(std::exchange(saved.messages, {}));
  if (saved.dropped > 0 && !fits()) {
    const auto first = messages_.begin() + (has_system() ? 1 : 0),
               last = first + ptrdiff_t(saved.dropped);
    dropped_.assign(first, last);
    messages_.erase(first, last);
  }
  own_files_.push_back(path);
  return saved;
}

}  // namespace chaski
