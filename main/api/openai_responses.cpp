// /v1/responses: an answer is a list of items (a thought, a message, calls), and a later request
// continues it by id.
#include <algorithm>

#include "main/api/openai.h"
#include "main/api/responses_request.h"

namespace chaski {

namespace {

// Throws ApiError (404) if the response is not kept any more.
std::vector<ChatMessage> messages_before(Api& api, const Field& id) {
  auto kept = api.responses.messages(id.text());
  if (!kept)
    throw ApiError(404, "invalid_request_error", "previous_response_not_found",
                   "previous_response_id is " + escaped(id.text()) +
                       ": this server has no such response, or dropped it for newer ones",
                   id.path());
  return std::move(*kept);
}

std::string name_in(const OrderedJson& item) { return item["type"].get<std::string>(); }

// Builds the items of a response, and sends the events of each change if it is streamed.
class ResponseReply {
 public:
  ResponseReply(const ServedModel& served, AskedResponse& asked, std::vector<std::string> warnings,
                Reply& reply)
      : served_(served), asked_(asked), warnings_(std::move(warnings)), reply_(reply) {}

  void answer(Api& api) {
    const ChatAnswer answer = answer_chat(served_, asked_.chat, 0, reply_.gone(),
                                          [&](const ChatEvent& event) { take(event); });
    const bool cut = finish_reason(answer.result) == std::string_view("length");
    begin();
    close_item(cut ? "incomplete" : "completed");
    if (!asked_.stream.stream) drop_damaged(answer.calls);
    std::ranges::copy(answer.faults, std::back_inserter(warnings_));
    OrderedJson json = response(cut ? "incomplete" : "completed");
    if (cut) json["incomplete_details"] = {{"reason", "max_output_tokens"}};
    json["usage"] = usage(answer);
    json["timings"] = timings_json(answer.result);
    add_remarks(json, asked_.chat.settings.request.sampling.seed, warnings_);
    if (asked_.store) {
      asked_.kept.push_back(
          {"assistant", with_thought(answer.reasoning, answer.content), answer.calls});
      api.responses.keep(id_, std::move(asked_.kept), written(json));
    }
    if (!asked_.stream.stream) return reply_.whole(200, kJsonType, written(json));
    put(cut ? "response.incomplete" : "response.completed",
        {{"response", json}, {"timings", json["timings"]}});
    reply_.end();
  }

 private:
  OrderedJson response(const char* status) const {
    OrderedJson json = {{"id", id_},
                        {"object", "response"},
                        {"created_at", created_},
                        {"status", status},
                        {"error", nullptr},
                        {"incomplete_details", nullptr},
                        {"model", served_.name},
                        {"output", output_}};
    json.update(asked_.shown);
    json["usage"] = nullptr;
    return json;
  }
  OrderedJson usage(const ChatAnswer& answer) const {
    const GenerateResult& r = answer.result;
    return {{"input_tokens", r.prompt_tokens},
            {"input_tokens_details", {{"cached_tokens", r.cached_tokens}}},
            {"output_tokens", r.tokens.size()},
            {"output_tokens_details", {{"reasoning_tokens", answer.reasoning_tokens}}},
            {"total_tokens", size_t(r.prompt_tokens) + r.tokens.size()}};
  }

  void put(const std::string& type, const OrderedJson& fields) {
    if (!asked_.stream.stream) return;
    OrderedJson json = {{"type", type}, {"sequence_number", sequence_++}};
    json.update(fields);
    reply_.part(sent_event(type, json));
  }
  void begin() {
    if (!asked_.stream.stream || std::exchange(begun_, true)) return;
    reply_.begin(kEventStream);
    put("response.created", {{"response", response("in_progress")}});
    put("response.in_progress", {{"response", response("in_progress")}});
  }

  void take(const ChatEvent& event) {
    using Kind = ChatEvent::Kind;
    if (event.kind == Kind::prompt) return;
    begin();
    timings_.take(event);
    if (event.kind == Kind::reading && asked_.stream.progress)
      put("response.in_progress",
          {{"response", response("in_progress")}, {"prompt_progress", timings_.progress()}});
    if (event.kind == Kind::token && event.log_probabilities)
      logged_.push_back(log_probability_json(served_.engine().tokenizer(), event.token,
                                             *event.log_probabilities));
    if (event.kind == Kind::reasoning) take_text("reasoning", event.text);
    if (event.kind == Kind::text) take_text("message", event.text);
    if (event.kind == Kind::call_begun) begin_call(*event.call);
    if (event.kind == Kind::call_part) take_arguments(event.text);
  }

  // Where an event belongs: the last item, and its only part.
  OrderedJson place(bool part = true) const {
    OrderedJson json = {{"item_id", output_.back()["id"]}, {"output_index", output_.size() - 1}};
    if (part) json["content_index"] = 0;
    return json;
  }
  OrderedJson with(OrderedJson json, const char* name, OrderedJson value) const {
    json[name] = std::move(value);
    return json;
  }

  void add_item(OrderedJson item) {
    close_item();
    output_.push_back(std::move(item));
    open_ = true;
    put("response.output_item.added",
        {{"output_index", output_.size() - 1}, {"item", output_.back()}});
  }

  void take_text(const std::string& kind, std::string_view text) {
    const bool thought = kind == "reasoning";
    if (!open_ || name_in(output_.back()) != kind) {
      OrderedJson item = {{"type", kind}, {"id", new_id(thought ? "rs_" : "msg_")}};
      if (thought)
        item["summary"] = OrderedJson::array();
      else
        item["role"] = "assistant";
      item["status"] = "in_progress", item["content"] = OrderedJson::array();
      add_item(std::move(item));
      OrderedJson part = {{"type", thought ? "reasoning_text" : "output_text"}, {"text", ""}};
      if (!thought)
        part["annotations"] = OrderedJson::array(), part["logprobs"] = OrderedJson::array();
      output_.back()["content"].push_back(part);
      put("response.content_part.added", with(place(), "part", part));
    }
    OrderedJson& part = output_.back()["content"][0];
    part["text"] = part["text"].get<std::string>() + std::string(text);
    OrderedJson json = with(place(), "delta", text);
    if (!thought) {
      for (const OrderedJson& one : logged_) part["logprobs"].push_back(one);
      json["logprobs"] = std::move(logged_);
    }
    logged_ = OrderedJson::array();
    if (asked_.stream.timings) json["timings"] = timings_.json();
    put(thought ? "response.reasoning_text.delta" : "response.output_text.delta", json);
  }

  void begin_call(const ToolCall& call) {
    add_item({{"type", "function_call"},
              {"id", new_id("fc_")},
              {"call_id", call.id},
              {"name", call.name},
              {"arguments", ""},
              {"status", "in_progress"}});
  }
  void take_arguments(std::string_view text) {
    put("response.function_call_arguments.delta", with(place(false), "delta", text));
    OrderedJson& all = output_.back()["arguments"];
    all = all.get<std::string>() + std::string(text);
  }

  // Calls that had begun and turned out to be damaged. A stream has sent them.
  void drop_damaged(std::span<const ToolCall> calls) {
    OrderedJson kept = OrderedJson::array();
    for (OrderedJson& item : output_)
      if (name_in(item) != "function_call" ||
          std::ranges::count(calls, item["call_id"].get<std::string>(), &ToolCall::id) > 0)
        kept.push_back(std::move(item));
    output_ = std::move(kept);
  }

  // Ends the last item.
  void close_item(const char* status = "completed") {
    if (!std::exchange(open_, false)) return;
    OrderedJson& item = output_.back();
    item["status"] = status;
    if (name_in(item) == "function_call" && !is_json_object(item["arguments"].get<std::string>()))
      item["status"] = "incomplete";
    if (name_in(item) == "function_call") {
      OrderedJson json = with(place(false), "name", item["name"]);
      put("response.function_call_arguments.done", with(json, "arguments", item["arguments"]));
    } else {
      const bool thought = name_in(item) == "reasoning";
      const OrderedJson& part = item["content"][0];
      OrderedJson json = with(place(), "text", part["text"]);
      if (!thought) json["logprobs"] = part["logprobs"];
      put(thought ? "response.reasoning_text.done" : "response.output_text.done", json);
      put("response.content_part.done", with(place(), "part", part));
    }
    put("response.output_item.done", {{"output_index", output_.size() - 1}, {"item", item}});
  }

  const ServedModel& served_;
  AskedResponse& asked_;
  std::vector<std::string> warnings_;
  Reply& reply_;
  const std::string id_ = new_id("resp_");
  const int64_t created_ = unix_time();
  OrderedJson output_ = OrderedJson::array(), logged_ = OrderedJson::array();
  RunningTimings timings_;
  int sequence_ = 0;
  bool begun_ = false, open_ = false;
};

[[noreturn]] void refuse_id(std::string_view id) {
  throw ApiError(404, "invalid_request_error", "response_not_found",
                 "this server has no response " + escaped(id) + ", or dropped it for newer ones");
}

}  // namespace

void answer_openai_responses(Api& api, const Call& call, Reply& reply) {
  Body body(call.body);
  const std::shared_ptr<const ServedModel> served = model_of(api, body.fields());
  AskedResponse asked = read_response(api, served->defaults, body,
                                      [&](const Field& id) { return messages_before(api, id); });
  ResponseReply(*served, asked, body.warnings(), reply).answer(api);
}

void get_openai_response(Api& api, const Call& call, Reply& reply) {
  const auto response = api.responses.response(std::string(call.path));
  if (!response) refuse_id(call.path);
  reply.whole(200, kJsonType, *response);
}

void delete_openai_response(Api& api, const Call& call, Reply& reply) {
  if (!api.responses.remove(std::string(call.path))) refuse_id(call.path);
  reply.whole(200, kJsonType,
              written({{"id", call.path}, {"object", "response"}, {"deleted", true}}));
}

}  // namespace chaski
