// How an answer is generated, from the fields of a request: the sampler's parameters by the names
// of chaski's flags (top_k for --top-k) and of OpenAI and llama.cpp, limits, and the grammar.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/grammar/rules.h"
#include "main/api/fields.h"

namespace chaski {

// What holds for a field that a request does not have: the flags of the server.
struct DefaultSettings {
  RequestSettings request;
  bool random_seed = true;  // false: request.sampling.seed
  bool thinks = true;
};

struct AnswerSettings {
  RequestSettings request;
  bool random_seed = false;                      // request.sampling.seed was drawn
  std::shared_ptr<const Rules> rules;            // the text fits them; null: any text
  std::string rules_field;                       // the path of the field that gave them
  std::string most_tokens_field = "max_tokens";  // the path of the one that gave max_tokens
  // A bias of all tokens of a text. The tokens are those of the model that answers.
  std::vector<std::pair<std::string, double>> text_bias;
};

// Of --context-policy.
ContextPolicy context_policy_of(const std::string& name);

// Names that other programs use for a parameter with the flag `flag`, after its own one.
std::vector<std::string> names_of_parameter(const std::string& flag);

// Reads all settings of a request, except those that a dialect names itself (logprobs,
// response_format). Without a seed a random one is drawn. Throws ApiError.
AnswerSettings read_settings(const Field& fields, const DefaultSettings& defaults);

// Adds texts that end the answer.
void read_stops(const Field& field, RequestSettings& settings);
// The most tokens to generate, if one of these fields is there; -1: no limit.
void read_most_tokens(const Field& fields, std::initializer_list<const char*> names,
                      AnswerSettings& settings);
// OpenAI's "response_format", or "text.format" of its newer interface. The schema of the latter
// has no object around it.
void read_response_format(const Field& format, AnswerSettings& settings);
// Any JSON object, or JSON of a schema.
void constrain_to_object(const Field& field, AnswerSettings& settings);
void constrain_to_schema(const Field& schema, AnswerSettings& settings);

}  // namespace chaski
