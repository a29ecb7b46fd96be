#include "main/api/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "engine/grammar/gbnf.h"
#include "engine/grammar/regex.h"
#include "engine/grammar/schema/json_schema.h"
#include "main/flags/flags.h"  // for kMaxCount
#include "main/flags/values.h"

namespace chaski {

namespace {

constexpr double kMostBias = 1e6;
constexpr int kMostStops = 64;

// chaski's name of a parameter, and the names of OpenAI and llama.cpp.
constexpr std::pair<const char*, const char*> kOtherNames[] = {
    {"temp", "temperature"},
    {"typical", "typical_p"},
    {"dynatemp_exp", "dynatemp_exponent"},
    {"mirostat_ent", "mirostat_tau"},
    {"mirostat_lr", "mirostat_eta"},
    {"dry_sequence_breaker", "dry_sequence_breakers"},
};

// The field by one of these names; one that is given twice is refused.
std::optional<Field> only_one(const Field& fields, const std::vector<std::string>& names) {
  std::optional<Field> found;
  for (const std::string& name : names)
    if (const std::optional<Field> field = fields.find(name)) {
      if (found)
        field->refuse("has the same meaning as " + found->path() + ", expected one of them");
      found = field;
    }
  return found;
}

void take(const Field& field, int& value, const Range& range) {
  value =
      field.whole(int(range.least), range.most < double(kMaxCount) ? int(range.most) : kMaxCount);
}
void take(const Field& field, double& value, const Range& range) { value = field.number(range); }
void take(const Field& field, std::vector<std::string>& value, const Range&) {
  value = field.texts();
}

// {"42": 1.5}, or llama.cpp's [[42, 1.5], [43, false]]. A text instead of an id means all
// tokens of the text.
void read_bias(const Field& field, AnswerSettings& settings) {
  const auto number = [](const Field& value) {
    const bool never = value.is_flag() && !value.flag();
    return never ? -INFINITY : value.number(from_to(-kMostBias, kMostBias));
  };
  const auto add_text = [&](const std::string& text, const Field& value) {
    if (text.empty()) value.refuse("is of an empty text, expected a token id or a text");
    settings.text_bias.emplace_back(text, number(value));
  };
  auto& bias = settings.request.sampling.bias;
  if (field.is_object()) {
    for (const auto& [name, value] : field.members())
      if (const std::optional<int> token = number_of<int>(name); token && *token >= 0)
        bias.emplace_back(*token, number(value));
      else
        add_text(name, value);
    return;
  }
  if (!field.is_list()) field.wrong("an object of token ids and numbers, or a list of pairs");
  for (const Field& pair : field.items()) {
    const std::vector<Field> both = pair.items();
    if (both.size() != 2) pair.wrong("a pair of a token id and a number");
    if (both[0].is_text())
      add_text(both[0].text(), both[1]);
    else
      bias.emplace_back(both[0].whole(0), number(both[1]));
  }
}

// A grammar of a field; its errors name the path of the field.
template <class Parse>
void constrain(const Field& field, const std::string& text, AnswerSettings& settings, Parse parse) {
  if (settings.rules)
    field.refuse("is given together with " + settings.rules_field + ", expected one of them");
  try {
    settings.rules = parse(GrammarSource{field.path(), text, Exit::usage});
  } catch (const Error& error) {
    throw ApiError(400, "invalid_request_error", "invalid_value", error.what(), field.path());
  }
  settings.rules_field = field.path();
}

// The parameters of the sampler, `ban` and `samplers`.
void read_sampling(const Field& fields, SamplerOptions& sampling) {
  each_parameter(sampling, [&](auto& part, const auto& parameter) {
    if (const auto field = only_one(fields, names_of_parameter(parameter.flag)))
      take(*field, part.*parameter.value, parameter.range);
  });
  if (const auto field = fields.find("ban")) {
    sampling.banned = field->texts();
    if (std::ranges::count(sampling.banned, "") > 0) field->refuse("has an empty text");
  }
  if (const auto field = fields.find("samplers")) {
    std::string list;
    for (const std::string& step : field->texts()) list += (list.empty() ? "" : ",") + step;
    try {
      sampling.steps = sampler_steps(list, field->path());
    } catch (const Error& error) {
      throw ApiError(400, "invalid_request_error", "invalid_value", error.what(), field->path());
    }
  }
  try {
    sampling.check();
  } catch (const Error& error) {
    throw ApiError(400, "invalid_request_error", "invalid_value", error.what());
  }
}

}  // namespace

ContextPolicy context_policy_of(const std::string& name) {
  return name == "shift"   ? ContextPolicy::shift
         : name == "sinks" ? ContextPolicy::sinks
                           : ContextPolicy::stop;
}

std::vector<std::string> names_of_parameter(const std::string& flag) {
  std::string name = flag.substr(2);
  std::replace(name.begin(), name.end(), '-', '_');
  std::vector<std::string> names = {name};
  for (const auto& [own, other] : kOtherNames)
    if (name == own) names.emplace_back(other);
  return names;
}

AnswerSettings read_settings(const Field& fields, const DefaultSettings& defaults) {
  AnswerSettings out;
  out.request = defaults.request;
  read_sampling(fields, out.request.sampling);
  if (const auto field = fields.find("logit_bias")) {
    out.request.sampling.bias.clear();
    read_bias(*field, out);
  }
  const auto seed = fields.find("seed");
  if (const auto given = seed ? seed->unsigned_whole() : std::nullopt)
    out.request.sampling.seed = *given;
  else if (seed || defaults.random_seed)
    out.request.sampling.seed = std::random_device()(), out.random_seed = true;
  if (const auto field = fields.find("stop")) read_stops(*field, out.request);
  read_most_tokens(fields, {"max_tokens", "max_completion_tokens", "n_predict"}, out);
  if (const auto field = fields.find("context_policy"))
    out.request.context_policy = context_policy_of(field->one_of({"stop", "shift", "sinks"}));
  if (const auto field = fields.find("grammar"); field && field->text() != "")
    constrain(*field, field->text(), out, parse_gbnf);
  if (const auto field = fields.find("json_schema")) constrain_to_schema(*field, out);
  if (const auto field = fields.find("regex")) constrain(*field, field->text(), out, parse_regex);
  if (const auto field = fields.find("ignore_eos")) {
    out.request.ignore_end = field->flag();
    if (out.request.ignore_end && out.rules)
      field->refuse("is true together with " + out.rules_field + ", expected one of them");
  }
  return out;
}

void read_stops(const Field& field, RequestSettings& settings) {
  for (const std::string& text : field.texts()) {
    if (text.empty()) field.refuse("has an empty text, expected a text that ends the answer");
    settings.stop.push_back(text);
  }
  if (settings.stop.size() > size_t(kMostStops))
    field.refuse(
        fmt::format("has {} texts, expected at most {}", settings.stop.size(), kMostStops));
}

void read_most_tokens(const Field& fields, std::initializer_list<const char*> names,
                      AnswerSettings& settings) {
  if (const auto field = only_one(fields, {names.begin(), names.end()}))
    settings.request.max_tokens = field->whole(-1), settings.most_tokens_field = field->path();
}

void constrain_to_object(const Field& field, AnswerSettings& settings) {
  constrain(field, R"({"type": "object"})", settings, parse_json_schema);
}

void constrain_to_schema(const Field& schema, AnswerSettings& settings) {
  const OrderedJson& json = schema.whole_json();
  if (!json.is_object() && !json.is_boolean()) schema.wrong("a JSON schema");
  constrain(schema, written(json), settings, parse_json_schema);
}

void read_response_format(const Field& format, AnswerSettings& settings) {
  const std::string type = format["type"].one_of({"text", "json_object", "json_schema"});
  if (type == "text") return;
  if (const auto schema = format.find("schema")) {
    format.accept({"name", "description", "strict"});
    return constrain_to_schema(*schema, settings);
  }
  if (type == "json_object") return constrain_to_object(format, settings);
  const Field inner = format["json_schema"];
  inner.accept({"name", "description", "strict"});
  constrain_to_schema(inner["schema"], settings);
}

}  // namespace chaski
