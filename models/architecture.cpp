#include "models/architecture.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <unordered_map>

namespace chaski {

extern const Architecture kLlama, kGpt2;

std::vector<Architecture>& architectures() {
  static std::vector<Architecture> list{kLlama, kGpt2};
  return list;
}

namespace {

const Architecture& named(const std::string& name, const std::string& file) {
  std::string known;
  for (const Architecture& a : architectures()) {
    if (name == a.name) return a;
    known += (known.empty() ? "" : ", ") + std::string(a.name);
  }
  fail(Exit::bad_file, "{}: general.architecture is {}, this chaski runs {}", file, escaped(name),
       known);
}

RopeScaling scaling_named(const std::string& name, const std::string& file) {
  if (name == "none") return RopeScaling::none;
  if (name == "linear") return RopeScaling::linear;
  if (name == "llama3") return RopeScaling::llama3;
  if (name == "yarn") return RopeScaling::yarn;
  fail(Exit::bad_file, "{}: model.rope_scaling is {}, expected none, linear, llama3 or yarn", file,
       escaped(name));
}

RopeSpec rope_of(const Weights& w, int head_dim) {
  const Metadata& m = w.meta;
  RopeSpec r;
  const int64_t dim = m.integer("model.rope_dim", head_dim);
  if (dim < 2 || dim > head_dim || dim % 2)
    fail(Exit::bad_file, "{}: model.rope_dim is {}, expected an even number up to the head size {}",
         w.path, dim, head_dim);
  r.dim = int(dim);
  r.theta = m.number("model.rope_theta", 10000);
  r.scaling = scaling_named(m.str("model.rope_scaling", "none"), w.path);
  r.factor = m.number("model.rope_factor", 1);
  r.low_freq_factor = m.number("model.rope_low_freq_factor", 1);
  r.high_freq_factor = m.number("model.rope_high_freq_factor", 4);
  r.beta_fast = m.number("model.rope_beta_fast", 32);
  r.beta_slow = m.number("model.rope_beta_slow", 1);
  r.attention_factor = m.number("model.rope_attention_factor", 0);
  r.original_context = m.integer("model.rope_original_context", m.integer("model.context_length"));
  if (const Weight* f = w.find("rope_freqs")) {
    if (f->info.rows != 1 || f->info.cols != r.dim / 2)
      fail(Exit::bad_file, "{}: tensor rope_freqs has shape ({}, {}), expected (1, {})", w.path,
           f->info.rows, f->info.cols, r.dim / 2);
    r.freq_factors.resize(size_t(r.dim) / 2);
    decode_plain_row(f->info.format, f->data, f->info.cols, r.freq_factors.data());
  }
  return r;
}

void expect_range(const Weights& w, const char* key, int64_t value, int64_t low, int64_t high) {
  if (value < low || value > high)
    fail(Exit::bad_file, "{}: {} is {}, expected {} to {}", w.path, key, value, low, high);
}

}  // namespace

Hyper hyper_of(const Weights& w) {
  const Metadata& m = w.meta;
  Hyper h;
  auto number = [&](const char* key, int64_t low, int64_t high) {
    const int64_t value = m.integer(key);
    expect_range(w, key, value, low, high);
    return value;
  };
  auto optional = [&](const char* key, int64_t otherwise, int64_t low, int64_t high) {
    const int64_t value = m.integer(key, otherwise);
    expect_range(w, key, value, low, high);
    return int(value);
  };
  // At least two rows, or a weight would be a vector and lie in row layout.
  h.vocab = number("model.vocab_size", 2, 1 << 24);
  h.context = number("model.context_length", 1, 1 << 26);
  h.dim = number("model.embedding_length", 2, 1 << 20);
  h.layers = number("model.block_count", 1, 4096);
  h.ffn = number("model.feed_forward_length", 2, 1 << 22);
  h.heads = int(number("model.head_count", 1, 4096));
  h.kv_heads = optional("model.head_count_kv", h.heads, 1, h.heads);
  h.head_dim = optional("model.head_dim", h.dim / h.heads, 1, 1 << 20);
  if (h.heads % h.kv_heads)
    fail(Exit::bad_file,
         "{}: model.head_count is {}, expected a multiple of model.head_count_kv {}", w.path,
         h.heads, h.kv_heads);
  h.window = optional("model.sliding_window", 0, 0, 1 << 30);
  h.eps = float(m.number("model.norm_epsilon"));
  if (m.str("general.architecture") != "gpt2") h.rope = rope_of(w, h.head_dim);
  return h;
}

std::unique_ptr<Model> bind_model(const Weights& w) {
  const Architecture& a = named(w.meta.str("general.architecture"), w.path);
  std::unique_ptr<Model> model = a.make(hyper_of(w));
  std::unordered_map<std::string_view, const Weight*> found;
  for (const Weight& t : w.tensors) found.emplace(t.info.name, &t);
  std::set<std::string> wanted{"rope_freqs"};
  for (const TensorSlot& slot : a.tensors(*model)) {
    wanted.insert(slot.name);
    const auto at = found.find(slot.name);
    const Weight* t = at == found.end() ? nullptr : at->second;
    if (!t && slot.optional) continue;
    if (!t) fail(Exit::bad_file, "{}: tensor {} is missing", w.path, slot.name);
    if (t->info.rows != slot.rows || t->info.cols != slot.cols)
      fail(Exit::bad_file, "{}: tensor {} has shape ({}, {}), expected ({}, {})", w.path, slot.name,
           t->info.rows, t->info.cols, slot.rows, slot.cols);
    if (slot.rows == 1 && t->info.format != Format::f32)
      fail(Exit::bad_file, "{}: tensor {} has format {}, expected f32", w.path, slot.name,
           info(t->info.format).name);
    *slot.weight = t;
  }
  for (const Weight& t : w.tensors)
    if (!wanted.count(t.info.name))
      fail(Exit::bad_file, "{}: tensor {} has no place in a {} model", w.path, escaped(t.info.name),
           a.name);
  model->bound(w.path);
  return model;
}

std::vector<TensorInfo> tensors_of(const std::string& architecture, const Hyper& hyper) {
  const Architecture& a = named(architecture, architecture);
  std::unique_ptr<Model> model = a.make(hyper);
  std::vector<TensorInfo> out;
  for (const TensorSlot& slot : a.tensors(*model))
    if (!slot.optional) out.push_back({slot.name, Format::f32, slot.rows, slot.cols});
  return out;
}

}  // namespace chaski
