#include "engine/passes/random_model.h"

#include <cstring>

#include "models/architecture.h"
#include "quant/encode/random.h"

namespace chaski {

namespace {

struct NamedShape {
  const char *name, *architecture;
  int64_t dim, layers, ffn, vocab, context;
  int heads, kv_heads, head_dim;
  bool tied;
  int64_t all_layers = 0;  // of the real model, if the shape has fewer to fit into memory
  int64_t experts = 0, chosen = 0, expert_ffn = 0;
  int64_t dense_layers = 0, shared_experts = 0;
  int64_t rope_dim = 0, latent_rank = 0, value_dim = 0;  // 0: as usual, no latent attention
  int64_t window = 0;
};

// From the models' published configurations.
constexpr NamedShape kShapes[] = {
    {"smollm-135m", "llama", 576, 30, 1536, 49152, 2048, 9, 3, 64, true},
    {"llama-3.2-1b", "llama", 2048, 16, 8192, 128256, 131072, 32, 8, 64, true},
    {"tinyllama-1.1b", "llama", 2048, 22, 5632, 32000, 2048, 32, 4, 64, false},
    {"llama-3.2-3b", "llama", 3072, 28, 8192, 128256, 131072, 24, 8, 128, true},
    {"mistral-7b", "llama", 4096, 32, 14336, 32768, 32768, 32, 8, 128, false},
    {"llama-3.1-8b", "llama", 4096, 32, 14336, 128256, 131072, 32, 8, 128, false},
    {"olmoe-1b-7b", "olmoe", 2048, 16, 1024, 50304, 4096, 16, 16, 128, false, 16, 64, 8},
    {"qwen3-30b-a3b", "qwen3moe", 2048, 12, 6144, 151936, 40960, 32, 4, 128, false, 48, 128, 8,
     768},
    {"deepseek-v2-lite",
     "deepseek2",
     2048,
     12,
     10944,
     102400,
     163840,
     16,
     1,
     192,
     false,
     27,
     64,
     6,
     1408,
     1,
     2,
     64,
     512,
     128},
    {"glm-4.5-air", "glm4moe", 4096, 4, 10944, 151552, 131072, 96, 8, 128, false, 46, 128, 8, 1408,
     1, 1, 64},
    {"gpt-oss-20b", "gpt-oss", 2880, 12, 2880, 201088, 131072, 64, 8, 64, false, 24, 32, 4,
     2880,          0,         0,    0,  0,    0,      128},
    {"mamba-1.4b", "mamba", 2048, 48, 0, 50280, 1 << 20, 0, 1, 64, true},
    {"mamba2-1.3b", "mamba2", 2048, 48, 0, 50288, 1 << 20, 0, 1, 64, true},
    {"qwen3.5-0.8b", "qwen35", 1024, 24, 3584, 248320, 262144, 8, 2, 256, true, 0, 0, 0, 0, 0, 0,
     64},
    {"qwen3.5-4b", "qwen35", 2560, 32, 9216, 248320, 262144, 16, 4, 256, true, 0, 0, 0, 0, 0, 0,
     64},
    {"lfm2-1.2b", "lfm2", 2048, 16, 8192, 65536, 128000, 32, 8, 64, true},
    {"granite-4-h-tiny", "granitehybrid", 1536, 40, 512, 100352, 131072, 12, 4, 128, true, 40, 64,
     6},
    {"jamba", "jamba", 4096, 5, 14336, 65536, 262144, 32, 8, 128, false, 32, 16, 2},
};

// The mixers of some of these.
struct NamedMixer {
  const char* name;
  int64_t inner, states, steps, groups, shared_ffn;
  const char* attends;  // by layer, again and again: 1 if it attends; empty: no list of layers
};
constexpr NamedMixer kMixers[] = {
    {"mamba-1.4b", 4096, 16, 128, 1, 0, ""},
    {"mamba2-1.3b", 4096, 128, 64, 1, 0, ""},
    {"qwen3.5-0.8b", 2048, 128, 16, 16, 0, ""},
    {"qwen3.5-4b", 4096, 128, 32, 16, 0, ""},
    {"lfm2-1.2b", 0, 0, 0, 0, 0, "0010010010101010"},
    {"granite-4-h-tiny", 3072, 128, 48, 1, 1024, "0000010000"},
    {"jamba", 8192, 16, 256, 1, 0, "00001000"},
};

const NamedShape& shape_named(const std::string& name) {
  std::string known;
  for (const NamedShape& s : kShapes) {
    if (name == s.name) return s;
    known += (known.empty() ? "" : ", ") + std::string(s.name);
  }
  fail(Exit::usage, "--shape is {}, expected one of {}", escaped(name), known);
}

void add_mixer(Metadata& m, const NamedMixer& mixer, const NamedShape& s) {
  constexpr int64_t kTaps = 4, kShortTaps = 3;
  m.set_int("model.ssm.conv_kernel", kTaps), m.set_int("model.shortconv.l_cache", kShortTaps);
  m.set_int("model.ssm.inner_size", mixer.inner), m.set_int("model.ssm.state_size", mixer.states);
  m.set_int("model.ssm.time_step_rank", mixer.steps);
  m.set_int("model.ssm.group_count", mixer.groups);
  m.set_float("model.logit_scale", 1);  // Granite's
  if (mixer.shared_ffn > 0) m.set_int("model.expert_shared_feed_forward_length", mixer.shared_ffn);
  const std::string_view attends = mixer.attends;
  if (attends.empty()) return;
  std::vector<int64_t> kv;
  for (int64_t i = 0; i < s.layers; ++i)
    kv.push_back(attends[size_t(i) % attends.size()] == '1' ? s.kv_heads : 0);
  m.set_ints("model.head_count_kv", kv);
}

Metadata metadata_of(const NamedShape& s) {
  Metadata m;
  m.origin = s.name;
  m.set_str("general.architecture", s.architecture);
  m.set_str("general.name",
            std::string(s.name) + ", random weights" +
                (s.all_layers > s.layers ? fmt::format(", {} of {} layers", s.layers, s.all_layers)
                                         : ""));
  m.set_int("model.vocab_size", s.vocab);
  m.set_int("model.context_length", s.context);
  m.set_int("model.embedding_length", s.dim);
  m.set_int("model.block_count", s.layers);
  m.set_int("model.feed_forward_length", s.ffn);
  m.set_int("model.head_count", s.heads);
  m.set_int("model.head_count_kv", s.kv_heads);
  m.set_int("model.head_dim", s.head_dim);
  m.set_float("model.norm_epsilon", 1e-5);
  m.set_float("model.rope_theta", 500000);
  if (s.experts > 0) {
    m.set_int("model.expert_count", s.experts);
    m.set_int("model.expert_used_count", s.chosen);
  }
  if (s.expert_ffn > 0) m.set_int("model.expert_feed_forward_length", s.expert_ffn);
  if (s.dense_layers > 0) m.set_int("model.leading_dense_block_count", s.dense_layers);
  if (s.shared_experts > 0) m.set_int("model.expert_shared_count", s.shared_experts);
  if (s.rope_dim > 0) m.set_int("model.rope_dim", s.rope_dim);
  if (s.latent_rank > 0) {
    m.set_int("model.latent_rank", s.latent_rank), m.set_int("model.value_dim", s.value_dim);
    m.set_int("model.query_rank", 0);
    m.set_int("model.expert_gating_func", 1);  // soft-max, as in DeepSeek V2
  }
  if (s.window > 0) m.set_int("model.sliding_window", s.window);
  for (const NamedMixer& mixer : kMixers)
    if (std::string_view(mixer.name) == s.name) add_mixer(m, mixer, s);
  return m;
}

// Decays of states must be negative.
TensorSource decays(const TensorInfo& t) {
  return {t, [n = t.cols](int64_t, int64_t, std::byte* dst) {
            std::fill_n(reinterpret_cast<float*>(dst), n, -1.0f);
          }};
}

}  // namespace

void fill_random(const TensorInfo& info, uint64_t seed, std::byte* data) {
  constexpr int kDifferent = 4;
  if (!info.tiled()) {
    for (int64_t i = 0; i < info.cols; ++i) reinterpret_cast<float*>(data)[i] = 1;
    return;
  }
  const size_t bytes = strip_bytes(info.format, info.cols);
  for (int64_t s = 0; s < (info.rows + kStrip - 1) / kStrip; ++s) {
    std::byte* strip = data + size_t(s) * bytes;
    if (s < kDifferent)
      random_strip(info.format, seed + uint64_t(s), 0.9f / std::sqrt(float(info.cols)), info.cols,
                   strip);
    else
      std::memcpy(strip, strip - kDifferent * bytes, bytes);
  }
}

TensorSource random_tensor(const TensorInfo& t) {
  const uint64_t seed = std::hash<std::string>{}(t.name);
  return {t, [t, seed](int64_t first, int64_t last, std::byte* dst) {
            TensorInfo part = t;
            if (part.tiled()) part.rows = (last - first) * kStrip;
            fill_random(part, seed, dst);
          }};
}

std::vector<std::string> shape_names() {
  std::vector<std::string> names;
  for (const NamedShape& s : kShapes) names.push_back(s.name);
  return names;
}

ModelSource random_source(const ShapeOptions& options) {
  const NamedShape& shape = shape_named(options.shape);
  ModelSource source;
  source.path = options.shape, source.kind = "random weights", source.meta = metadata_of(shape);
  for (const TensorSlot& slot : tensors_of(*model_of(source.meta))) {
    if (slot.optional && (slot.role != Role::head || shape.tied)) continue;
    TensorInfo t{slot.name, Format::f32, slot.rows, slot.cols};
    if (t.tiled() && slot.role != Role::router)
      t.format = t.cols % info(options.format).block ? Format::f16 : options.format;
    source.tensors.push_back(slot.hf_minus_exp ? decays(t) : random_tensor(t));
  }
  return source;
}

}  // namespace chaski
