// Published EAGLE heads. config.json is that of a Llama of one layer; the first heads also use its
// architecture name, so only the tensor fc.weight tells them from a model. Most files repeat the
// embedding of the model, some also its output head: these are not read. EAGLE-3 names its layer
// "midlayer", or "layers.0" like the others. Its tensor d2t has for each draft token the difference
// to the token id of the model; t2d marks the tokens of the model that occur there, which d2t says
// already. A layer that predicts one more token is stored among the tensors of its model, which are
// skipped.
#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "ggml-like-tensor/base/error.h"
#include "models/import/affix.h"
#include "models/import/folder.h"
#include "models/import/hf/eagle.h"
#include "models/import/hf/hf_config.h"
#include "models/import/hf/safetensors.h"
#include "models/import/row_tensors.h"

namespace chaski {
namespace {

class EagleImport {
 public:
  EagleImport(const HeadsFolder& found, EagleHead& eagle)
      : found_(found),
        folder_(found.path()),
        eagle_(eagle),
        three_(dynamic_cast<const Eagle3*>(&eagle)),
        next_(dynamic_cast<const NextLayer*>(&eagle)),
        noun_(three_  ? "an EAGLE-3 head"
              : next_ ? "a layer that predicts one token more"
                      : "an EAGLE head") {
    source_.path = folder_, source_.kind = "EAGLE head";
  }

  ModelSource run() {
    if (!exists(folder_ + "/" + kEagleIndex)) expect_no_pickle(folder_, kEaglePickle, kEagleFile);
    source_.meta.origin = folder_ + "/config.json";
    read_hf_keys(found_.config(), eagle_, source_.meta);
    eagle_.tensors(slots_);
    for (const TensorSlot& slot : slots_.all())
      if (!slot.hf.empty()) wanted_.emplace(slot.hf, slot);
    std::set<std::string> paths;
    each_tensor_name(folder_, [&](const std::string& name, const std::string& path) {
      if (!next_ || is_of_next_layer(name)) paths.insert(path);
    });
    std::vector<std::shared_ptr<const Mapping>> mappings;
    for (const std::string& path : paths) {
      SafetensorsFile file = read_safetensors(path);
      for (const SafeTensor& t : file.tensors)
        if (!next_ || is_of_next_layer(t.name)) take(t);
      mappings.push_back(std::move(file.mapping));
    }
    for (const auto& [name, slot] : wanted_)
      if (!slot.optional)
        fail(Exit::bad_file, "{}: tensor {} is missing, expected all tensors of {}", weights(),
             name, noun_);
    if (three_ && three_->draft_vocab < eagle_.vocab && eagle_.tokens.empty())
      fail(Exit::bad_file, "{}: tensor d2t is missing, expected it with a draft_vocab_size of {}",
           weights(), three_->draft_vocab);
    source_.storage = std::make_shared<const decltype(mappings)>(std::move(mappings));
    return std::move(source_);
  }

 private:
  void take(const SafeTensor& t) {
    std::string_view name = t.name;
    drop_prefix(name, slots_.hf_prefix);
    if (std::ranges::any_of(slots_.hf_unread, [&](auto& end) { return name.ends_with(end); }))
      return;
    if (three_ && name == "d2t") return take_tokens(t);
    if (three_ && name == "t2d") return expect_shape(t, {eagle_.vocab});
    if (name == "embed_tokens.weight" || (!three_ && name == "lm_head.weight"))
      return expect_shape(t, {eagle_.vocab, eagle_.columns()});
    std::string known(name);
    if (three_ && drop_prefix(name, "midlayer.")) known = "layers.0." + std::string(name);
    const auto [first, last] = wanted_.equal_range(known);
    if (first == last)
      fail(Exit::bad_file, "{}: tensor {} is unexpected, expected only tensors of {} (layers: {})",
           t.file, escaped(t.name), noun_, eagle_.n_layers);
    if (!t.format)
      fail(Exit::bad_file, "{}: tensor {} has dtype {}, expected F32, F16, BF16 or F8_E4M3", t.file,
           escaped(t.name), t.dtype);
    int64_t cols = 0;
    for (auto at = first; at != last; ++at) cols += at->second.cols;
    const int64_t rows = first->second.rows;
    expect_shape(t, rows > 1 ? std::vector{rows, cols} : std::vector{cols});
    expect_finite(t);
    int64_t before = 0;
    for (auto at = first; at != last; before += at++->second.cols)
      source_.tensors.push_back(std::next(first) == last
                                    ? tensor_for(at->second, at->second.hf_order, *t.format, t.data,
                                                 rows, cols, t.file, t.name)
                                    : columns_of(t, at->second, before, cols));
    wanted_.erase(first, last);
  }

  void take_tokens(const SafeTensor& t) {
    const int64_t known = three_->draft_vocab;
    if (!eagle_.tokens.empty())
      fail(Exit::bad_file, "{}: tensor {} is there twice, expected one d2t", t.file,
           escaped(t.name));
    expect_shape(t, {known});
    if (t.dtype != "I64")
      fail(Exit::bad_file, "{}: tensor {} has dtype {}, expected I64", t.file, escaped(t.name),
           t.dtype);
    for (int64_t i = 0; i < known; ++i) {
      int64_t further;
      std::memcpy(&further, t.data + size_t(i) * sizeof further, sizeof further);
      if (further < -i || further >= eagle_.vocab - i)
        fail(Exit::bad_file, "{}: tensor {} has {} at {}, expected one of {} tokens", t.file,
             escaped(t.name), further, i, eagle_.vocab);
      eagle_.tokens.push_back(int32_t(i + further));
    }
  }

  // Some columns of a tensor; `before` columns of each row belong to other slots.
  static TensorSource columns_of(const SafeTensor& t, const TensorSlot& slot, int64_t before,
                                 int64_t all) {
    const size_t row = row_bytes(*t.format, all), from = row_bytes(*t.format, before),
                 n = row_bytes(*t.format, slot.cols);
    return tensor_of_rows(slot.name, *t.format, slot.rows, slot.cols,
                          [=, data = t.data, order = slot.hf_order](int64_t r, std::byte* dst) {
                            const int64_t theirs = order.plain() ? r : order.theirs(r);
                            std::memcpy(dst, data + size_t(theirs) * row + from, n);
                          });
  }

  void expect_shape(const SafeTensor& t, const std::vector<int64_t>& wanted) const {
    if (t.shape == wanted) return;
    fail(Exit::bad_file, "{}: tensor {} has shape {}, expected {}, by config.json and {}", t.file,
         escaped(t.name), shape_text(t.shape), shape_text(wanted), eagle_.target_path());
  }

  std::string weights() const { return folder_ + "/" + kEagleFile; }

  const HeadsFolder& found_;
  const std::string& folder_;
  EagleHead& eagle_;
  const Eagle3* const three_;    // eagle_ if it is an EAGLE-3 head
  const NextLayer* const next_;  // eagle_ if it is a layer for one more token
  const char* const noun_;
  Slots slots_;
  std::multimap<std::string, TensorSlot> wanted_;
  ModelSource source_;
};

}  // namespace

ModelSource import_eagle(const HeadsFolder& folder, EagleHead& eagle) {
  if (auto* next = dynamic_cast<DeltaNext*>(&eagle)) return import_delta_next(folder, *next);
  return EagleImport(folder, eagle).run();
}

}  // namespace chaski
