#include "main/api/llama_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <utility>

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

// The text that /completion reads as these tokens: without BOS, and for spm without the space that
// encode_prompt() adds to each text that begins or follows a control token.
std::string prompt_text(const Tokenizer& tokenizer, std::span<const TokenId> tokens) {
  if (tokenizer.adds_bos() && !tokens.empty() && tokens[0] == tokenizer.bos())
    tokens = tokens.subspan(1);
  std::string text;
  while (!tokens.empty()) {
    const auto control =
        std::ranges::find_if(tokens, [&](TokenId token) { return tokenizer.is_control(token); });
    const auto plain = size_t(control - tokens.begin());
    text += tokenizer.decode(tokens.first(plain));
    if (control != tokens.end()) text += tokenizer.raw(*control);
    tokens = tokens.subspan(std::min(plain + 1, tokens.size()));
  }
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

// The settings as llama-server names them.
OrderedJson settings_json(const RequestSettings& settings) {
  OrderedJson values = {
      {"n_predict", settings.max_tokens},  {"max_tokens", settings.max_tokens},
      {"seed", settings.sampling.seed},    {"stop", settings.stop},
      {"ignore_eos", settings.ignore_end}, {"n_probs", settings.scored.value_or(0)}};
  each_parameter(settings.sampling, [&](const auto& part, const auto& parameter) {
    values[names_of_parameter(parameter.flag).back()] = part.*parameter.value;
  });
  OrderedJson biases = OrderedJson::array();
  for (const auto& [token, bias] : settings.sampling.bias) {
    // As in a request: false is a token that is never drawn, and JSON has no infinite numbers.
    const OrderedJson value = std::isinf(bias) ? OrderedJson(false) : OrderedJson(bias);
    biases.push_back({{"bias", value}, {"token", token}});
  }
  values["logit_bias"] = biases;
  OrderedJson samplers = OrderedJson::array();
  for (const SamplerStep step : settings.sampling.steps) samplers.push_back(name_of(step));
  values["samplers"] = samplers;
  return values;
}

struct LlamaAsked {
  std::vector<std::vector<TokenId>> prompts;
  AnswerSettings settings;
  StreamChoice stream;
  bool keeps_prompts = false;       // a shift of the context keeps each whole
  bool tokens = false;              // the response has them
  std::vector<std::string> fields;  // "generation_settings/seed": only these; empty: all
};

// /completion and /infill: an answer to each prompt, whole or streamed.
class LlamaReply {
 public:
  LlamaReply(const ServedModel& served, const LlamaAsked& asked, Reply& reply)
      : served_(served), asked_(asked), reply_(reply), parts_(asked.prompts.size()) {}

  void answer(const std::vector<std::string>& warnings) {
    std::vector<std::string> texts(asked_.prompts.size());
    answer_all(int(texts.size()), [&](int i) {
      const size_t text = size_t(i);
      AnswerSettings settings = asked_.settings;
      if (asked_.keeps_prompts) settings.request.keep = int(asked_.prompts[text].size());
      const GenerateResult result =
          complete_text(served_, {asked_.prompts[text], settings}, 0, reply_.gone(),
                        [&](const ChatEvent& event) { take(text, event); });
      texts[text] = whole(text, result, warnings);
      if (!asked_.stream.stream) return;
      const std::scoped_lock lock(mutex_);
      begin();
      reply_.part("data: " + texts[text] + "\n\n");
    });
    if (asked_.stream.stream) return reply_.end();
    reply_.whole(200, kJsonType,
                 texts.size() == 1 ? texts[0] : fmt::format("[{}]", fmt::join(texts, ",")));
  }

 private:
  static constexpr const char* kLogged = "completion_probabilities";

  std::string whole(size_t text, const GenerateResult& result,
                    std::vector<std::string> warnings) const {
    const bool streamed = asked_.stream.stream;
    note_cut(result, warnings);
    const Tokenizer& tokenizer = served_.engine().tokenizer();
    OrderedJson json = {{"index", text},
                        {"content", streamed ? "" : result.text},
                        {"tokens", OrderedJson::array()},
                        {"id_slot", -1},
                        {"stop", true},
                        {"model", served_.name},
                        {"tokens_predicted", result.tokens.size()},
                        {"tokens_evaluated", result.prompt_tokens},
                        {"generation_settings", settings_json(asked_.settings.request)},
                        {"prompt", text_of(tokenizer, asked_.prompts[text])},
                        {"has_new_line", result.text.find('\n') != std::string::npos},
                        {"truncated", result.dropped_tokens > 0 || result.finish == Finish::full},
                        {"stop_type", stop_type(result.finish)},
                        {"tokens_cached", size_t(result.prompt_tokens) + result.tokens.size()},
                        {"timings", timings_json(result)}};
    if (asked_.tokens && !streamed) json["tokens"] = result.tokens;
    const bool logged = !streamed && !result.log_probabilities.empty();
    if (logged) json[kLogged] = nullptr;
    add_remarks(json, asked_.settings.request.sampling.seed, warnings);
    if (!asked_.fields.empty() && !streamed) json = chosen(json);
    std::string all = written(json);
    if (logged && json.contains(kLogged)) put_member(all, kLogged, logged_text(result));
    return all;
  }
  // The members that the request names, by their paths.
  OrderedJson chosen(const OrderedJson& json) const {
    OrderedJson out = OrderedJson::object();
    for (const std::string& path : asked_.fields) {
      const OrderedJson* at = &json;
      for (size_t begin = 0; at && begin <= path.size();) {
        const size_t end = std::min(path.find('/', begin), path.size());
        const std::string name = path.substr(begin, end - begin);
        at = at->is_object() && at->contains(name) ? &(*at)[name] : nullptr;
        begin = end + 1;
      }
      if (at) out[path] = *at;
    }
    return out;
  }

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

  struct Part {
    std::vector<TokenId> pending;  // drawn, in no part yet
    OrderedJson logged = OrderedJson::array();
    RunningTimings timings;
  };

  void begin() {
    if (!std::exchange(begun_, true)) reply_.begin(kEventStream);
  }
  void take(size_t text, const ChatEvent& event) {
    using Kind = ChatEvent::Kind;
    if (!asked_.stream.stream || event.kind == Kind::prompt) return;
    const std::scoped_lock lock(mutex_);
    begin();
    Part& part = parts_[text];
    part.timings.take(event);
    if (event.kind == Kind::reading && asked_.stream.progress) {
      OrderedJson json = part_json(text, "");
      json["prompt_progress"] = part.timings.progress();
      reply_.part(sent_event(json));
    }
    if (event.kind == Kind::token) {
      part.pending.push_back(event.token);
      if (event.log_probabilities)
        part.logged.push_back(log_probability_json(served_.engine().tokenizer(), event.token,
                                                   *event.log_probabilities));
    }
    if (event.kind == Kind::text) reply_.part(sent_event(part_json(text, event.text)));
  }
  OrderedJson part_json(size_t index, std::string_view text) {
    Part& part = parts_[index];
    OrderedJson json = {{"index", index},
                        {"content", text},
                        {"tokens", std::exchange(part.pending, {})},
                        {"stop", false},
                        {"id_slot", -1},
                        {"tokens_predicted", part.timings.drawn()},
                        {"tokens_evaluated", asked_.prompts[index].size()}};
    if (!part.logged.empty()) json[kLogged] = std::exchange(part.logged, OrderedJson::array());
    if (asked_.stream.timings) json["timings"] = part.timings.json();
    return json;
  }

  const ServedModel& served_;
  const LlamaAsked& asked_;
  Reply& reply_;
  std::mutex mutex_;  // guards what follows, and the reply
  std::vector<Part> parts_;
  bool begun_ = false;
};

void answer_text(Api& api, Body& body, const ServedModel& served, LlamaAsked asked, Reply& reply) {
  const Field fields = body.fields();
  asked.settings = read_settings(fields, served.defaults);
  RequestSettings& settings = asked.settings.request;
  if (const auto most = fields.find("n_probs"))
    if (const int n = most->whole(0, kMostProbabilities); n > 0) settings.scored = n;
  if (const auto keep = fields.find("n_keep")) {
    const int n = keep->whole(-1);
    asked.keeps_prompts = n < 0;
    if (n >= 0) settings.keep = n;
  }
  limit_tokens(api, asked.settings);
  asked.stream = read_stream(fields);
  if (const auto tokens = fields.find("return_tokens")) asked.tokens = tokens->flag();
  if (const auto chosen = fields.find("response_fields")) asked.fields = chosen->texts();
  fields.accept({"cache_prompt", "id_slot", "n_discard", "n_indent"});
  expect_only(fields, "post_sampling_probs", false);
  for (const char* name : {"min_keep", "t_max_predict_ms"}) expect_only(fields, name, 0);
  expect_only(fields, "n", 1);
  LlamaReply(served, asked, reply).answer(body.warnings());
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
  const Field prompt = body.fields()["prompt"];
  const Spelled as = spelled_in(body.fields(), Spelled::control);
  LlamaAsked asked;
  if (is_one_prompt(prompt)) {
    asked.prompts = {tokens_of(*served, prompt, as)};
  } else {
    expect_few_texts(prompt.json().size());
    for (const Field& one : prompt.items()) asked.prompts.push_back(tokens_of(*served, one, as));
  }
  answer_text(api, body, *served, std::move(asked), reply);
}

void answer_infill(Api& api, const Call& call, Reply& reply) {
  Body body(call.body);
  const auto served = model_of(api, body.fields());
  LlamaAsked asked;
  asked.prompts = {infill_prompt(*served, body.fields())};
  answer_text(api, body, *served, std::move(asked), reply);
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
  request.thinks = served->defaults.thinks;
  request.messages = read_messages(body.fields()["messages"]);
  read_tools(body.fields(), request);
  read_thinking(body.fields(), body, request);
  const auto open = body.fields().find("add_generation_prompt");
  const auto conversation = conversation_of(*served, request);
  try {
    const auto tokens = open && !open->flag() ? conversation->tokens() : conversation->prompt();
    reply.whole(200, kJsonType,
                written({{"prompt", prompt_text(served->engine().tokenizer(), tokens)}}));
  } catch (const Error& error) {
    throw ApiError(400, "invalid_request_error", "invalid_value", error.what(), "messages");
  }
}

void answer_props(Api& api, const Call& call, Reply& reply) {
  const ModelHeader header = api.header(std::string(call.model));
  const ModelFacts& facts = header.state.facts;
  OrderedJson values = settings_json(header.defaults.request);
  if (header.defaults.random_seed) values["seed"] = -1;
  const std::string text = header.meta->str("tokenizer.chat_template", "");
  reply.whole(
      200, kJsonType,
      written({{"default_generation_settings", {{"n_ctx", facts.context}, {"params", values}}},
               {"total_slots", api.most_running},
               {"model_alias", header.state.name},
               {"model_path", facts.path},
               {"model_status", word_of(header.state.kind)},
               {"chat_template", text},
               {"modalities", {{"vision", false}, {"audio", false}}},
               {"build_info", std::string("chaski-") + kVersion}}));
}

std::span<const Endpoint> llama_server_routes() {
  static const Endpoint kRoutes[] = {
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
