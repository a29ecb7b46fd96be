#include "models/import/gguf_names.h"

#include <array>

#include "models/import/affix.h"

namespace chaski {
namespace {

constexpr std::string_view kWeight = ".weight", kBias = ".bias", kTheirLayer = "blk.",
                           kOurLayer = "layer.", kArch = "{arch}.";

struct Word {
  std::string_view ours, theirs;
  Kind kind;
  bool required = false;
};

constexpr std::array kModelKeys{
    Word{"model.context_length", "{arch}.context_length", Kind::integer, true},
    Word{"model.embedding_length", "{arch}.embedding_length", Kind::integer, true},
    Word{"model.block_count", "{arch}.block_count", Kind::integer, true},
    Word{"model.feed_forward_length", "{arch}.feed_forward_length", Kind::integer, true},
    Word{"model.head_count", "{arch}.attention.head_count", Kind::integer, true},
    Word{"model.head_count_kv", "{arch}.attention.head_count_kv", Kind::integer},
    Word{"model.head_dim", "{arch}.attention.key_length", Kind::integer},
    Word{"model.vocab_size", "{arch}.vocab_size", Kind::integer},
    Word{"model.sliding_window", "{arch}.attention.sliding_window", Kind::integer},
    Word{"model.rope_theta", "{arch}.rope.freq_base", Kind::number},
    Word{"model.rope_dim", "{arch}.rope.dimension_count", Kind::integer},
    Word{"model.rope_scaling", "{arch}.rope.scaling.type", Kind::text},
    Word{"model.rope_factor", "{arch}.rope.scaling.factor", Kind::number},
    Word{"model.rope_original_context", "{arch}.rope.scaling.original_context_length",
         Kind::integer},
    Word{"model.rope_beta_fast", "{arch}.rope.scaling.yarn_beta_fast", Kind::number},
    Word{"model.rope_beta_slow", "{arch}.rope.scaling.yarn_beta_slow", Kind::number},
};
constexpr Word kRmsEpsilon{"model.norm_epsilon", "{arch}.attention.layer_norm_rms_epsilon",
                           Kind::number, true};
constexpr Word kLayerNormEpsilon{"model.norm_epsilon", "{arch}.attention.layer_norm_epsilon",
                                 Kind::number, true};

// tokenizer.kind is not here: its values differ as well ("llama" is spm, "gpt2" is bpe). What GGUF
// has no word for keeps its own behind "chaski.".
constexpr std::array kOtherKeys{
    Word{"general.architecture", "general.architecture", Kind::text, true},
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
    Word{"tokenizer.chat_template", "tokenizer.chat_template", Kind::text},
    Word{"tokenizer.pre_patterns", "chaski.tokenizer.pre_patterns", Kind::texts},
    Word{"tokenizer.ignore_merges", "chaski.tokenizer.ignore_merges", Kind::flag},
    Word{"tokenizer.eos_ids", "chaski.tokenizer.eos_ids", Kind::integers},
};

KeyPair pair_for(const Word& word, const std::string& architecture) {
  std::string_view theirs = word.theirs;
  const std::string prefix = drop_prefix(theirs, kArch) ? architecture + "." : "";
  return {std::string(word.ours), prefix + std::string(theirs), word.kind, word.required};
}

std::string renamed_tensor(std::string_view theirs) {
  std::string_view stem = theirs;
  const bool bias = drop_suffix(stem, kBias);
  if (!bias) drop_suffix(stem, kWeight);
  const std::string prefix(drop_prefix(stem, kTheirLayer) ? kOurLayer : "");
  return prefix + std::string(stem) + std::string(bias ? kBias : "");
}

}  // namespace

std::string_view kind_name(Kind kind) {
  constexpr std::string_view names[] = {
      "str",      "array of str",     "an integer", "array of integers",
      "a number", "array of numbers", "bool"};
  return names[static_cast<int>(kind)];
}

bool is_kind(const Value& value, Kind kind) {
  const bool whole =
      value.type != ValueType::boolean && std::holds_alternative<int64_t>(value.data);
  const bool flags = value.element == ValueType::boolean;
  switch (kind) {
    case Kind::text:
      return std::holds_alternative<std::string>(value.data);
    case Kind::texts:
      return std::holds_alternative<std::vector<std::string>>(value.data);
    case Kind::integer:
      return whole;
    case Kind::integers:
      return std::holds_alternative<std::vector<int64_t>>(value.data) && !flags;
    case Kind::number:
      return whole || std::holds_alternative<double>(value.data);
    case Kind::numbers:
      return std::holds_alternative<std::vector<double>>(value.data);
    case Kind::flag:
      return value.type == ValueType::boolean;
  }
  return false;
}

bool is_known_architecture(std::string_view architecture) {
  return architecture == "llama" || architecture == "gpt2";
}

std::vector<KeyPair> gguf_keys(const std::string& architecture) {
  std::vector<KeyPair> pairs;
  for (auto& word : kOtherKeys) pairs.push_back(pair_for(word, architecture));
  if (!is_known_architecture(architecture)) return pairs;
  for (auto& word : kModelKeys) pairs.push_back(pair_for(word, architecture));
  pairs.push_back(pair_for(architecture == "gpt2" ? kLayerNormEpsilon : kRmsEpsilon, architecture));
  return pairs;
}

std::string our_tensor_name(std::string_view theirs) {
  std::string ours = renamed_tensor(theirs);
  if (gguf_tensor_name(ours) != theirs) return std::string(kForeignPrefix) + std::string(theirs);
  return ours;
}

std::string gguf_tensor_name(std::string_view ours) {
  if (drop_prefix(ours, kForeignPrefix)) return std::string(ours);
  const bool bias = drop_suffix(ours, kBias);
  const std::string prefix(drop_prefix(ours, kOurLayer) ? kTheirLayer : "");
  return prefix + std::string(ours) + std::string(bias ? kBias : kWeight);
}

}  // namespace chaski
