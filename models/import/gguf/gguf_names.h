// GGUF's words and chaski's, side by side: the one list that import_gguf.cpp and export_gguf.cpp
// both read.
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
  bool or_one = false;  // or an integer that stands for a list: Key::from_one
};

// Every pair that holds for this architecture: the words about a file and its tokenizer, which
// stand here, and the architecture's own keys. Of an architecture that is not known the
// hyperparameters pass through untouched.
std::vector<KeyPair> gguf_keys(const std::string& architecture);
std::string gguf_key_name(const std::string& architecture, const Key& key);  // in full

// GGUF keys and tensors without a word in chaski, the other way round.
constexpr std::string_view kForeignPrefix = "gguf.";

// "blk.3.attn_q.weight" <-> "layer.3.attn_q"; a name that would not come back the same gets the
// foreign prefix.
std::string our_tensor_name(std::string_view theirs);
std::string gguf_tensor_name(std::string_view ours);

}  // namespace chaski
