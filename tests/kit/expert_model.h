// A small mixture of experts with random weights and the tokenizer of the bundled model.
#pragma once
#include <set>

#include "engine/shelf/model_file.h"
#include "models/architecture.h"
#include "quant/encode/random.h"
#include "tests/kit/support.h"

namespace chaski::test {

struct ExpertModel {
  static constexpr int kLayers = 3, kExperts = 16, kChosen = 4;
  static constexpr int64_t kWidth = 128, kExpertWidth = 192;
};

// Writes it to a .quipu file, with all matrices but routers in one format.
inline std::string write_expert_model(const std::string& path, Format matrices = Format::q8) {
  using M = ExpertModel;
  ModelSource source;
  source.path = path, source.kind = "test";
  const Metadata story = open_model("").source.meta;
  for (const auto& [key, value] : story.all())
    if (key.starts_with("tokenizer.")) source.meta.set(key, value);
  Metadata& meta = source.meta;
  meta.set_str("general.architecture", "olmoe");
  meta.set_int("model.vocab_size", story.integer("model.vocab_size"));
  meta.set_int("model.context_length", 1024);
  meta.set_int("model.embedding_length", M::kWidth);
  meta.set_int("model.block_count", M::kLayers);
  meta.set_int("model.feed_forward_length", M::kExpertWidth);
  meta.set_int("model.head_count", 8), meta.set_int("model.head_count_kv", 8);
  meta.set_int("model.head_dim", 16);
  meta.set_float("model.norm_epsilon", 1e-5), meta.set_float("model.rope_theta", 10000);
  meta.set_int("model.expert_count", M::kExperts);
  meta.set_int("model.expert_used_count", M::kChosen);
  for (const TensorSlot& slot : tensors_of(*model_of(meta))) {
    if (slot.optional && slot.role != Role::head) continue;
    const bool floats = slot.rows == 1 || slot.role == Role::router;
    const TensorInfo info{slot.name, floats ? Format::f32 : matrices, slot.rows, slot.cols};
    source.tensors.push_back({info, [info](int64_t first, int64_t last, std::byte* to) {
                                uint64_t seed = 1;
                                for (const char c : info.name) seed = 31 * seed + uint64_t(c);
                                if (!info.tiled())
                                  return random_row(info.format, seed, 0.7f, info.cols, to);
                                const size_t bytes = strip_bytes(info.format, info.cols);
                                for (int64_t s = first; s < last; ++s, to += bytes)
                                  random_strip(info.format, seed + uint64_t(s), 0.3f, info.cols,
                                               to);
                              }});
  }
  write_quipu(path, source, 1);
  return path;
}

}  // namespace chaski::test
