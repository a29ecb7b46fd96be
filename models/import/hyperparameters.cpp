#include "models/import/hyperparameters.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "ggml-like-tensor/base/error.h"

namespace chaski {
namespace {

struct Bound {
  const char* key;
  int64_t most;
};
// Far above any model that exists, far below where a product of two would overflow.
constexpr std::array kCounts{
    Bound{"model.context_length", 1 << 30}, Bound{"model.embedding_length", 1 << 20},
    Bound{"model.block_count", 1 << 16},    Bound{"model.feed_forward_length", 1 << 24},
    Bound{"model.head_count", 1 << 16},     Bound{"model.head_count_kv", 1 << 16},
    Bound{"model.head_dim", 1 << 16},       Bound{"model.vocab_size", 1 << 26},
};

void check_counts(const Metadata& meta) {
  for (auto& bound : kCounts) {
    const int64_t found = meta.integer(bound.key);
    if (found < 1 || found > bound.most)
      fail(Exit::bad_file, "{}: {} is {}, expected 1 to {}", meta.origin, bound.key, found,
           bound.most);
  }
}

// Finite and above zero: everything else would turn every logit into NaN.
void check_positive(const Metadata& meta, const char* key) {
  const double found = meta.number(key);
  if (!(found > 0 && std::isfinite(found)))
    fail(Exit::bad_file, "{}: {} is {}, expected a number above 0", meta.origin, key, found);
}

void check_heads(const Metadata& meta) {
  const int64_t heads = meta.integer("model.head_count"), kv = meta.integer("model.head_count_kv");
  if (heads % kv != 0)
    fail(Exit::bad_file, "{}: model.head_count_kv is {}, expected a divisor of head_count {}",
         meta.origin, kv, heads);
}

void check_rope(const Metadata& meta) {
  const int64_t head_dim = meta.integer("model.head_dim"),
                rope_dim = meta.integer("model.rope_dim");
  if (rope_dim < 2 || rope_dim % 2 != 0 || rope_dim > head_dim)
    fail(Exit::bad_file, "{}: model.rope_dim is {}, expected an even number up to head_dim {}",
         meta.origin, rope_dim, head_dim);
  check_positive(meta, "model.rope_theta");
  const std::string& method = meta.str("model.rope_scaling");
  if (method == "none") return;
  if (method != "linear" && method != "llama3" && method != "yarn")
    fail(Exit::bad_file, "{}: model.rope_scaling is {}, expected none, linear, llama3 or yarn",
         meta.origin, escaped(method));
  check_positive(meta, "model.rope_factor");
  if (method == "linear") return;
  check_positive(meta, "model.rope_original_context");
  if (method != "llama3") return;
  check_positive(meta, "model.rope_low_freq_factor");
  const double low = meta.number("model.rope_low_freq_factor"),
               high = meta.number("model.rope_high_freq_factor");
  if (!(high > low && std::isfinite(high)))
    fail(Exit::bad_file,
         "{}: model.rope_high_freq_factor is {}, expected more than low_freq_factor {}",
         meta.origin, high, low);
}

void fill_head_dim(Metadata& meta) {
  if (meta.has("model.head_dim")) return;
  const int64_t width = meta.integer("model.embedding_length"),
                heads = meta.integer("model.head_count");
  if (heads < 1 || width % heads != 0)
    fail(Exit::bad_file, "{}: model.head_count is {}, expected a divisor of embedding_length {}",
         meta.origin, heads, width);
  meta.set_int("model.head_dim", width / heads);
}

void fill_rope(Metadata& meta) {
  if (!meta.has("model.rope_dim")) meta.set_int("model.rope_dim", meta.integer("model.head_dim"));
  if (!meta.has("model.rope_theta")) meta.set_float("model.rope_theta", 10000);
  if (!meta.has("model.rope_scaling")) meta.set_str("model.rope_scaling", "none");
  if (meta.str("model.rope_scaling") == "yarn" && !meta.has("model.rope_original_context"))
    meta.set_int("model.rope_original_context", meta.integer("model.context_length"));
}

// An id that is not in the vocabulary; writers use -1 for "none".
void check_id(const Metadata& meta, const char* key, int64_t pieces) {
  const int64_t id = meta.integer(key, 0);
  if (id < 0 || id >= pieces)
    fail(Exit::bad_file, "{}: {} is {}, expected 0 to {}", meta.origin, key, id, pieces - 1);
}

void check_length(const Metadata& meta, const char* key, size_t found, size_t pieces) {
  if (found != pieces)
    fail(Exit::bad_file, "{}: {} has {} entries, expected {}, one for each piece", meta.origin, key,
         found, pieces);
}

void check_tokenizer(const Metadata& meta) {
  const size_t pieces = meta.strs("tokenizer.tokens").size();
  if (pieces == 0)
    fail(Exit::bad_file, "{}: tokenizer.tokens is empty, expected the vocabulary", meta.origin);
  check_length(meta, "tokenizer.types", meta.ints("tokenizer.types").size(), pieces);
  if (meta.has("tokenizer.scores"))
    check_length(meta, "tokenizer.scores", meta.floats("tokenizer.scores").size(), pieces);
  for (const char* key : {"tokenizer.bos_id", "tokenizer.eos_id", "tokenizer.eot_id",
                          "tokenizer.unk_id", "tokenizer.pad_id"})
    check_id(meta, key, pieces);
  for (int64_t id : meta.ints("tokenizer.eos_ids"))
    if (id < 0 || id >= static_cast<int64_t>(pieces))
      fail(Exit::bad_file, "{}: tokenizer.eos_ids has {}, expected 0 to {}", meta.origin, id,
           pieces - 1);
  const int64_t vocabulary = meta.integer("model.vocab_size", pieces);
  if (static_cast<int64_t>(pieces) > vocabulary)
    fail(Exit::bad_file, "{}: tokenizer.tokens has {} pieces, expected at most model.vocab_size {}",
         meta.origin, pieces, vocabulary);
}

// SentencePiece writes better pieces first, so the order stands in for scores that are missing.
std::vector<double> scores_by_order(size_t pieces) {
  std::vector<double> scores(pieces);
  for (size_t i = 0; i < pieces; ++i) scores[i] = -static_cast<double>(i);
  return scores;
}

}  // namespace

void complete_hyperparameters(Metadata& meta) {
  fill_head_dim(meta);
  if (!meta.has("model.head_count_kv"))
    meta.set_int("model.head_count_kv", meta.integer("model.head_count"));
  check_counts(meta);
  check_heads(meta);
  check_positive(meta, "model.norm_epsilon");
  if (meta.integer("model.sliding_window", 0) < 0)
    fail(Exit::bad_file, "{}: model.sliding_window is {}, expected 0 or more", meta.origin,
         meta.integer("model.sliding_window"));
  if (meta.str("general.architecture") == "gpt2") return;  // learned positions
  fill_rope(meta);
  check_rope(meta);
}

void complete_tokenizer(Metadata& meta) {
  if (!meta.has("tokenizer.kind")) return;
  const bool spm = meta.str("tokenizer.kind") == "spm";
  const size_t pieces = meta.strs("tokenizer.tokens").size();
  if (!meta.has("tokenizer.types"))
    meta.set_ints("tokenizer.types", std::vector<int64_t>(pieces, kNormal));
  if (spm && !meta.has("tokenizer.scores"))
    meta.set_floats("tokenizer.scores", scores_by_order(pieces));
  const bool llama3 = pre_ignores_merges(meta.str("tokenizer.pre", ""));
  if (!meta.has("tokenizer.add_bos")) meta.set_bool("tokenizer.add_bos", spm || llama3);
  if (!meta.has("tokenizer.add_eos")) meta.set_bool("tokenizer.add_eos", false);
  if (!meta.has("tokenizer.add_space_prefix")) meta.set_bool("tokenizer.add_space_prefix", spm);
  if (!meta.has("tokenizer.ignore_merges")) meta.set_bool("tokenizer.ignore_merges", llama3);
  if (!meta.has("tokenizer.eos_ids")) meta.set_ints("tokenizer.eos_ids", guessed_eos_ids(meta));
  check_tokenizer(meta);
}

std::vector<int64_t> guessed_eos_ids(const Metadata& meta) {
  constexpr std::string_view kEnds[] = {"<|eot_id|>",      "<|eom_id|>",    "<|im_end|>",
                                        "<|end|>",         "<end_of_turn>", "<|endoftext|>",
                                        "<|end_of_text|>", "<|end_story|>"};
  std::vector<int64_t> ids;
  for (const char* key : {"tokenizer.eos_id", "tokenizer.eot_id"})
    if (meta.has(key)) ids.push_back(meta.integer(key));
  const auto& tokens = meta.strs("tokenizer.tokens");
  const auto& types = meta.ints("tokenizer.types");
  for (size_t i = 0; i < std::min(tokens.size(), types.size()); ++i)
    if (types[i] == kControl &&
        std::find(std::begin(kEnds), std::end(kEnds), tokens[i]) != std::end(kEnds))
      ids.push_back(i);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

bool pre_ignores_merges(std::string_view pre) {
  return pre == "llama-bpe" || pre == "llama3" || pre == "llama-v3";
}

}  // namespace chaski
