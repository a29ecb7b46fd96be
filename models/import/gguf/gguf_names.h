// Pairs of GGUF's and chaski's names, the one list that import_gguf.cpp and export_gguf.cpp share.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "models/facts.h"

namespace chaski {

bool is_kind(const Value& value, Kind kind);

struct KeyPair {
  std::string ours, theirs;
  Kind kind;
  bool or_one = false;  // a single integer for a list is accepted too: Key::from_one
};

// All pairs for this architecture: the names about file and tokenizer, and the architecture's own
// keys. For an unknown architecture, hyperparameters pass through unchanged.
std::vector<KeyPair> gguf_keys(const std::string& architecture);
// The full name of a key. A name that begins with "/" has no architecture before it.
std::string gguf_key_name(const std::string& architecture, const Key& key);

// Prefix of keys and tensors that have a GGUF name but none in chaski.
constexpr std::string_view kForeignPrefix = "gguf.";

// Prefix of the keys of a scaling that other readers do not know: dynamic.
constexpr std::string_view kOwnScaling = "chaski.rope.scaling.";

// The factor on cos and sin that readers compute for yarn, before attn_factor multiplies it.
// `log_multiplier`: rope.scaling.yarn_log_multiplier; 0: none.
// With latent attention it is 1.
double gguf_yarn_magnitude(const Metadata& meta, double log_multiplier);

// "blk.3.attn_q.weight" <-> "layer.3.attn_q". A name that would not survive the round trip gets the
// foreign prefix.
std::string our_tensor_name(std::string_view theirs);
std::string gguf_tensor_name(std::string_view ours);

}  // namespace chaski
