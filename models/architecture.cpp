#include "models/architecture.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>
#include <unordered_map>

#include "models/nearest_structure.h"
#include "models/other_kinds.h"

namespace chaski {

#define ARCHITECTURE(constant) extern const Architecture constant;
#include "models/architectures.list"
#undef ARCHITECTURE

std::vector<Architecture>& architectures() {
#define ARCHITECTURE(constant) constant,
  static std::vector<Architecture> list{
#include "models/architectures.list"
  };
#undef ARCHITECTURE
  return list;
}

const Architecture* find_architecture(std::string_view name) {
  for (const Architecture& a : architectures())
    if (name == a.name) return &a;
  return nullptr;
}

std::vector<std::string> architecture_names() {
  std::vector<std::string> names;
  for (const Architecture& a : architectures())
    if (find_architecture(a.name) == &a) names.emplace_back(a.name);
  return names;
}

namespace {

[[noreturn]] void refuse_unknown(const Metadata& meta,
                                 const std::vector<const TensorInfo*>& tensors) {
  const std::string& name = meta.str("general.architecture");
  refuse_other_kind(meta.origin, name);
  Structure structure;
  for (const TensorInfo* t : tensors) structure.tensors.push_back(t->name);
  const std::string prefix = "gguf." + name + ".";
  for (const auto& [key, value] : meta.all())
    if (key.starts_with(prefix)) structure.keys.push_back(key.substr(prefix.size()));
  fail(Exit::bad_file, "{}: general.architecture is {}, expected {}", meta.origin, escaped(name),
       expected_architecture(structure));
}

const Architecture& architecture_of(const Metadata& meta) {
  const std::string& name = meta.str("general.architecture");
  if (const Architecture* a = find_architecture(name)) return *a;
  refuse_unknown(meta, {});
}

void check(const TensorSlot& slot, const TensorInfo& t, const std::string& file) {
  if (t.rows != slot.rows || (slot.cols > 0 && t.cols != slot.cols))
    fail(Exit::bad_file, "{}: tensor {} has shape ({}, {}), expected ({}, {})", file, slot.name,
         t.rows, t.cols, slot.rows, slot.cols);
  if (slot.rows == 1 && t.format != Format::f32)
    fail(Exit::bad_file, "{}: tensor {} has format {}, expected f32", file, slot.name,
         info(t.format).name);
}

// A weight with outliers has two tensors, the column numbers and the values, with the same number
// of columns, at most that of the weight. `slot` is one of the two.
void check_outliers(const TensorSlot& slot, const TensorInfo& t, const std::string& file,
                    const std::function<const TensorInfo*(const std::string&)>& find) {
  const bool numbers = slot.role == Role::outlier_columns;
  const std::string& weight = slot.of;
  const std::string other = weight + std::string(numbers ? kOutlierWeight : kOutliers);
  const TensorInfo *partner = find(other), *whole = find(weight);
  if (!partner)
    fail(Exit::bad_file, "{}: tensor {} is missing, expected it together with {}", file, other,
         slot.name);
  if (t.cols != partner->cols || (whole && t.cols > whole->cols))
    fail(Exit::bad_file,
         "{}: tensor {} has {} columns, expected the number of {}, and at most that of {}", file,
         slot.name, t.cols, other, weight);
}

// The column numbers of outliers must ascend: a repeated column would be added twice.
void check_numbers(const Weights& w, const TensorSlot& slot, const Weight& numbers) {
  const std::string& name = numbers.info.name;
  const Weight* const whole = w.find(slot.of);
  const auto* const columns = reinterpret_cast<const float*>(numbers.data);
  float last = -1;
  for (int64_t i = 0; i < numbers.info.cols; last = columns[i++])
    if (!(columns[i] > last) || columns[i] != std::floor(columns[i]) ||
        (whole && columns[i] >= float(whole->info.cols)))
      fail(Exit::bad_file, "{}: tensor {} has {} at index {}, expected ascending column numbers",
           w.path, name, columns[i], i);
}

// Calls take(slot, i) for the slot of the i-th tensor. `kind` of the model is for messages.
template <class Take>
void match(Model& model, const std::string& kind, const std::string& path,
           const std::vector<const TensorInfo*>& tensors, Take take) {
  std::unordered_map<std::string_view, size_t> found;
  for (size_t i = 0; i < tensors.size(); ++i) found.emplace(tensors[i]->name, i);
  expect_layers(model, tensors.size(), path);
  std::set<std::string> wanted;
  for (const TensorSlot& slot : tensors_of(model)) {
    wanted.insert(slot.name);
    const auto at = found.find(slot.name);
    if (at == found.end() && slot.optional) continue;
    if (at == found.end()) fail(Exit::bad_file, "{}: tensor {} is missing", path, slot.name);
    const TensorInfo& tensor = *tensors[at->second];
    check(slot, tensor, path);
    if (slot.cols == 0)
      check_outliers(slot, tensor, path, [&](const std::string& name) {
        const auto other = found.find(name);
        return other == found.end() ? nullptr : tensors[other->second];
      });
    take(slot, at->second);
  }
  for (const TensorInfo* t : tensors)
    if (!wanted.count(t->name))
      fail(Exit::bad_file, "{}: tensor {} has no place in a {} model", path, escaped(t->name),
           kind);
}

std::vector<const TensorInfo*> infos_of(const ModelSource& source) {
  std::vector<const TensorInfo*> infos;
  for (const TensorSource& t : source.tensors) infos.push_back(&t.info);
  return infos;
}
std::vector<const TensorInfo*> infos_of(const Weights& weights) {
  std::vector<const TensorInfo*> infos;
  for (const Weight& t : weights.tensors) infos.push_back(&t.info);
  return infos;
}

// The model of a file with these tensors.
std::unique_ptr<Model> model_with(const Metadata& meta,
                                  const std::vector<const TensorInfo*>& tensors) {
  if (!find_architecture(meta.str("general.architecture"))) refuse_unknown(meta, tensors);
  return model_of(meta);
}

}  // namespace

std::unique_ptr<Model> model_of(const Metadata& meta) {
  std::unique_ptr<Model> model = architecture_of(meta).make();
  Keys keys;
  model->keys(keys);
  for (const Key& key : keys.list) key.read(meta, key.ours);
  model->agree(meta.origin);
  return model;
}

std::unique_ptr<Model> complete_model(Metadata& meta, const LookUp& look_up) {
  return complete_model(architecture_of(meta), meta, look_up);
}

std::unique_ptr<Model> complete_model(const Architecture& architecture, Metadata& meta,
                                      const LookUp& look_up) {
  std::unique_ptr<Model> model = architecture.make();
  Keys keys;
  model->keys(keys);
  for (const Key& key : keys.list) {
    const std::string spelled = look_up(key);
    if (auto assumed = key.read(meta, spelled)) meta.set(key.ours, std::move(*assumed));
  }
  model->agree(meta.origin);
  return model;
}

void complete_model(Metadata& meta) {
  complete_model(meta, [](const Key& key) { return key.ours; });
}

std::vector<TensorSlot> tensors_of(Model& model) {
  Slots slots;
  model.tensors(slots);
  return slots.all();
}

void expect_layers(const Model& model, size_t tensors, const std::string& file) {
  constexpr int64_t kListed = 64;  // missing layers for which match() names the tensor
  if (model.n_layers > int64_t(tensors) + kListed)
    fail(Exit::bad_file, "{}: the model has {} layers, but the file has only {} tensors", file,
         model.n_layers, tensors);
}

void expect_model(const ModelSource& source) {
  const auto tensors = infos_of(source);
  match(*model_with(source.meta, tensors), source.meta.str("general.architecture"), source.path,
        tensors, [](const TensorSlot&, size_t) {});
}

void expect_tensors(Model& model, const ModelSource& source) {
  match(model, source.kind, source.path, infos_of(source), [](const TensorSlot&, size_t) {});
}

void bind_tensors(Model& model, const std::string& kind, const Weights& w) {
  match(model, kind, w.path, infos_of(w), [&](const TensorSlot& slot, size_t i) {
    *slot.weight = &w.tensors[i];
    model.weights.push_back({slot.role, &w.tensors[i], slot.experts, slot.chosen});
    if (slot.role == Role::outlier_columns) check_numbers(w, slot, w.tensors[i]);
  });
  model.bound(w.path);
}

std::unique_ptr<Model> bind_model(const Weights& w) {
  std::unique_ptr<Model> model = model_with(w.meta, infos_of(w));
  bind_tensors(*model, w.meta.str("general.architecture"), w);
  return model;
}

}  // namespace chaski
