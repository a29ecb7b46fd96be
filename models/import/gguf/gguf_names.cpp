#include "models/import/gguf/gguf_names.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "models/architecture.h"
#include "models/import/affix.h"

namespace chaski {
namespace {

constexpr std::string_view kWeight = ".weight", kBias = ".bias", kScale = ".scale",
                           kTheirLayer = "blk.", kOurLayer = "layer.";

struct Word {
  std::string_view ours, theirs;
  Kind kind;
};

// tokenizer.kind is missing here because its values differ as well (tokenizer_kinds.h). Keys that
// GGUF has no word for are stored under "chaski.<key>".
constexpr std::array kWords{
    Word{"general.architecture", "general.architecture", Kind::text},
    Word{"general.name", "general.name", Kind::text},
    Word{"tokenizer.pre", "tokenizer.ggml.pre", Kind::text},
    Word{"tokenizer.tokens", "tokenizer.ggml.tokens", Kind::texts},
    Word{"tokenizer.scores", "tokenizer.ggml.scores", Kind::numbers},
    Word{"tokenizer.types", "tokenizer.ggml.token_type", Kind::integers},
    Word{"tokenizer.merges", "tokenizer.ggml.merges", Kind::texts},
    Word{"tokenizer.bos_id", "tokenizer.ggml.bos_token_id", Kind::integer},
    Word{"tokenizer.eos_id", "tokenizer.ggml.eos_token_id", Kind::integer},
    Word{"tokenizer.eot_id", "tokenizer.ggml.eot_token_id", Kind::integer},
    Word{"tokenizer.unk_id", "tokenizer.ggml.unknown_token_id", Kind::integer},
    Word{"tokenizer.pad_id", "tokenizer.ggml.padding_token_id", Kind::integer},
    Word{"tokenizer.add_bos", "tokenizer.ggml.add_bos_token", Kind::flag},
    Word{"tokenizer.add_eos", "tokenizer.ggml.add_eos_token", Kind::flag},
    Word{"tokenizer.add_space_prefix", "tokenizer.ggml.add_space_prefix", Kind::flag},
    Word{"tokenizer.squeeze", "tokenizer.ggml.remove_extra_whitespaces", Kind::flag},
    Word{"tokenizer.charsmap", "tokenizer.ggml.precompiled_charsmap", Kind::integers},
    Word{"tokenizer.normalizer", "chaski.tokenizer.normalizer", Kind::texts},
    Word{"tokenizer.every_space", "chaski.tokenizer.every_space", Kind::flag},
    Word{"tokenizer.prefix_once", "chaski.tokenizer.prefix_once", Kind::flag},
    Word{"tokenizer.chat_template", "tokenizer.chat_template", Kind::text},
    Word{"tokenizer.pre_patterns", "chaski.tokenizer.pre_patterns", Kind::texts},
    Word{"tokenizer.ignore_merges", "chaski.tokenizer.ignore_merges", Kind::flag},
    Word{"tokenizer.eos_ids", "chaski.tokenizer.eos_ids", Kind::integers},
};

// Whether a tensor's name does not end in ".weight".
bool is_bare(std::string_view name) {
  return name.ends_with(kBias) || name.ends_with(kScale) || name.ends_with(".ssm_a") ||
         name.ends_with(".ssm_d");
}

std::string renamed_tensor(std::string_view theirs) {
  std::string_view stem = theirs;
  if (!is_bare(stem)) drop_suffix(stem, kWeight);
  const std::string prefix(drop_prefix(stem, kTheirLayer) ? kOurLayer : "");
  return prefix + std::string(stem);
}

}  // namespace

bool is_kind(const Value& value, Kind kind) {
  const bool whole =
      value.type != ValueType::boolean && std::holds_alternative<int64_t>(value.data);
  const bool flags = value.element == ValueType::boolean;
  switch (kind) {
    case Kind::text:
      return std::holds_alternative<std::string>(value.data);
    case Kind::texts:
      return std::holds_alternative<Texts>(value.data);
    case Kind::integer:
      return whole;
    case Kind::integers:
      return std::holds_alternative<Ints>(value.data) && !flags;
    case Kind::number:
      return whole || std::holds_alternative<double>(value.data);
    case Kind::numbers:
      return std::holds_alternative<Floats>(value.data);
    case Kind::flag:
      return value.type == ValueType::boolean;
    case Kind::flags:
      return std::holds_alternative<Ints>(value.data);
  }
  return false;
}

std::string gguf_key_name(const std::string& architecture, const Key& key) {
  std::string_view name = key.gguf;
  return drop_prefix(name, "/") ? std::string(name) : architecture + "." + key.gguf;
}

std::vector<KeyPair> gguf_keys(const std::string& architecture) {
  std::vector<KeyPair> pairs;
  for (auto& word : kWords)
    pairs.push_back({std::string(word.ours), std::string(word.theirs), word.kind, false});
  const Architecture* known = find_architecture(architecture);
  if (!known) return pairs;
  const std::unique_ptr<Model> model = known->make();
  Keys keys;
  model->keys(keys);
  for (auto& key : keys.list)
    if (!key.gguf.empty())
      pairs.push_back(
          {key.ours, gguf_key_name(architecture, key), key.kind, key.from_one != nullptr});
  return pairs;
}

double gguf_yarn_magnitude(const Metadata& meta, double log_multiplier) {
  if (meta.has("model.latent_rank")) return 1;
  const double longer = std::log(std::max(meta.number("model.rope_factor"), 1.0));
  return (1 + 0.1 * longer) / (log_multiplier == 0 ? 1 : 1 + 0.1 * log_multiplier * longer);
}

std::string our_tensor_name(std::string_view theirs) {
  std::string ours = renamed_tensor(theirs);
  if (gguf_tensor_name(ours) != theirs) return std::string(kForeignPrefix) + std::string(theirs);
  return ours;
}

std::string gguf_tensor_name(std::string_view ours) {
  if (drop_prefix(ours, kForeignPrefix)) return std::string(ours);
  const bool whole = is_bare(ours);
  const std::string prefix(drop_prefix(ours, kOurLayer) ? kTheirLayer : "");
  return prefix + std::string(ours) + std::string(whole ? "" : kWeight);
}

}  // namespace chaski
