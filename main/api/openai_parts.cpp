#include "main/api/openai_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/grammar/schema/json_schema.h"
#include "engine/shelf/inspection.h"  // for expected_names()

namespace chaski {

namespace {

std::string error_body(const ApiError& error) { return written(openai_error(error)); }
std::string stream_error(const ApiError& error, int) {
  return sent_event(openai_error(error)) + "data: [DONE]\n\n";
}

// Variables of chat templates that requests cannot set.
constexpr std::string_view kOwnVariables[] = {"messages",  "tools",     "add_generation_prompt",
                                              "bos_token", "eos_token", "unk_token"};

// Of Tools::parse(), whose errors are "tools: [0].function.name is ...".
[[noreturn]] void refuse_tools(const Error& error) {
  std::string line = error.what();
  const std::string_view before = "tools: [";
  if (!line.starts_with(before))
    throw ApiError(400, "invalid_request_error", "invalid_value", line, "tools");
  line = "tools" + line.substr(before.size() - 1);
  throw ApiError(400, "invalid_request_error", "invalid_value", line,
                 line.substr(0, line.find(' ')));
}

ToolCall read_call(const Field& call) {
  if (const auto type = call.find("type")) type->one_of({"function"});
  const Field function = call["function"];
  const auto id = call.find("id");
  ToolCall out{id ? id->text() : "", function["name"].text(), "{}"};
  if (const auto arguments = function.find("arguments")) {
    // OpenAI sends a text that holds JSON, ollama the object itself.
    out.arguments = arguments->is_object() ? written(arguments->whole_json()) : arguments->text();
    if (out.arguments.empty()) out.arguments = "{}";
    if (!is_json_object(out.arguments)) arguments->wrong("a JSON object");
  }
  call.accept({"index"});
  return out;
}

// The function whose result a message is: of the call with this id in the messages before.
std::string name_of_call(const std::vector<ChatMessage>& messages, const std::string& id) {
  for (auto m = messages.rbegin(); m != messages.rend(); ++m)
    for (const ToolCall& call : m->calls)
      if (call.id == id) return call.name;
  return "";
}

ChatMessage read_message(const Field& message, const std::vector<ChatMessage>& before) {
  std::string role = message["role"].one_of({"system", "developer", "user", "assistant", "tool"});
  if (role == "developer") role = "system";
  ChatMessage out{role, ""};
  const auto content = message.find("content");
  if (content) out.content = read_content(*content);
  if (role == "assistant") {
    if (const auto calls = message.find("tool_calls"))
      for (const Field& call : calls->items()) out.calls.push_back(read_call(call));
    for (const char* name : {"reasoning_content", "reasoning", "thinking"})
      if (const auto thought = message.find(name))
        out.content = with_thought(thought->text(), out.content);
    message.accept({"refusal", "audio", "annotations", "function_call", "thinking_signature"});
  } else if (!content) {
    message["content"].wrong("a text");
  }
  if (role == "tool") {
    if (const auto id = message.find("tool_call_id")) out.call_id = id->text();
    for (const char* name : {"name", "tool_name"})
      if (const auto given = message.find(name)) out.name = given->text();
    if (out.name.empty()) out.name = name_of_call(before, out.call_id);
  }
  message.accept({"name"});
  return out;
}

}  // namespace

const Dialect kOpenAi = {error_body, stream_error};

OrderedJson openai_error(const ApiError& error) {
  OrderedJson inner = {
      {"message", error.what()}, {"type", error.type}, {"param", nullptr}, {"code", error.code}};
  if (!error.param.empty()) inner["param"] = error.param;
  if (error.context > 0)
    inner["n_prompt_tokens"] = error.prompt_tokens, inner["n_ctx"] = error.context;
  return {{"error", inner}};
}

std::string sent_event(const OrderedJson& json) { return "data: " + written(json) + "\n\n"; }

std::string sent_event(const std::string& name, const OrderedJson& json) {
  return "event: " + name + "\n" + sent_event(json);
}

std::string read_content(const Field& content) {
  if (content.is_text()) return content.text();
  if (!content.is_list()) content.wrong("a text or a list of parts");
  std::string all;
  for (const Field& part : content.items()) {
    const std::string type = part["type"].text();
    if (type != "text" && type != "input_text" && type != "output_text" && type != "refusal")
      part["type"].refuse("is " + escaped(type) + ", expected text: the model reads text only");
    if (!all.empty()) all += '\n';
    all += part[type == "refusal" ? "refusal" : "text"].text();
    part.accept({"cache_control", "annotations", "logprobs"});
  }
  return all;
}

std::string with_thought(const std::string& thought, const std::string& content) {
  return thought.empty() ? content : "<think>\n" + thought + "\n</think>\n\n" + content;
}

std::vector<ChatMessage> read_messages(const Field& messages) {
  std::vector<ChatMessage> all;
  for (const Field& message : messages.items()) all.push_back(read_message(message, all));
  if (std::ranges::count(all, "user", &ChatMessage::role) == 0)
    messages.refuse("has no message of a user, expected at least one");
  return all;
}

void expect_enforceable(const OrderedJson& tools, const ChatRequest& request,
                        const std::string& member) {
  const std::string& choice = request.tools.choice;
  for (size_t i = 0; choice != "auto" && i < tools.size(); ++i) {
    const bool inside = tools[i].contains("function") && tools[i]["function"].is_object();
    const OrderedJson& function = inside ? tools[i]["function"] : tools[i];
    if (!function.contains("parameters") || (choice != "required" && function["name"] != choice))
      continue;
    const std::string path = fmt::format("tools[{}].{}", i,
                                         !member.empty() ? member
                                         : inside        ? "function.parameters"
                                                         : "parameters");
    try {
      parse_json_schema({path, written(function["parameters"]), Exit::usage});
    } catch (const Error& error) {
      throw ApiError(400, "invalid_request_error", "invalid_value", error.what(), path);
    }
  }
}

void read_tools(const Field& fields, ChatRequest& request) {
  for (const char* old : {"functions", "function_call"})
    if (const auto field = fields.find(old))
      field->refuse("is the old form of tools, expected tools and tool_choice");
  const auto tools = fields.find("tools");
  if (const auto parallel = fields.find("parallel_tool_calls"))
    request.parallel_calls = parallel->flag();
  if (tools && !(tools->is_list() && tools->json().empty())) {
    try {
      request.tools.tools = Tools::parse("tools", written(tools->whole_json()));
    } catch (const Error& error) {
      refuse_tools(error);
    }
  }
  const auto choice = fields.find("tool_choice");
  if (!choice) return;
  const std::vector<std::string>& names = request.tools.tools.names();
  if (choice->is_text()) {
    const std::string word = choice->one_of({"none", "auto", "required"});
    if (word == "required" && names.empty())
      choice->refuse("is required, but the request has no tools");
    request.tools.choice = word;
    if (word == "none") request.tools = {};
    if (tools) expect_enforceable(tools->json(), request);
    return;
  }
  (*choice)["type"].one_of({"function"});
  const auto function = choice->find("function");
  const Field name = function ? (*function)["name"] : (*choice)["name"];
  request.tools.choice = name.text();
  if (std::ranges::count(names, request.tools.choice) == 0)
    name.wrong(names.empty() ? "no name: the request has no tools"
                             : expected_names(request.tools.choice, names));
  expect_enforceable(tools->json(), request);
}

void read_thinking(const Field& fields, Body& body, ChatRequest& request) {
  if (const auto effort = fields.find("reasoning_effort")) {
    const std::string word = effort->one_of({"none", "minimal", "low", "medium", "high", "xhigh"});
    request.thinks = word != "none" && word != "minimal";
    if (request.thinks)
      body.warn("reasoning_effort is " + word +
                ": it turns thinking on, the model chooses for how long");
  }
  const auto arguments = fields.find("chat_template_kwargs");
  if (!arguments) return;
  for (const auto& [name, value] : arguments->members()) {
    if (std::ranges::count(kOwnVariables, name) > 0)
      value.refuse("is a variable that the server sets, expected another name");
    if (name == "enable_thinking" || name == "thinking") request.thinks = value.flag();
    // Templates get this one from request.thinks, which "reasoning_effort" may have set too.
    if (name == "enable_thinking") continue;
    request.variables.emplace_back(name, value_of_json(written(value.whole_json())));
  }
}

void limit_tokens(const Api& api, AnswerSettings& settings) {
  int& most = settings.request.max_tokens;
  if (api.most_tokens < 0) return;
  if (most > api.most_tokens)
    refuse_field(
        settings.most_tokens_field,
        fmt::format("is {}, expected at most {}: the limit of this server", most, api.most_tokens));
  if (most < 0) most = api.most_tokens;
}

void expect_only(const Field& fields, const char* name, const OrderedJson& value) {
  if (const auto field = fields.find(name); field && field->whole_json() != value)
    field->wrong(written(value) + ", the only value that chaski supports");
}

StreamChoice read_stream(const Field& fields) {
  StreamChoice out;
  if (const auto stream = fields.find("stream")) out.stream = stream->flag();
  if (const auto progress = fields.find("return_progress")) out.progress = progress->flag();
  if (const auto timings = fields.find("timings_per_token")) out.timings = timings->flag();
  if (const auto options = fields.find("stream_options")) {
    if (const auto usage = options->find("include_usage")) out.usage = usage->flag();
    options->accept({"include_obfuscation"});
  }
  return out;
}

const char* finish_reason(const GenerateResult& result, bool calls) {
  if (calls) return "tool_calls";
  return result.finish == Finish::end || result.finish == Finish::stop ? "stop" : "length";
}

void Usage::add(const GenerateResult& result, int reasoning_tokens) {
  if (prompt == 0) cached = result.cached_tokens;
  prompt = std::max(prompt, result.prompt_tokens), cached = std::min(cached, result.cached_tokens);
  generated += int(result.tokens.size()), reasoning += reasoning_tokens;
}

OrderedJson usage_json(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt},
          {"completion_tokens", usage.generated},
          {"total_tokens", usage.prompt + usage.generated},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached}}},
          {"completion_tokens_details", {{"reasoning_tokens", usage.reasoning}}}};
}

void Timings::add(std::span<const GenerateResult> answers) {
  Usage usage;
  for (const GenerateResult& r : answers) {
    usage.add(r);
    steps_ += std::max(int(r.tokens.size()) - 1, 0);  // the prompt's last pass has the first token
    drafted_ += r.drafted, accepted_ += r.accepted;
    prompt_seconds_ = std::max(prompt_seconds_, r.prompt_seconds);
    decode_seconds_ = std::max(decode_seconds_, r.decode_seconds);
  }
  cached_ += usage.cached, read_ += usage.prompt - usage.cached, written_ += usage.generated;
}

OrderedJson Timings::json() const {
  const auto ratio = [](double a, double b) { return b > 0 ? a / b : 0; };
  const double prompt_ms = 1000 * prompt_seconds_, decode_ms = 1000 * decode_seconds_;
  OrderedJson json = {{"cache_n", cached_},
                      {"prompt_n", read_},
                      {"prompt_ms", prompt_ms},
                      {"prompt_per_token_ms", ratio(prompt_ms, read_)},
                      {"prompt_per_second", ratio(read_, prompt_seconds_)},
                      {"predicted_n", written_},
                      {"predicted_ms", decode_ms},
                      {"predicted_per_token_ms", ratio(decode_ms, steps_)},
                      {"predicted_per_second", ratio(steps_, decode_seconds_)}};
  if (drafted_ > 0) json["draft_n"] = drafted_, json["draft_n_accepted"] = accepted_;
  return json;
}

OrderedJson timings_json(const GenerateResult& result) {
  Timings timings;
  timings.add({&result, 1});
  return timings.json();
}

void RunningTimings::take(const ChatEvent& event) {
  last_ = Clock::now();
  if (event.kind == ChatEvent::Kind::reading) {
    if (!cached_) cached_ = event.count, start_ = last_;
    known_ = event.count, all_ = event.all, read_ = last_;
  }
  if (event.kind == ChatEvent::Kind::token) ++drawn_;
}

OrderedJson RunningTimings::json() const {
  GenerateResult so_far;
  so_far.prompt_tokens = int(known_), so_far.cached_tokens = int(cached_.value_or(known_));
  so_far.tokens.resize(size_t(drawn_));
  so_far.prompt_seconds = std::chrono::duration<double>(read_ - start_).count();
  if (drawn_ > 0) so_far.decode_seconds = std::chrono::duration<double>(last_ - read_).count();
  return timings_json(so_far);
}

OrderedJson RunningTimings::progress() const {
  const std::chrono::duration<double, std::milli> took = last_ - start_;
  return {{"total", all_},
          {"cache", cached_.value_or(0)},
          {"processed", known_},
          {"time_ms", took.count()}};
}

void expect_few_texts(size_t all) {
  constexpr size_t kMostTexts = 256;
  if (all > kMostTexts)
    refuse_field("prompt",
                 fmt::format("asks for {} texts in all, expected at most {}", all, kMostTexts));
}

OrderedJson tool_calls_json(std::span<const ToolCall> calls) {
  OrderedJson list = OrderedJson::array();
  for (const ToolCall& call : calls)
    list.push_back({{"id", call.id},
                    {"type", "function"},
                    {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  return list;
}

double finite(double log_probability) {
  constexpr double kNever = -9999;  // what OpenAI sends
  return std::isfinite(log_probability) ? log_probability : kNever;
}

OrderedJson log_probability_json(const Tokenizer& tokenizer, TokenId token,
                                 const LogProbabilities& values) {
  const auto one = [&](TokenId id, double value) {
    const std::string_view bytes = tokenizer.piece(id);
    OrderedJson list = OrderedJson::array();
    for (const char byte : bytes) list.push_back(int(static_cast<unsigned char>(byte)));
    return OrderedJson{{"token", bytes}, {"logprob", finite(value)}, {"bytes", list}, {"id", id}};
  };
  OrderedJson json = one(token, values.drawn);
  json["top_logprobs"] = OrderedJson::array();
  for (const auto& [id, value] : values.most) json["top_logprobs"].push_back(one(id, value));
  return json;
}

void put_member(std::string& text, const std::string& name, std::string_view value) {
  // A text inside the object cannot hold this, because its quotes have a backslash before them.
  const std::string member = "\"" + name + "\":", null = "null";
  const size_t at = text.find(member + null);
  ENSURE(at != std::string::npos, "the object has the member");
  text.replace(at + member.size(), null.size(), value);
}

void add_remarks(OrderedJson& response, uint64_t seed, const std::vector<std::string>& warnings) {
  response["seed"] = seed;
  if (!warnings.empty()) response["warnings"] = warnings;
}

}  // namespace chaski
