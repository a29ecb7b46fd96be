#include "main/api/embeddings.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "main/api/ollama.h"
#include "main/api/openai_parts.h"
#include "main/terminal/base64.h"

namespace chaski {

namespace {

constexpr size_t kMostInputs = 2048;  // as OpenAI

[[noreturn]] void refuse_model(const std::string& name) {
  throw ApiError(400, "invalid_request_error", "unsupported_model",
                 name +
                     " generates text, expected a model that the server was started with for "
                     "embeddings (--embedding-model)",
                 "model");
}

// The model of the field "model", without it the first one for embeddings. Others are refused
// before they are loaded.
std::shared_ptr<const ServedModel> embedding_model(Api& api, const Field& fields) {
  ModelWish wish{.name = ollama_name(fields), .keep = read_keep(fields)};
  const std::vector<ModelState> models = api.models();
  const auto at = std::ranges::find_if(models, [&](const ModelState& model) {
    return wish.name.empty() ? model.embeds : model.name == wish.name;
  });
  if (at == models.end() && wish.name.empty()) refuse_model(models[0].name);
  if (at != models.end() && !at->embeds) refuse_model(at->name);
  if (at != models.end()) wish.name = at->name;
  auto served = api.model(wish);
  if (!served->embed) refuse_model(served->name);
  return served;
}

std::vector<TokenId> tokens_of_input(const ServedModel& served, const Field& input,
                                     bool truncates) {
  const Tokenizer& tokenizer = served.engine().tokenizer();
  if (!input.is_text() && !input.is_list()) input.wrong("a text or a list");
  std::vector<TokenId> tokens = input.is_text() ? tokenizer.encode_whole(input.text())
                                                : input.wholes(0, served.engine().vocab_size() - 1);
  if (tokens.empty()) input.refuse("is empty, expected a text or token ids");
  const auto most = size_t(served.engine().context_length());
  if (tokens.size() > most && !truncates) throw too_long(tokens.size(), served);
  if (tokens.size() <= most) return tokens;
  // The token that closes a text stays: a model may pool its state.
  const TokenId last = tokens.back();
  tokens.resize(most);
  if (input.is_text() && last == tokenizer.eos()) tokens.back() = last;
  return tokens;
}

// One input, or a list of them.
std::vector<std::vector<TokenId>> tokens_of_inputs(const ServedModel& served, const Field& input,
                                                   bool truncates) {
  std::vector<std::vector<TokenId>> all;
  const bool many = input.is_list() && !input.json().empty() && !input.json()[0].is_number();
  if (!many) return {tokens_of_input(served, input, truncates)};
  if (input.json().size() > kMostInputs)
    input.refuse(
        fmt::format("has {} inputs, expected at most {}", input.json().size(), kMostInputs));
  for (const Field& one : input.items()) all.push_back(tokens_of_input(served, one, truncates));
  return all;
}

// The embeddings with length 1.
std::vector<std::vector<float>> unit_embeddings(const ServedModel& served,
                                                std::span<const std::vector<TokenId>> inputs,
                                                const std::atomic<bool>& gone) {
  std::vector<std::vector<float>> all = served.embed(inputs, gone);
  if (all.size() < inputs.size()) throw time_is_over();
  for (std::vector<float>& values : all) {
    double sum = 0;
    for (const float value : values) sum += double(value) * value;
    if (const double length = std::sqrt(sum); length > 0)
      for (float& value : values) value = float(value / length);
  }
  return all;
}

std::string list_text(const std::vector<float>& values) {
  return fmt::format("[{}]", fmt::join(values, ","));
}

size_t sum_of(const std::vector<std::vector<TokenId>>& inputs) {
  size_t sum = 0;
  for (const auto& tokens : inputs) sum += tokens.size();
  return sum;
}

// [LIST, ...] of all inputs.
std::string lists_text(const ServedModel& served, const std::vector<std::vector<TokenId>>& inputs,
                       const std::atomic<bool>& gone) {
  std::string lists;
  const auto embeddings = unit_embeddings(served, inputs, gone);
  for (const auto& values : embeddings) lists += (lists.empty() ? "" : ",") + list_text(values);
  return "[" + lists + "]";
}

}  // namespace

void answer_openai_embeddings(Api& api, const Call& call, Reply& reply) {
  Body body(call.body);
  const Field fields = body.fields();
  const auto served = embedding_model(api, fields);
  const auto inputs = tokens_of_inputs(*served, fields["input"], false);
  const auto form = fields.find("encoding_format");
  const bool coded = form && form->one_of({"float", "base64"}) == "base64";
  expect_only(fields, "dimensions", served->engine().hidden_size());
  fields.accept({"user"});
  std::string data;
  const auto embeddings = unit_embeddings(*served, inputs, reply.gone());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::vector<float>& values = embeddings[i];
    const std::string_view bytes(reinterpret_cast<const char*>(values.data()),
                                 values.size() * sizeof(float));
    data += fmt::format(R"({}{{"object":"embedding","index":{},"embedding":{}}})", i > 0 ? "," : "",
                        i, coded ? "\"" + base64(bytes) + "\"" : list_text(values));
  }
  const size_t tokens = sum_of(inputs);
  OrderedJson json = {{"object", "list"},
                      {"data", nullptr},
                      {"model", served->name},
                      {"usage", {{"prompt_tokens", tokens}, {"total_tokens", tokens}}}};
  if (const auto warnings = body.warnings(); !warnings.empty()) json["warnings"] = warnings;
  std::string text = written(json);
  put_member(text, "data", "[" + data + "]");
  reply.whole(200, kJsonType, text);
}

void answer_ollama_embed(Api& api, const Call& call, Reply& reply) {
  const auto start = std::chrono::steady_clock::now();
  const auto since_start = [&] {
    return std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count();
  };
  Body body(call.body);
  const Field fields = body.fields();
  const auto served = embedding_model(api, fields);
  const auto loaded = since_start();
  const auto truncate = fields.find("truncate");
  const auto inputs = tokens_of_inputs(*served, fields["input"], !truncate || truncate->flag());
  expect_only(fields, "dimensions", served->engine().hidden_size());
  fields.accept({"options"});
  const std::string lists = lists_text(*served, inputs, reply.gone());
  OrderedJson json = {{"model", served->name},
                      {"embeddings", nullptr},
                      {"total_duration", since_start()},
                      {"load_duration", loaded},
                      {"prompt_eval_count", sum_of(inputs)}};
  if (const auto warnings = body.warnings(); !warnings.empty()) json["warnings"] = warnings;
  std::string text = written(json);
  put_member(text, "embeddings", lists);
  reply.whole(200, kJsonType, text);
}

void answer_ollama_embeddings(Api& api, const Call& call, Reply& reply) {
  Body body(call.body);
  const Field fields = body.fields();
  const auto served = embedding_model(api, fields);
  const std::vector<std::vector<TokenId>> inputs = {
      tokens_of_input(*served, fields["prompt"], true)};
  std::string text = written({{"embedding", nullptr}});
  put_member(text, "embedding", list_text(unit_embeddings(*served, inputs, reply.gone())[0]));
  reply.whole(200, kJsonType, text);
}

}  // namespace chaski
