#include "models/architecture.h"

#include <set>
#include <string_view>
#include <unordered_map>

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

namespace {

const Architecture& architecture_of(const Metadata& meta) {
  const std::string& name = meta.str("general.architecture");
  if (const Architecture* a = find_architecture(name)) return *a;
  std::string known;
  for (const Architecture& a : architectures())
    known += (known.empty() ? "" : ", ") + std::string(a.name);
  fail(Exit::bad_file, "{}: general.architecture is {}, this chaski runs {}", meta.origin,
       escaped(name), known);
}

void bind(const TensorSlot& slot, const Weight& weight, const std::string& file) {
  const TensorInfo& t = weight.info;
  if (t.rows != slot.rows || t.cols != slot.cols)
    fail(Exit::bad_file, "{}: tensor {} has shape ({}, {}), expected ({}, {})", file, slot.name,
         t.rows, t.cols, slot.rows, slot.cols);
  if (slot.rows == 1 && t.format != Format::f32)
    fail(Exit::bad_file, "{}: tensor {} has format {}, expected f32", file, slot.name,
         info(t.format).name);
  *slot.weight = &weight;
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
  std::unique_ptr<Model> model = architecture_of(meta).make();
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

std::unique_ptr<Model> bind_model(const Weights& w) {
  std::unique_ptr<Model> model = model_of(w.meta);
  std::unordered_map<std::string_view, const Weight*> found;
  for (const Weight& t : w.tensors) found.emplace(t.info.name, &t);
  std::set<std::string> wanted;
  for (const TensorSlot& slot : tensors_of(*model)) {
    wanted.insert(slot.name);
    const auto at = found.find(slot.name);
    if (at == found.end() && slot.optional) continue;
    if (at == found.end()) fail(Exit::bad_file, "{}: tensor {} is missing", w.path, slot.name);
    bind(slot, *at->second, w.path);
    model->weights.push_back({slot.role, at->second});
  }
  for (const Weight& t : w.tensors)
    if (!wanted.count(t.info.name))
      fail(Exit::bad_file, "{}: tensor {} has no place in a {} model", w.path, escaped(t.info.name),
           w.meta.str("general.architecture"));
  model->bound(w.path);
  return model;
}

}  // namespace chaski
