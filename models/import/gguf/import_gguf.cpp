// GGUF to chaski's names. gguf.cpp reads the container and gguf_names.cpp lists the names. This
// file has the exceptions: defaults, older spellings, ids that mean "none". Values keep their GGUF
// type, so that an export writes the same bytes.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <unordered_map>

#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/base/split_name.h"
#include "models/architecture.h"
#include "models/heads/delta_next.h"
#include "models/import/affix.h"
#include "models/import/gguf/gguf.h"
#include "models/import/gguf/gguf_names.h"
#include "models/import/import.h"
#include "models/import/row_tensors.h"
#include "models/import/tokenizer/tokenizer_defaults.h"
#include "models/import/tokenizer/tokenizer_kinds.h"

namespace chaski {
namespace {

class GgufImport {
 public:
  explicit GgufImport(const std::string& path) : file_(read_gguf(path)) {
    source_.path = path;
    source_.kind = kind_of(file_);
    source_.meta.origin = path;
    source_.storage =
        std::make_shared<const std::vector<std::shared_ptr<const Mapping>>>(file_.parts);
    source_.drop_pages = [parts = file_.parts] {
      for (const auto& part : parts) part->drop_pages();
    };
  }

  ModelSource run() {
    architecture_ = architecture();
    find_tokenizer();
    translate();
    score_by_merges();
    if (find_architecture(architecture_)) {
      count_vocabulary();
      read_older_keys();
      read_longrope();
      if (!file_.tensors.empty()) {
        const auto model = complete();
        expect_layers(*model, file_.tensors.size(), source_.path);
        list_slots(*model);
      }
    }
    take_tensors();
    name_special_pieces();
    complete_tokenizer(source_.meta);
    name_source();
    return std::move(source_);
  }

  // Reads only the layer for one more token.
  ModelSource run_next(DeltaNext& layer) {
    source_.kind = "layer that predicts one token more";
    architecture_ = architecture();
    find_tokenizer();
    translate();
    if (!find_architecture(architecture_)) layer.read(source_.meta);
    count_vocabulary();
    read_older_keys();
    Slots facts;
    complete()->tensors(facts);
    further_layers_ = facts.further_layers;
    layer.read(source_.meta);
    if (const int64_t n = source_.meta.integer("model.nextn_predict_layers", 0); n != 1)
      fail(Exit::bad_file, "{}: {}.nextn_predict_layers is {}, expected 1", source_.path,
           architecture_, n);
    next_layer_ = fmt::format("layer.{}.", further_layers_);
    list_slots(layer);
    take_tensors();
    return std::move(source_);
  }

 private:
  std::string architecture() const {
    auto found = file_.values.find("general.architecture");
    if (found == file_.values.end())
      fail(Exit::bad_file, "{}: general.architecture is missing, expected a str", source_.path);
    require_kind("general.architecture", found->second, Kind::text);
    return std::get<std::string>(found->second.data);
  }

  void require_kind(const std::string& key, const Value& value, Kind kind) const {
    if (!is_kind(value, kind))
      fail(Exit::bad_file, "{}: {} is {}, expected {}", source_.path, escaped(key),
           type_name(value), kind_name(kind));
  }

  // Files with unsupported tokenizers keep all tokenizer keys unchanged. Gemma 4's vocabulary is
  // SentencePiece's with merges instead of scores.
  void find_tokenizer() {
    auto found = file_.values.find("tokenizer.ggml.model");
    if (found == file_.values.end()) return;
    require_kind(found->first, found->second, Kind::text);
    const auto& model = std::get<std::string>(found->second.data);
    merges_for_scores_ = model == "gemma4";
    const auto* kind = std::find_if(std::begin(kTokenizerKinds), std::end(kTokenizerKinds),
                                    [&](auto& k) { return k.gguf == model; });
    if (kind == std::end(kTokenizerKinds)) return;
    source_.meta.set_str("tokenizer.kind", std::string(kind->ours));
    file_.values.erase(found);
  }

  // The rank of a merge replaces the score: it decides which of two joins is done first.
  void score_by_merges() {
    if (!merges_for_scores_) return;
    Metadata& meta = source_.meta;
    const auto& tokens = meta.strs("tokenizer.tokens");
    std::unordered_map<std::string_view, size_t> ids;
    for (size_t i = 0; i < tokens.size(); ++i) ids.emplace(tokens[i], i);
    std::vector<double> scores(tokens.size(), -1e9);
    const auto& merges = meta.strs("tokenizer.merges");
    for (size_t rank = 0; rank < merges.size(); ++rank) {
      std::string merge(merges[rank]);
      const size_t space = merge.find(' ', 1);
      if (space == std::string::npos) continue;
      const auto made = ids.find(merge.erase(space, 1));
      if (made != ids.end() && scores[made->second] == -1e9)
        scores[made->second] = -static_cast<double>(rank);
    }
    meta.set_floats("tokenizer.scores", std::move(scores));
    meta.erase("tokenizer.merges"), meta.erase("tokenizer.pre");
    if (!meta.has("tokenizer.add_space_prefix")) meta.set_bool("tokenizer.add_space_prefix", false);
  }

  void translate() {
    const bool tokenizer = source_.meta.has("tokenizer.kind");
    std::map<std::string, KeyPair> words;
    for (auto& pair : gguf_keys(architecture_))
      if (tokenizer || !pair.ours.starts_with("tokenizer.")) words.emplace(pair.theirs, pair);
    const int64_t pieces = count_pieces();
    for (auto& [key, value] : file_.values) {
      auto word = words.find(key);
      if (word != words.end() && !(word->second.or_one && is_kind(value, Kind::integer)))
        require_kind(key, value, word->second.kind);
      const bool known = word != words.end() && !is_no_id(word->second.ours, value, pieces);
      source_.meta.set(known ? word->second.ours : std::string(kForeignPrefix) + key,
                       std::move(value));
    }
    file_.values.clear();
    // only one of the two may be set, and the patterns are exact
    if (source_.meta.has("tokenizer.pre_patterns")) source_.meta.erase("tokenizer.pre");
  }

  // A value that is no list of tokens is refused later, when it is read.
  int64_t count_pieces() const {
    auto tokens = file_.values.find("tokenizer.ggml.tokens");
    if (tokens == file_.values.end()) return 0;
    auto* pieces = std::get_if<Texts>(&tokens->second.data);
    return pieces ? static_cast<int64_t>(pieces->size()) : INT64_MAX;
  }
  // If a model has no such piece, writers store -1, in any width.
  static bool is_no_id(std::string_view ours, const Value& value, int64_t pieces) {
    if (!ours.ends_with("_id")) return false;
    const int64_t id = std::get<int64_t>(value.data);
    return id < 0 || id >= pieces;
  }

  // A file may omit vocab_size: it is the number of rows of the token table, or of pieces.
  void count_vocabulary() {
    Metadata& meta = source_.meta;
    if (meta.has("model.vocab_size")) return;
    // The model object has no hyperparameters yet, so it lists only the tensors outside the layers.
    for (const TensorSlot& slot : tensors_of(*find_architecture(architecture_)->make()))
      for (auto& t : file_.tensors)
        if (slot.role == Role::token_table && our_tensor_name(t.name) == slot.gguf)
          return meta.set_int("model.vocab_size", t.rows);
    if (auto pieces = meta.strs("tokenizer.tokens").size())
      meta.set_int("model.vocab_size", static_cast<int64_t>(pieces));
  }

  std::unique_ptr<Model> complete() {
    return complete_model(source_.meta, [this](const Key& key) {
      const Value* found = source_.meta.find(key.ours);
      if (found && key.from_one && is_kind(*found, Kind::integer))
        source_.meta.set(key.ours, to_value(key.from_one(std::get<int64_t>(found->data))));
      if (!found && key.gguf_default)
        if (auto given = key.gguf_default(source_.path))
          source_.meta.set(key.ours, to_value(*given));
      return key.gguf.empty() ? key.ours : gguf_key_name(architecture_, key);
    });
  }

  void list_slots(Model& model) {
    Slots facts;
    model.tensors(facts);
    std::set<std::string> present;
    for (auto& t : file_.tensors) present.insert(our_tensor_name(t.name));
    for (TensorSlot& slot : facts.all()) {
      const bool other = !slot.gguf_else.empty() && !present.count(slot.gguf);
      if (other) slot.gguf_order = slot.gguf_else_order;
      slots_.emplace(other ? slot.gguf_else : slot.gguf, slot);
    }
    unread_.insert(facts.gguf_unread.begin(), facts.gguf_unread.end());
    for (const TensorInfo& t : facts.gguf_unused) unread_.insert(t.name);
    if (next_layer_.empty()) further_layers_ = facts.further_layers;
  }

  const GgufTensor* named(const std::string& name) const {
    const auto at = by_name_.find(name);
    return at == by_name_.end() ? nullptr : at->second;
  }
  // NVFP4 tensors come with a scale for the whole tensor, and may have another one for activations.
  bool is_of_nvfp4(std::string_view name) const {
    if (!drop_suffix(name, ".scale") && !drop_suffix(name, ".input_scale")) return false;
    const GgufTensor* of = named(std::string(name) + ".weight");
    return of && of->format == Format::nvfp4;
  }
  std::optional<float> scale_of(const GgufTensor& t) const {
    std::string_view stem = t.name;
    if (t.format != Format::nvfp4 || !drop_suffix(stem, ".weight")) return {};
    const GgufTensor* scale = named(std::string(stem) + ".scale");
    if (!scale) return {};
    if (scale->format != Format::f32 || scale->rows != 1 || scale->cols != 1)
      fail(Exit::bad_file, "{}: tensor {} is {} with {} x {} elements, expected one f32",
           source_.path, escaped(scale->name), info(scale->format).name, scale->rows, scale->cols);
    float number;
    std::memcpy(&number, file_.data(*scale), sizeof number);
    return number;
  }

  void take_tensors() {
    for (auto& t : file_.tensors) by_name_.emplace(t.name, &t);
    for (auto& t : file_.tensors) {
      std::string name = our_tensor_name(t.name);
      const bool further = is_of_layer_from(name, "layer.", further_layers_);
      if (unread_.count(name) || is_of_nvfp4(t.name) || further == next_layer_.empty()) continue;
      if (further) name = name_in_next(name);
      const auto [first, last] = slots_.equal_range(name);
      if (const auto scale = scale_of(t); scale && first != last) {
        for (auto at = first; at != last; ++at)
          source_.tensors.push_back(under_scale(at->second, t, *scale));
        continue;
      }
      if (first == last)
        source_.tensors.push_back(tensor_over(name, t.format, file_.data(t), t.rows, t.cols));
      for (auto at = first; at != last; ++at) {
        const bool flat = at->second.matrix_rows > 1 && at->second.matrix_rows == t.rows;
        source_.tensors.push_back(
            tensor_for(at->second, at->second.gguf_order, t.format, file_.data(t),
                       flat ? 1 : t.rows, flat ? t.rows * t.cols : t.cols, source_.path, t.name));
      }
    }
  }

  // The layer for one more token is the first of its own; the tensors around it have no number.
  std::string name_in_next(std::string_view name) const {
    if (!drop_prefix(name, next_layer_)) return std::string(name);
    return (name.starts_with("nextn.") ? "" : "layer.0.") + std::string(name);
  }

  TensorSource under_scale(const TensorSlot& slot, const GgufTensor& t, float scale) const {
    const size_t bytes = row_bytes(t.format, t.cols);
    return matrix_for(
        slot, slot.gguf_order, Format::nvfp4s,
        [=, data = file_.data(t)](int64_t row, std::byte* dst) {
          std::memcpy(dst, &scale, sizeof scale);
          std::memcpy(dst + sizeof scale, data + row * int64_t(bytes), bytes);
        },
        t.rows, t.cols, source_.path, t.name);
  }

  // rope.scale_linear is the old name of rope.scaling.*. In GGUF, attn_factor multiplies yarn's own
  // 1 + 0.1 ln(factor); in chaski, as in the paper, it is the product.
  void read_older_keys() {
    Metadata& meta = source_.meta;
    const std::string prefix = std::string(kForeignPrefix) + architecture_ + ".rope.";
    if (meta.has(prefix + "scale_linear") && !meta.has("model.rope_scaling")) {
      meta.set_str("model.rope_scaling", "linear");
      meta.set_float("model.rope_factor", meta.number(prefix + "scale_linear"));
    }
    if (meta.has(prefix + "scaling.attn_factor") &&
        meta.str("model.rope_scaling", "none") == "yarn")
      meta.set_float("model.rope_attention_factor",
                     meta.number(prefix + "scaling.attn_factor") *
                         gguf_yarn_magnitude(meta, meta.number("model.rope_mscale_all_dim", 0)));
    // chaski's name for bitnet.hidden_act until 2026.
    const std::string older = "gguf.bitnet.hidden_activation";
    if (const Value* word = meta.find(older); word && architecture_ == "bitnet") {
      meta.set("model.hidden_activation", *word);
      meta.erase(older);
    }
    const std::string own = std::string(kForeignPrefix) + std::string(kOwnScaling);
    if (meta.has("model.rope_scaling") || !meta.has(own + "type")) return;
    for (auto [theirs, ours] : {std::pair{"type", "model.rope_scaling"},
                                {"factor", "model.rope_factor"},
                                {"original_context_length", "model.rope_original_context"}})
      if (const Value* value = meta.find(own + theirs)) {
        meta.set(ours, *value);
        meta.erase(own + theirs);
      }
  }

  // For longrope, GGUF stores the divisors as tensors and the factor on cos and sin as it is
  // applied, independent of the scaling type in the keys.
  void read_longrope() {
    Metadata& meta = source_.meta;
    for (auto [theirs, ours] : {std::pair{"rope_factors_short", "model.rope_short_factors"},
                                {"rope_factors_long", "model.rope_long_factors"}}) {
      const std::string_view name = theirs;  // clang 14 captures no binding
      const auto t = std::find_if(file_.tensors.begin(), file_.tensors.end(), [&](const auto& x) {
        return our_tensor_name(x.name) == name && x.rows == 1;
      });
      if (t == file_.tensors.end()) continue;
      std::vector<float> row(size_t(t->cols));
      decode_plain_row(t->format, file_.data(*t), t->cols, row.data());
      meta.set_floats(ours, std::vector<double>(row.begin(), row.end()));
      meta.set_str("model.rope_scaling", "longrope");
      file_.tensors.erase(t);
    }
    const std::string factor =
        std::string(kForeignPrefix) + architecture_ + ".rope.scaling.attn_factor";
    if (meta.str("model.rope_scaling", "none") == "longrope" && meta.has(factor))
      meta.set_float("model.rope_attention_factor", meta.number(factor));
  }

  // SentencePiece vocabularies always spell their special pieces the same way.
  void name_special_pieces() {
    if (source_.meta.str("tokenizer.kind", "") != "spm") return;
    const auto& tokens = source_.meta.strs("tokenizer.tokens");
    for (auto [key, piece] : {std::pair{"tokenizer.bos_id", "<s>"},
                              {"tokenizer.eos_id", "</s>"},
                              {"tokenizer.unk_id", "<unk>"}})
      for (size_t i = 0; i < tokens.size() && !source_.meta.has(key); ++i)
        if (tokens[i] == piece) source_.meta.set_int(key, static_cast<int64_t>(i));
  }

  void name_source() {
    const std::filesystem::path path = source_.path;
    std::string stem = path.stem().string();
    if (file_.parts.size() > 1) stem.resize(stem.size() - kPartMark);
    if (!source_.meta.has("general.name")) source_.meta.set_str("general.name", stem);
    source_.meta.set_str("source.file", path.filename().string());
    source_.meta.set_str("source.kind", source_.kind);
  }

  GgufFile file_;
  ModelSource source_;
  std::string architecture_;
  bool merges_for_scores_ = false;
  // Keyed by GGUF names in our spelling; a tensor of several parts has several slots.
  std::multimap<std::string, TensorSlot> slots_;
  std::map<std::string, const GgufTensor*> by_name_;
  std::set<std::string> unread_;  // names of tensors to ignore, in our spelling
  int64_t further_layers_ = -1;   // Slots::further_layers
  std::string next_layer_;        // "layer.24." if only that layer is read
};

}  // namespace

ModelSource import_gguf(const std::string& path) { return GgufImport(path).run(); }

ModelSource import_gguf_next(const std::string& path, DeltaNext& layer) {
  return GgufImport(path).run_next(layer);
}

bool gguf_has_next(const std::string& path) try {
  const GgufFile file = read_gguf(path);
  const auto name = file.values.find("general.architecture");
  const auto* text =
      name == file.values.end() ? nullptr : std::get_if<std::string>(&name->second.data);
  const Architecture* known = text ? find_architecture(*text) : nullptr;
  return known && dynamic_cast<const DeltaNet*>(known->make().get()) &&
         std::ranges::any_of(file.tensors, [](const GgufTensor& t) {
           return t.name.ends_with(".nextn.hnorm.weight");
         });
} catch (const Error&) {
  return false;
}

}  // namespace chaski
