#include "models/nearest_structure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "ggml-like-tensor/base/error.h"
#include "models/architecture.h"

namespace chaski {

namespace {

using Names = std::set<std::string>;

constexpr double kLeastShare = 0.5;

// "layers.3.mlp.up_proj.weight" becomes "layers.*.mlp.up_proj.weight".
std::string without_numbers(const std::string& name) {
  std::string out;
  for (size_t begin = 0, end; begin <= name.size(); begin = end + 1) {
    end = std::min(name.find('.', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    const bool number =
        !part.empty() && std::ranges::all_of(part, [](unsigned char c) { return std::isdigit(c); });
    out += (begin > 0 ? "." : "") + (number ? "*" : part);
  }
  return out;
}

// A value that a key accepts. Tensor names do not depend on which.
Given sample_of(const Key& key) {
  constexpr int64_t kUsual = 16;
  const int64_t whole =
      key.ours == "model.block_count" ? 1 : std::clamp(kUsual, key.least, key.most);
  if (auto* words = std::get_if<Key::Words>(&key.member)) return words->names[0];
  if (auto* each = std::get_if<Key::Each<int64_t>>(&key.member))
    return std::vector<int64_t>(size_t(each->count()), whole);
  if (auto* each = std::get_if<Key::Each<float>>(&key.member))
    return std::vector<double>(size_t(each->count()), 1.0);
  if (key.kind == Kind::flag) return false;
  if (key.kind == Kind::number) return 1.0;
  return whole;
}

// The names of an architecture's files. A file need not have the optional ones.
struct Known {
  Names required, optional, keys;
};

void read_samples(const Keys& keys) {
  Metadata meta;
  for (const Key& key : keys.list) {
    if (key.applies && !key.applies()) continue;
    try {
      if (auto assumed = key.read(meta, key.ours)) meta.set(key.ours, std::move(*assumed));
    } catch (const Error&) {  // it has no default here
      meta.set(key.ours, to_value(sample_of(key)));
      key.read(meta, key.ours);
    }
  }
}

Known known_names(const Architecture& a, bool of_folder) {
  const std::unique_ptr<Model> model = a.make();
  Keys keys;
  model->keys(keys);
  read_samples(keys);
  Slots slots;
  model->tensors(slots);
  Known known;
  for (const TensorSlot& slot : slots.all()) {
    const std::string& name = of_folder ? slot.hf : slot.gguf;
    if (name.empty()) continue;
    (slot.optional ? known.optional : known.required)
        .insert(without_numbers((of_folder ? slots.hf_prefix : "") + name));
  }
  for (const Key& key : keys.list) {
    if (!of_folder && !key.gguf.empty()) known.keys.insert(key.gguf);
    for (const std::string& place : key.hf)
      if (of_folder) known.keys.insert(place.substr(0, place.find_first_of(".[")));
  }
  for (const HfCondition& condition : keys.conditions)
    for (const std::string& place : condition.places)
      if (of_folder) known.keys.insert(place.substr(0, place.find('.')));
  return known;
}

// The share of names that both have, of those that one has.
double share_of(const Names& found, const Names& required, const Names& optional) {
  size_t both = 0, all = found.size();
  for (const std::string& name : found) both += required.contains(name) || optional.contains(name);
  for (const std::string& name : required) all += !found.contains(name);
  return all == 0 ? 0 : double(both) / double(all);
}

size_t known_count(bool of_folder) {
  size_t n = 0;
  for (const Architecture& a : architectures()) n += a.hf.size();
  return of_folder ? n : architecture_names().size();
}

}  // namespace

NearestStructure nearest_structure(const Structure& structure) {
  constexpr std::string_view kText = "language_model.";
  Names text, all, keys;
  for (const std::string& name : structure.tensors) {
    all.insert(without_numbers(name));
    // The text part of a model that reads more than text.
    if (const size_t at = name.find(kText); at != std::string::npos)
      text.insert(without_numbers("model." + name.substr(at + kText.size())));
    else if (name == "lm_head.weight")
      text.insert(name);
  }
  const Names& tensors = text.size() > 1 ? text : all;
  for (const std::string& key : structure.keys)
    keys.insert(structure.of_folder ? key.substr(0, key.find('.')) : key);
  NearestStructure best;
  std::pair<double, double> most{0, 0};
  for (const Architecture& a : architectures()) {
    if (structure.of_folder ? a.hf.empty() : find_architecture(a.name) != &a) continue;
    const Known known = known_names(a, structure.of_folder);
    const double of_keys = share_of(keys, {}, known.keys);
    const std::pair share{
        tensors.empty() ? of_keys : share_of(tensors, known.required, known.optional), of_keys};
    if (share.first < kLeastShare || share <= most) continue;
    most = share;
    best = {structure.of_folder ? a.hf[0] : a.name, share.first, !tensors.empty()};
  }
  return best;
}

std::string expected_architecture(const Structure& structure) {
  const NearestStructure nearest = nearest_structure(structure);
  // Rounded down: 100% are all names.
  const std::string like =
      nearest.name.empty()
          ? ""
          : fmt::format(" (built most like {}: {}% of the names of its {} are the same)",
                        nearest.name, int(100 * nearest.share),
                        nearest.of_tensors ? "tensors" : "keys");
  return fmt::format("one of {} known ones{}", known_count(structure.of_folder), like);
}

}  // namespace chaski
