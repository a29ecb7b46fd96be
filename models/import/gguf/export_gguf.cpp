// Writes any model as GGUF v3, the inverse of import_gguf.cpp. Strips become rows again; nothing is
// requantized. Keys that only chaski has are stored as "chaski.<key>"; keys that only GGUF has are
// written back unchanged.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numbers>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "ggml-like-tensor/base/atomic_file.h"
#include "ggml-like-tensor/file/value_io.h"
#include "ggml-like-tensor/rope_spec.h"
#include "models/architecture.h"
#include "models/blocks/rope_divisors.h"
#include "models/import/folder.h"
#include "models/import/gguf/gguf.h"
#include "models/import/gguf/gguf_names.h"
#include "models/import/import.h"
#include "models/import/tokenizer/pre_patterns.h"
#include "models/import/tokenizer/tokenizer_defaults.h"
#include "models/import/tokenizer/tokenizer_kinds.h"

namespace chaski {
namespace {

template <class T>
void append(std::string& out, T number) {
  out.append(reinterpret_cast<const char*>(&number), sizeof number);
}

void append_text(std::string& out, std::string_view text) {
  append<uint64_t>(out, text.size());
  out += text;
}

// Converts the i64 and f64 values of chaski's own importers to the types that GGUF readers expect.
// A value that came from a GGUF file has its type already.
Value usual_type(Value value, Kind kind) {
  if (kind == Kind::flags) value.element = ValueType::boolean;
  if (value.type == ValueType::i64) {
    const int64_t n = std::get<int64_t>(value.data);
    if (n >= 0 && n <= UINT32_MAX) value.type = ValueType::u32;
  }
  if (value.type == ValueType::f64) value.type = ValueType::f32;
  return value;
}

std::map<std::string, Value> translated(const Metadata& meta) {
  std::map<std::string, KeyPair> words;
  for (auto& pair : gguf_keys(meta.str("general.architecture"))) words.emplace(pair.ours, pair);
  std::map<std::string, Value> values;
  for (auto& [key, value] : meta.all()) {
    if (auto word = words.find(key); word != words.end())
      values[word->second.theirs] = usual_type(value, word->second.kind);
    else if (key.starts_with(kForeignPrefix))
      values[key.substr(kForeignPrefix.size())] = value;
  }
  return values;
}

Value text_value(std::string text) { return {ValueType::str, ValueType::i64, std::move(text)}; }

// Omits lists that an import computes again, and adds GGUF's name for a pre-tokenizer that has one.
void settle_tokenizer(const Metadata& meta, std::map<std::string, Value>& values) {
  if (!meta.has("tokenizer.kind")) return;
  const bool spm = meta.str("tokenizer.kind") == "spm";
  for (const auto& kind : kTokenizerKinds)
    if (kind.ours == meta.str("tokenizer.kind"))
      values.try_emplace("tokenizer.ggml.model", text_value(std::string(kind.gguf)));
  if (!meta.has("tokenizer.pre") && meta.has("tokenizer.pre_patterns"))
    values["tokenizer.ggml.pre"] = text_value(gguf_name_of(meta.strs("tokenizer.pre_patterns")));
  if ((spm || !meta.has("tokenizer.pre")) && !meta.boolean("tokenizer.ignore_merges", false))
    values.erase("chaski.tokenizer.ignore_merges");
  if (meta.ints("tokenizer.eos_ids") == guessed_eos_ids(meta))
    values.erase("chaski.tokenizer.eos_ids");
}

// The frequency divisors of Llama 3.1 ("llama3" scaling), which GGUF stores as a tensor. Long
// wavelengths are stretched by the factor, short ones are unchanged, those in between are blended.
// Source: documentation of Hugging Face's transformers, "RoPE utilities".
std::vector<float> llama3_divisors(const Metadata& meta) {
  const double theta = meta.number("model.rope_theta"), factor = meta.number("model.rope_factor");
  const double low = meta.number("model.rope_low_freq_factor"),
               high = meta.number("model.rope_high_freq_factor");
  const double context = meta.number("model.rope_original_context");
  const int64_t dim = meta.integer("model.rope_dim");
  std::vector<float> divisors;
  for (int64_t i = 0; i < dim; i += 2) {
    const double wave = 2 * std::numbers::pi * std::pow(theta, static_cast<double>(i) / dim);
    const double smooth = std::clamp((context / wave - low) / (high - low), 0.0, 1.0);
    divisors.push_back(static_cast<float>(1 / ((1 - smooth) / factor + smooth)));
  }
  return divisors;
}

// Readers take embedding_length / head_count for the width of a value if a file does not say it.
void settle_heads(const Metadata& meta, std::map<std::string, Value>& values) {
  const std::string prefix = meta.str("general.architecture") + ".attention.";
  const Value* heads = meta.find("model.head_count");  // a list if layers differ
  const bool usual = heads && is_kind(*heads, Kind::integer) &&
                     meta.integer("model.head_dim", 0) * meta.integer("model.head_count") ==
                         meta.integer("model.embedding_length", 0);
  // With latent attention, those of the one key and value that all heads share.
  if (const int64_t rank = meta.integer("model.latent_rank", 0); rank > 0) {
    const auto set = [&](const char* key, int64_t n) {
      values[prefix + key] = {ValueType::u32, ValueType::i64, n};
    };
    if (!meta.has("model.head_count_kv")) set("head_count_kv", 1);  // else by layer
    set("value_length", rank);
    set("key_length", rank + meta.integer("model.rope_dim"));
    return;
  }
  for (const char* end : {"", "_swa"}) {
    const auto key = values.find(prefix + "key_length" + end);
    if (key != values.end() && !(usual && *end == '\0'))
      values.try_emplace(prefix + "value_length" + end, key->second);
  }
}

// The factor on cos and sin, as RopeSpec computes it.
double magnitude_of(const Metadata& meta, RopeScaling scaling) {
  RopeSpec rope;
  rope.scaling = scaling;
  rope.factor = meta.number("model.rope_factor");
  rope.original_context = meta.integer("model.rope_original_context");
  rope.attention_factor = meta.number("model.rope_attention_factor", 0);
  rope.mscale = meta.number("model.rope_mscale", 0);
  rope.mscale_all_dim = meta.number("model.rope_mscale_all_dim", 0);
  return rope.magnitude();
}

// Layers that predict further tokens were not read.
void settle_layers(const Metadata& meta, std::map<std::string, Value>& values) {
  if (!meta.has("model.layer_count")) return;
  const std::string prefix = meta.str("general.architecture") + ".";
  values[prefix + "block_count"] = {ValueType::u32, ValueType::i64,
                                    meta.integer("model.layer_count")};
  values.erase(prefix + "nextn_predict_layers");
}

void settle_rope(const Metadata& meta, std::map<std::string, Value>& values) {
  const std::string prefix = meta.str("general.architecture") + ".rope.scaling.";
  const std::string method = meta.str("model.rope_scaling", "none");
  const auto set = [&](const char* key, double number) {
    values[prefix + key] = {ValueType::f32, ValueType::i64, number};
  };
  if (method == "llama3")
    for (const char* key : {"type", "factor", "original_context_length"})
      values.erase(prefix + key);
  if (method == "yarn" && !values.count(prefix + "attn_factor")) {
    const double made = magnitude_of(meta, RopeScaling::yarn),
                 theirs =
                     gguf_yarn_magnitude(meta, values.count(prefix + "yarn_log_multiplier")
                                                   ? meta.number("model.rope_mscale_all_dim", 0)
                                                   : 0);
    if (std::fabs(made / theirs - 1) > 1e-9) set("attn_factor", made / theirs);
  }
  if (method == "longrope") {
    // With a factor, readers would divide positions by it too.
    values.erase(prefix + "factor");
    set("attn_factor", magnitude_of(meta, RopeScaling::longrope));
  }
  if (method == "dynamic") {
    const int64_t original = meta.integer("model.rope_original_context"),
                  context = meta.integer("model.context_length");
    if (original < context)
      fail(Exit::bad_file,
           "{}: model.rope_original_context is {}, which GGUF cannot store for dynamic scaling, "
           "expected the context_length {}",
           meta.origin, original, context);
    // Up to the file's context length, "dynamic" scaling changes nothing, so only chaski needs it.
    for (const char* key : {"type", "factor", "original_context_length"})
      if (auto value = values.extract(prefix + key)) {
        value.key() = std::string(kOwnScaling) + key;
        values.insert(std::move(value));
      }
  }
}

// Keys that GGUF has no name for have the one value that its readers assume.
void expect_known_values(const ModelSource& source) {
  const Architecture* known = find_architecture(source.meta.str("general.architecture"));
  if (!known) return;
  const std::unique_ptr<Model> model = known->make();
  Keys keys;
  model->keys(keys);
  for (const Key& key : keys.list) {
    if (!key.gguf_means || !source.meta.has(key.ours)) continue;
    const bool flag = key.kind == Kind::flag;
    const double found =
        flag ? double(source.meta.boolean(key.ours, false)) : source.meta.number(key.ours);
    const auto text = [&](double n) {
      return flag ? std::string(n != 0 ? "true" : "false") : fmt::format("{}", n);
    };
    if (float(found) != float(*key.gguf_means))  // as members are
      fail(Exit::bad_file, "{}: {} is {}, which GGUF cannot store: its {} models have {}",
           source.path, key.ours, text(found), known->name, text(*key.gguf_means));
  }
}

// GGUF tensors that chaski does not have: they are metadata, or nothing reads them.
struct Made {
  TensorInfo info;
  std::vector<float> numbers;
};
std::vector<Made> made_tensors(const ModelSource& source) {
  const std::string method = source.meta.str("model.rope_scaling", "none");
  std::vector<Made> made;
  const auto add = [&](const std::string& name, std::vector<float> row) {
    made.push_back({{name, Format::f32, 1, int64_t(row.size())}, std::move(row)});
  };
  if (method == "llama3" && !source.find("rope_freqs"))
    add("rope_freqs", llama3_divisors(source.meta));
  if (const int64_t dim = source.meta.integer("model.rope_dim", 0),
      turned = source.meta.integer("model.rope_turned", dim);
      turned < dim && !source.find("rope_freqs"))
    add("rope_freqs", divisors_of_part(turned, dim));
  if (method == "longrope")
    for (const char* length : {"short", "long"}) {
      const auto& list = source.meta.floats(fmt::format("model.rope_{}_factors", length));
      add(fmt::format("rope_factors_{}", length), std::vector<float>(list.begin(), list.end()));
    }
  if (!source.tensors.empty() && find_architecture(source.meta.str("general.architecture"))) {
    Slots facts;
    model_of(source.meta)->tensors(facts);
    for (const TensorInfo& t : facts.gguf_unused)
      made.push_back({t, std::vector<float>(size_t(t.rows * t.cols))});
  }
  return made;
}

// Empty for an architecture that chaski does not know.
using SlotsByName = std::unordered_map<std::string, TensorSlot>;
SlotsByName slots_by_name(const ModelSource& source) {
  SlotsByName slots;
  if (!source.tensors.empty() && find_architecture(source.meta.str("general.architecture")))
    for (TensorSlot& slot : tensors_of(*model_of(source.meta))) slots.emplace(slot.name, slot);
  return slots;
}

// Rejects formats that GGUF does not have. Converting them to f32 would multiply the file's size,
// and another block format would change the model.
void expect_formats(const ModelSource& source, const SlotsByName& slots) {
  for (auto& t : source.tensors) {
    const auto slot = slots.find(t.info.name);
    if (slot != slots.end() && slot->second.not_in_gguf)
      fail(Exit::bad_file, "{}: tensor {} has no place in a GGUF file: its {} models have none",
           source.path, t.info.name, source.meta.str("general.architecture"));
    const Role role = slot == slots.end() ? Role::matmul : slot->second.role;
    if (role == Role::column_order)
      fail(Exit::bad_file,
           "{}: tensor {} orders columns, which GGUF cannot store, expected weights without "
           "act-order",
           source.path, t.info.name);
    if (role == Role::outlier_columns || role == Role::outliers)
      fail(Exit::bad_file,
           "{}: tensor {} holds outlier columns, which GGUF cannot store, expected weights "
           "quantized without --outliers",
           source.path, t.info.name);
    if (info(t.info.format).gguf_type < 0)
      fail(Exit::bad_file,
           "{}: tensor {} is {}, which GGUF cannot store: 'chaski quantize IN OUT --type q4_0' (or "
           "q8, f16) of the original model, or of this one, makes a file that GGUF can store",
           source.path, t.info.name, info(t.info.format).name);
  }
}

class GgufWriter {
 public:
  GgufWriter(const std::string& path, const ModelSource& source, SlotsByName slots)
      : source_(source), file_(path), slots_(std::move(slots)) {
    values_ = translated(source.meta);
    settle_tokenizer(source.meta, values_);
    settle_heads(source.meta, values_);
    settle_layers(source.meta, values_);
    settle_rope(source.meta, values_);
    made_ = made_tensors(source);
    list_tensors();
    alignment_ = source.meta.integer("gguf.general.alignment", kGgufAlignment);
    if (!is_gguf_alignment(alignment_))
      fail(Exit::bad_file, "{}: general.alignment is {}, expected a power of two", source.path,
           alignment_);
    for (auto& t : source.tensors)
      if (t.info.tiled() && info(t.info.format).block > 1)
        values_.emplace("general.quantization_version",
                        Value{ValueType::u32, ValueType::i64, int64_t{2}});
  }

  void run() {
    write_header();
    for (auto& t : tensors_) write_tensor(t);
    for (auto& m : made_) pad(), file_.write(std::as_bytes(std::span(m.numbers)));
    pad();
    file_.commit();
  }

 private:
  uint64_t aligned(uint64_t n) const { return (n + alignment_ - 1) / alignment_ * alignment_; }
  void pad() { file_.pad_to(aligned(file_.size())); }

  void write_header() {
    std::string out(kGgufMagic);
    append<uint32_t>(out, 3);
    append<uint64_t>(out, tensors_.size() + made_.size());
    append<uint64_t>(out, values_.size());
    for (auto& [key, value] : values_)
      append_text(out, key), append_value(out, value, source_.path + ": " + escaped(key));
    uint64_t offset = 0;
    for (auto& t : tensors_) append_entry(out, t.info, offset);
    for (auto& m : made_) append_entry(out, m.info, offset);
    file_.write(std::as_bytes(std::span(out)));
    pad();
  }

  void append_entry(std::string& out, const TensorInfo& t, uint64_t& offset) const {
    append_text(out, gguf_tensor_name(t.name));
    const int64_t vectors = matrix_rows(t.name), rows = t.tiled() ? t.rows : vectors;
    const int64_t planes = planes_of(t.name);
    std::vector<int64_t> shape{rows > 1 && !t.tiled() ? t.cols / rows : t.cols};
    if (rows > 1) shape.push_back(planes > 0 ? rows / planes : rows);
    if (planes > 0) shape.push_back(planes);
    if (const auto own = shapes_.find(t.name); own != shapes_.end()) shape = own->second;
    append<uint32_t>(out, uint32_t(shape.size()));
    for (const int64_t n : shape) append<uint64_t>(out, uint64_t(n));
    append<uint32_t>(out, info(t.format).gguf_type);
    append<uint64_t>(out, offset);
    offset = aligned(offset + row_bytes(t.format, t.cols) * t.rows);
  }

  int64_t matrix_rows(const std::string& name) const {
    const auto at = vectors_.find(name);
    return at == vectors_.end() ? 1 : at->second;
  }

  int64_t planes_of(const std::string& gguf) const {
    const auto at = planes_.find(gguf);
    return at == planes_.end() ? 0 : at->second;
  }

  struct Piece {
    const TensorSource* source;
    RowOrder order;  // of its rows in the output
  };
  struct Outgoing {
    TensorInfo info;  // in our spelling
    std::vector<Piece> pieces;
  };

  // GGUF may store several of our tensors in one.
  void list_tensors() {
    std::unordered_map<std::string, size_t> begun;  // output tensors that have several parts
    for (auto& t : source_.tensors) {
      const auto slot = slots_.find(t.info.name);
      TensorInfo whole = t.info;
      if (slot == slots_.end()) {
        tensors_.push_back({whole, {{&t, {}}}});
        continue;
      }
      const RowOrder& order = slot->second.gguf_order;
      whole.name = slot->second.gguf;
      if (slot->second.gguf_planes > 0) planes_[whole.name] = slot->second.gguf_planes;
      vectors_[whole.name] = slot->second.matrix_rows;
      if (!slot->second.gguf_shape.empty()) shapes_[whole.name] = slot->second.gguf_shape;
      if (order.whole > 0) (t.info.tiled() ? whole.rows : whole.cols) = order.whole;
      const auto [at, first] = begun.try_emplace(whole.name, tensors_.size());
      if (first) tensors_.push_back({whole, {}});
      Outgoing& out = tensors_[at->second];
      if (out.info.format != t.info.format)
        fail(Exit::bad_file,
             "{}: tensor {} is {} and {} is {}, expected the same format: GGUF stores them in one "
             "tensor",
             source_.path, out.pieces[0].source->info.name, info(out.info.format).name, t.info.name,
             info(t.info.format).name);
      out.pieces.push_back({&t, order});
    }
    repeat_table();
    for (const Outgoing& t : tensors_) {
      int64_t found = 0;
      for (const Piece& piece : t.pieces)
        found += t.info.tiled() ? piece.source->info.rows : piece.source->info.cols;
      const int64_t wanted = t.info.tiled() ? t.info.rows : t.info.cols;
      if (found != wanted)
        fail(Exit::bad_file, "{}: tensors for {} have {} rows, expected {}", source_.path,
             escaped(t.info.name), found, wanted);
    }
  }

  // The head of an architecture whose GGUF files always have one.
  void repeat_table() {
    for (const auto& [name, slot] : slots_)
      if (slot.gguf_always && !source_.find(name)) {
        const TensorSource& table = *source_.find("token_embd");
        TensorInfo whole = table.info;
        whole.name = slot.gguf;
        tensors_.push_back({whole, {{&table, {}}}});
      }
  }

  void write_tensor(const Outgoing& t) {
    pad();
    if (!t.info.tiled()) return write_vector(t);
    if (t.pieces.size() > 1 || !t.pieces[0].order.plain()) return write_in_order(t);
    const TensorSource& source = *t.pieces[0].source;
    const size_t stride = row_bytes(t.info.format, t.info.cols);
    std::vector<std::byte> strip(strip_bytes(t.info.format, t.info.cols)), rows(kStrip * stride);
    for (int64_t first = 0; first < t.info.rows; first += kStrip) {
      const int n = static_cast<int>(std::min<int64_t>(kStrip, t.info.rows - first));
      source.read(first / kStrip, first / kStrip + 1, strip.data());
      for (int r = 0; r < n; ++r)
        unpack_row(t.info.format, strip.data(), r, t.info.cols, rows.data() + r * stride);
      file_.write({rows.data(), n * stride});
    }
  }

  // Reads all rows at once, because their order in the output is arbitrary.
  void write_in_order(const Outgoing& t) {
    const size_t stride = row_bytes(t.info.format, t.info.cols),
                 strip = strip_bytes(t.info.format, t.info.cols);
    std::vector<std::byte> rows(t.info.rows * stride), ours;
    for (const Piece& piece : t.pieces) {
      const TensorInfo& part = piece.source->info;
      const int64_t strips = (part.rows + kStrip - 1) / kStrip;
      ours.resize(strips * strip);
      piece.source->read(0, strips, ours.data());
      for (int64_t r = 0; r < part.rows; ++r)
        unpack_row(part.format, ours.data() + r / kStrip * strip, static_cast<int>(r % kStrip),
                   part.cols, rows.data() + piece.order.theirs(r) * stride);
    }
    file_.write(rows);
  }

  void write_vector(const Outgoing& t) {
    const size_t item = row_bytes(t.info.format, 1);
    std::vector<std::byte> row(row_bytes(t.info.format, t.info.cols)), ours;
    for (const Piece& piece : t.pieces) {
      const int64_t n = piece.source->info.cols;
      ours.resize(n * item);
      piece.source->read(0, 1, ours.data());
      for (int64_t i = 0; i < n; ++i)
        std::memcpy(row.data() + piece.order.theirs(i) * item, ours.data() + i * item, item);
    }
    file_.write(row);
  }

  const ModelSource& source_;
  AtomicFile file_;
  std::map<std::string, Value> values_;
  std::vector<Made> made_;
  SlotsByName slots_;
  // By names in the output: planes of a tensor, and rows of a vector that is stored as a matrix.
  std::unordered_map<std::string, int64_t> planes_, vectors_;
  std::unordered_map<std::string, std::vector<int64_t>> shapes_;  // that slots state
  std::vector<Outgoing> tensors_;
  int64_t alignment_;
};

}  // namespace

void export_gguf(const std::string& path, const ModelSource& source) {
  // a linked-in model has a name but no file
  if (exists(source.path)) refuse_same_file(source.path, path);
  SlotsByName slots = slots_by_name(source);
  expect_formats(source, slots);
  expect_known_values(source);
  GgufWriter(path, source, std::move(slots)).run();
}

}  // namespace chaski
