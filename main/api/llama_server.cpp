#include "main/api/llama_server.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/sampling/steps.h"
#include "main/api/openai.h"
#include "main/flags/manual.h"

namespace chaski {

namespace {

constexpr int kMostProbabilities = 100;  // n_probs

// The control tokens around the text before and after a hole, by family.
struct HoleTokens {
  const char *before, *after, *hole;
};
constexpr HoleTokens kHoles[] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},  // Qwen2.5-Coder, CodeGemma
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},        // StarCoder
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},        // SantaCoder
    {"▁<PRE>", "▁<SUF>", "▁<MID>"},                          // Code Llama
    {"[PREFIX]", "[SUFFIX]", "[MIDDLE]"},                    // Codestral
    {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"},  // DeepSeek Coder
};

std::string text_of(const Tokenizer& tokenizer, std::span<const TokenId> tokens) {
  std::string text;
  for (const TokenId token : tokens)
    text += tokenizer.is_control(token) ? tokenizer.raw(token) : tokenizer.piece(token);
  return text;
}

std::string text_or_nothing(const Field& fields, const char* name) {
  const auto field = fields.find(name);
  return field ? field->text() : "";
}

std::vector<TokenId> infill_prompt(const ServedModel& served, const Field& fields) {
  std::string before;
  if (const auto extra = fields.find("input_extra"))
    for (const Field& file : extra->items())
      before += text_or_nothing(file, "filename") + "\n" + file["text"].text() + "\n";
  before += text_or_nothing(fields, "input_prefix");
  return hole_prompt(served, before, text_or_nothing(fields, "input_suffix"),
                     text_or_nothing(fields, "prompt"));
}

// /completion and /infill: one answer, whole or streamed.
class LlamaReply {
 public:
  LlamaReply(const ServedModel& served, TextRequest request, StreamChoice stream, bool tokens,
             Reply& reply)
      : served_(served),
        request_(std::move(request)),
        stream_(stream),
        tokens_wanted_(tokens),
        reply_(reply) {}

  void answer(const std::vector<std::string>& warnings) {
    const GenerateResult result =
        complete_text(served_, request_, 0, reply_.gone(), [&](const ChatEvent& e) { take(e); });
    OrderedJson json = {{"index", 0},
                        {"content", stream_.stream ? "" : result.text},
                        {"tokens", OrderedJson::array()},
                        {"id_slot", -1},
                        {"stop", true},
                        {"model", served_.name},
                        {"tokens_predicted", result.tokens.size()},
                        {"tokens_evaluated", result.prompt_tokens},
                        {"has_new_line", result.text.find('\n') != std::string::npos},
                        {"truncated", result.dropped_tokens > 0},
                        {"stop_type", stop_type(result.finish)},
                        {"tokens_cached", size_t(result.prompt_tokens) + result.tokens.size()},
                        {"timings", timings_json(result)}};
    if (tokens_wanted_ && !stream_.stream) json["tokens"] = result.tokens;
    const bool logged = !stream_.stream && !result.log_probabilities.empty();
    if (logged) json[kLogged] = nullptr;
    add_remarks(json, request_.settings.request.sampling.seed, warnings);
    if (!stream_.stream) {
      std::string text = written(json);
      if (logged) put_member(text, kLogged, logged_text(result));
      return reply_.whole(200, kJsonType, text);
    }
    begin();
    reply_.part(sent_event(json));
    reply_.end();
  }

 private:
  static constexpr const char* kLogged = "completion_probabilities";

  std::string logged_text(const GenerateResult& result) const {
    std::string text = "[";
    for (size_t i = 0; i < result.log_probabilities.size(); ++i) {
      if (i > 0) text += ',';
      text += written(log_probability_json(served_.engine().tokenizer(), result.tokens[i],
                                           result.log_probabilities[i]));
    }
    return text + "]";
  }
  static const char* stop_type(Finish finish) {
    return finish == Finish::end           ? "eos"
           : finish == Finish::stop        ? "word"
           : finish == Finish::interrupted ? "none"
                                           : "limit";
  }
  void begin() {
    if (!std::exchange(begun_, true)) reply_.begin(kEventStream);
  }
  void take(const ChatEvent& event) {
    using Kind = ChatEvent::Kind;
    if (!stream_.stream || event.kind == Kind::prompt) return;
    begin();
    if (event.kind == Kind::reading && stream_.progress) {
      if (!cached_) cached_ = event.count;
      OrderedJson json = part("");
      json["prompt_progress"] = progress_json(event.count, event.all, *cached_, 0);
      reply_.part(sent_event(json));
    }
    if (event.kind == Kind::token) {
      ++drawn_;
      pending_.push_back(event.token);
      if (event.log_probabilities)
        logged_.push_back(log_probability_json(served_.engine().tokenizer(), event.token,
                                               *event.log_probabilities));
    }
    if (event.kind == Kind::text) reply_.part(sent_event(part(event.text)));
  }
  OrderedJson part(std::string_view text) {
    OrderedJson json = {{"index", 0},
                        {"content", text},
                        {"tokens", std::exchange(pending_, {})},
                        {"stop", false},
                        {"id_slot", -1},
                        {"tokens_predicted", drawn_},
                        {"tokens_evaluated", request_.prompt.size()}};
    if (!logged_.empty()) json[kLogged] = std::exchange(logged_, OrderedJson::array());
    return json;
  }

  const ServedModel& served_;
  const TextRequest request_;
  const StreamChoice stream_;
  const bool tokens_wanted_;
  Reply& reply_;
  std::vector<TokenId> pending_;  // drawn, in no part yet
  OrderedJson logged_ = OrderedJson::array();
  std::optional<size_t> cached_;
  int drawn_ = 0;
  bool begun_ = false;
};

void answer_text(Api& api, Body& body, const ServedModel& served, std::vector<TokenId> prompt,
                 Reply& reply) {
  const Field fields = body.fields();
  TextRequest request{std::move(prompt), read_settings(fields, served.defaults)};
  if (const auto most = fields.find("n_probs"))
    if (const int n = most->whole(0, kMostProbabilities); n > 0)
      request.settings.request.scored = n;
  if (const auto keep = fields.find("n_keep")) {
    const int n = keep->whole(-1);
    request.settings.request.keep = n < 0 ? int(request.prompt.size()) : n;
  }
  limit_tokens(api, request.settings);
  const StreamChoice stream = read_stream(fields);
  const auto tokens = fields.find("return_tokens");
  const bool wanted = tokens && tokens->flag();
  fields.accept({"cache_prompt", "id_slot", "n_discard", "n_indent"});
  for (const char* name : {"post_sampling_probs", "timings_per_token"})
    expect_only(fields, name, false);
  for (const char* name : {"min_keep", "t_max_predict_ms"}) expect_only(fields, name, 0);
  expect_only(fields, "n", 1);
  LlamaReply(served, std::move(request), stream, wanted, reply).answer(body.warnings());
}

}  // namespace

std::vector<TokenId> hole_prompt(const ServedModel& served, const std::string& before,
                                 const std::string& after, const std::string& begun) {
  const Tokenizer& t = served.engine().tokenizer();
  const auto at = std::ranges::find_if(kHoles, [&](const HoleTokens& hole) {
    return t.find(hole.before) && t.find(hole.after) && t.find(hole.hole);
  });
  if (at == std::end(kHoles))
    throw ApiError(400, "invalid_request_error", "unsupported_model",
                   served.name +
                       " has no tokens that mark a hole in a text, expected a model "
                       "trained to fill in, such as Qwen2.5-Coder",
                   "model");
  std::vector<TokenId> prompt;
  if (t.adds_bos() && t.bos() >= 0) prompt.push_back(t.bos());
  const auto add = [&](const char* mark, const std::string& text) {
    prompt.push_back(*t.find(mark));
    const std::vector<TokenId> tokens = t.encode(text);
    prompt.insert(prompt.end(), tokens.begin(), tokens.end());
  };
  add(at->before, before), add(at->after, after), add(at->hole, begun);
  return prompt;
}

void answer_llama_completion(Api& api, const Call& call, Reply& reply) {
  Body body(call.body);
  const auto served = model_of(api, body.fields());
  answer_text(api, body, *served, tokens_of(*served, body.fields()["prompt"]), reply);
}

void answer_infill(Api& api, const Call& call, Reply& reply) {
  Body body(call.body);
  const auto served = model_of(api, body.fields());
  answer_text(api, body, *served, infill_prompt(*served, body.fields()), reply);
}

void answer_tokenize(Api& api, const Call& call, Reply& reply) {
  Body body(call.body);
  const Field fields = body.fields();
  const auto served = model_of(api, fields);
  const Tokenizer& t = served->engine().tokenizer();
  const std::string text = fields["content"].text();
  const auto flag = [&](const char* name, bool otherwise) {
    const auto field = fields.find(name);
    return field ? field->flag() : otherwise;
  };
  std::vector<TokenId> tokens =
      flag("parse_special", true) ? t.encode_with_control(text) : t.encode(text);
  if (flag("add_special", false) && t.adds_bos()) tokens.insert(tokens.begin(), t.bos());
  OrderedJson list = OrderedJson::array();
  const bool pieces = flag("with_pieces", false);
  for (const TokenId token : tokens)
    list.push_back(pieces ? OrderedJson{{"id", token}, {"piece", t.piece(token)}}
                          : OrderedJson(token));
  reply.whole(200, kJsonType, written({{"tokens", list}}));
}

void answer_detokenize(Api& api, const Call& call, Reply& reply) {
  Body body(call.body);
  const auto served = model_of(api, body.fields());
  const std::vector<TokenId> tokens =
      body.fields()["tokens"].wholes(0, served->engine().vocab_size() - 1);
  reply.whole(200, kJsonType, written({{"content", served->engine().tokenizer().decode(tokens)}}));
}

void answer_apply_template(Api& api, const Call& call, Reply& reply) {
  Body body(call.body);
  const auto served = model_of(api, body.fields());
  ChatRequest request;
  request.messages = read_messages(body.fields()["messages"]);
  read_tools(body.fields(), request);
  read_thinking(body.fields(), body, request);
  const auto conversation = conversation_of(*served, request);
  try {
    const auto tokens = conversation->format().render(conversation->messages(), true);
    reply.whole(200, kJsonType,
                written({{"prompt", text_of(served->engine().tokenizer(), tokens)}}));
  } catch (const Error& error) {
    throw ApiError(400, "invalid_request_error", "invalid_value", error.what(), "messages");
  }
}

void answer_props(Api& api, const Call&, Reply& reply) {
  const auto served = api.model("");
  const Engine& engine = served->engine();
  const RequestSettings& settings = served->defaults.request;
  OrderedJson values = {{"n_predict", settings.max_tokens}, {"stop", settings.stop}};
  each_parameter(settings.sampling, [&](const auto& part, const auto& parameter) {
    values[names_of_parameter(parameter.flag).back()] = part.*parameter.value;
  });
  OrderedJson samplers = OrderedJson::array();
  for (const SamplerStep step : settings.sampling.steps) samplers.push_back(name_of(step));
  values["samplers"] = samplers;
  const std::string text = engine.meta().str("tokenizer.chat_template", "");
  reply.whole(200, kJsonType,
              written({{"default_generation_settings",
                        {{"n_ctx", engine.context_length()}, {"params", values}}},
                       {"total_slots", api.most_running},
                       {"model_alias", served->name},
                       {"model_path", engine.path()},
                       {"chat_template", text},
                       {"modalities", {{"vision", false}, {"audio", false}}},
                       {"build_info", std::string("chaski-") + kVersion}}));
}

std::span<const Route> llama_server_routes() {
  static const Route kRoutes[] = {
      {"POST", "/completion", answer_llama_completion, kOpenAi},
      {"POST", "/completions", answer_llama_completion, kOpenAi},
      {"POST", "/infill", answer_infill, kOpenAi},
      {"POST", "/tokenize", answer_tokenize, kOpenAi, false},
      {"POST", "/detokenize", answer_detokenize, kOpenAi, false},
      {"POST", "/apply-template", answer_apply_template, kOpenAi, false},
      {"GET", "/props", answer_props, kOpenAi, false},
  };
  return kRoutes;
}

}  // namespace chaski
