#include "models/import/hf/hf_config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/base/nearest.h"
#include "models/architecture.h"
#include "models/import/folder.h"
#include "models/import/hf/heads.h"
#include "models/import/json_file.h"
#include "models/nearest_structure.h"
#include "models/other_kinds.h"

namespace chaski {
namespace {

Structure structure_of(const Json& config, const std::string& folder) {
  Structure structure{true, {}, {}};
  const Json keys = config.has("text_config") ? config["text_config"] : config;
  keys.each([&](const std::string& key, const Json&) { structure.keys.push_back(key); });
  try {
    each_tensor_name(folder, [&](const std::string& name, const std::string&) {
      structure.tensors.push_back(name);
    });
  } catch (const Error&) {
    // The architecture is wrong in any case.
  }
  return structure;
}

const Architecture& architecture_of(const Json& config, const std::string& folder) {
  std::vector<std::string> known;
  for (const Architecture& a : architectures()) known.insert(known.end(), a.hf.begin(), a.hf.end());
  const Json names = config["architectures"], made = config["_target_"];
  // The class of the config, which the authors of Based store instead.
  const bool by_config = !names.present() && made.present();
  if (!by_config && names.size() != 1) names.wrong(fmt::format("a list with {}", one_of(known)));
  const Json given = by_config ? made : names.at(0);
  const std::string name = given.str();
  for (const Architecture& a : architectures())
    if (std::find(a.hf.begin(), a.hf.end(), name) != a.hf.end()) return a;
  refuse_other_kind(folder, name);
  given.wrong(expected_architecture(structure_of(config, folder)));
}

const Architecture& architecture_of_text(const Json& config, const std::string& folder) {
  const Json type = config["text_config"]["model_type"];
  for (const Architecture& a : architectures())
    for (const std::string& name : a.hf_text)
      if (type.str() == name) return a;
  type.wrong(expected_architecture(structure_of(config, folder)));
}

// The value at a place such as "rope_scaling.factor". In "per_layer_config.*.head_dim" the members
// of an object must agree.
Json at(const Json& config, std::string_view place) {
  const size_t dot = place.find('.');
  const std::string_view name = place.substr(0, dot), rest = place.substr(dot + 1);
  if (name == "*" && config.present()) {
    std::optional<Json> same;
    config.each([&](const std::string&, const Json& member) {
      const Json value = at(member, rest);
      if (same && !same->equals(value))
        value.wrong("the value of the other members of this object");
      same = value;
    });
    return same ? *same : config[name];
  }
  const Json value = config[name];
  return dot == place.npos ? value : at(value, rest);
}

// The first place that has a value. If none has, the first place whose object exists: the value is
// missing there.
const std::string& place_in(const Json& config, const std::vector<std::string>& places) {
  for (const std::string& place : places)
    if (at(config, place).present()) return place;
  for (const std::string& place : places)
    if (place.find('.') == place.npos || config.has(place.substr(0, place.find('.')))) return place;
  return places[0];
}

std::string word_of(const Key& key, const Json& value) {
  const std::string& found = value.str();
  std::vector<std::string> known;
  for (const std::string& ours : std::get<Key::Words>(key.member).names) {
    const size_t before = known.size();
    for (const auto& [theirs, meant] : key.hf_words) {
      if (found == theirs) return meant;
      if (meant == ours) known.push_back(theirs);
    }
    if (known.size() == before) known.push_back(ours);
  }
  if (std::find(known.begin(), known.end(), found) == known.end())
    value.wrong(expected_names(found, known));
  return found;
}

// An item may be a pair of a list and a count: the list repeated that often (GPT-Neo's
// attention_types).
std::vector<std::string> texts_of(const Json& value) {
  constexpr size_t kMost = 4096;  // layers
  if (!value.is_array()) value.wrong("an array of texts");
  std::vector<std::string> list;
  value.each([&](const Json& item) {
    if (!item.is_array()) return list.push_back(item.str());
    if (item.size() != 2) item.wrong("a pair of a list and its number of repetitions");
    const std::vector<std::string> part = texts_of(item.at(0));
    const int64_t times = item.at(1).integer();
    for (int64_t i = 0; i < times && list.size() <= kMost && !part.empty(); ++i)
      list.insert(list.end(), part.begin(), part.end());
    if (list.size() > kMost) value.wrong(fmt::format("at most {} texts", kMost));
  });
  return list;
}

std::vector<int64_t> integers_of(const Json& value) {
  if (!value.is_array()) value.wrong("an array of integers");
  std::vector<int64_t> list;
  value.each([&](const Json& item) { list.push_back(item.integer()); });
  return list;
}

std::vector<double> numbers_of(const Json& value) {
  if (!value.is_array()) value.wrong("an array of numbers");
  std::vector<double> list;
  value.each([&](const Json& item) { list.push_back(item.number()); });
  return list;
}

// Flags may be written as words, or as a text with a letter for each.
std::vector<int64_t> flags_of(const Key& key, const Json& value) {
  if (key.hf_words.empty()) return integers_of(value);
  if (!value.is_array() && !value.is_string()) value.wrong("an array of str");
  std::vector<int64_t> list;
  const auto take = [&](const std::string& word, const Json& item) {
    const auto at = std::find_if(key.hf_words.begin(), key.hf_words.end(),
                                 [&](const auto& pair) { return pair.first == word; });
    if (at == key.hf_words.end()) {
      std::vector<std::string> known;
      for (const auto& [theirs, ours] : key.hf_words) known.push_back(theirs);
      item.wrong(one_of(known));
    }
    list.push_back(at->second == "1");
  };
  if (value.is_string())
    for (const char letter : std::string(value.str())) take({letter}, value);
  else
    value.each([&](const Json& item) {
      take(item.is_integer() ? std::to_string(item.integer()) : item.str(), item);
    });
  return list;
}

// The list at a place such as "layers[].width": a value of each item of a list of objects. An item
// without it has 0.
Given list_at(const Key& key, const Json& config, const std::string& place) {
  const size_t dot = place.find("[].");
  std::vector<int64_t> integers;
  std::vector<double> numbers;
  at(config, place.substr(0, dot)).each([&](const Json& item) {
    const Json value = at(item, place.substr(dot + 3));
    if (key.kind == Kind::numbers)
      numbers.push_back(value.number(0));
    else
      integers.push_back(key.kind == Kind::flags ? value.boolean(false) : value.integer(0));
  });
  return key.kind == Kind::numbers ? Given(numbers) : Given(integers);
}
bool is_of_list(const std::string& place) { return place.find("[].") != place.npos; }

// An integer, or a list in which a number for each layer is the same.
int64_t one_integer(const Json& value) {
  if (!value.is_array() || value.size() == 0) return value.integer();
  const std::vector<int64_t> list = integers_of(value);
  if (std::ranges::count(list, list[0]) != std::ssize(list)) value.wrong("the same in all layers");
  return list[0];
}

Given read(const Key& key, const Json& value) {
  if (key.from_one && value.is_integer()) return key.from_one(value.integer());
  if (key.from_hf || key.from_hf_integer) {
    constexpr double kMost = 1e12;  // a product with a width of 2^22 stays an int64
    if (!(std::fabs(value.number()) <= kMost)) value.wrong(fmt::format("up to {}", kMost));
    return key.from_hf ? key.from_hf(value.number()) : key.from_hf_integer(value.integer());
  }
  if (key.kind == Kind::text) return word_of(key, value);
  if (key.kind == Kind::flag) return value.boolean(false);
  if (key.kind == Kind::number) return value.number();
  if (key.kind == Kind::integers) {
    std::vector<int64_t> list = integers_of(value);
    if (key.hf_filled)
      list.resize(std::max(list.size(), size_t(std::get<Key::Each<int64_t>>(key.member).count())),
                  *key.hf_filled);
    return list;
  }
  if (key.kind == Kind::flags) return flags_of(key, value);
  if (key.kind == Kind::numbers) return numbers_of(value);
  return key.hf_by_layer ? one_integer(value) : value.integer();
}

// The value null at one of the key's places.
std::optional<Json> place_of_null(const Json& config, const Key& key) {
  for (const std::string& place : key.hf)
    if (const Json value = at(config, place); value.is_null()) return value;
  return std::nullopt;
}

// Copies the key into `meta` if config.json has it. Returns the place where it was looked up.
std::string look_up(const Key& key, const Json& config, Metadata& meta) {
  if (key.hf.empty() || (key.applies && !key.applies())) return key.ours;
  if (key.hf_ignored && key.hf_ignored()) return key.ours;
  const std::string& place = place_in(config, key.hf);
  const Json value = at(config, is_of_list(place) ? place.substr(0, place.find("[].")) : place);
  const bool empty = key.hf_no_empty && value.is_array() && value.size() == 0;
  if (value.present() && is_of_list(place))
    meta.set(key.ours, to_value(list_at(key, config, place)));
  else if (value.present() && !empty)
    meta.set(key.ours, to_value(read(key, value)));
  else if (key.hf_required)
    value.wrong(kind_name(key.kind));
  else if (const auto null = place_of_null(config, key); key.hf_no_null && null)
    null->wrong(kind_name(key.kind));
  else if (key.hf_null && value.is_null())
    meta.set(key.ours, to_value(*key.hf_null));
  else if (key.hf_default)
    if (auto given = key.hf_default(meta.origin)) meta.set(key.ours, to_value(*given));
  return place;
}

std::string text_of(const Given& given) {
  if (auto* text = std::get_if<std::string>(&given)) return *text;
  if (auto* flag = std::get_if<bool>(&given)) return *flag ? "true" : "false";
  if (auto* whole = std::get_if<int64_t>(&given)) return std::to_string(*whole);
  if (auto* list = std::get_if<std::vector<int64_t>>(&given))
    return fmt::format("[{}]", fmt::join(*list, ", "));
  if (auto* texts = std::get_if<std::vector<std::string>>(&given))
    return fmt::format("[{}]", fmt::join(*texts, ", "));
  if (auto* list = std::get_if<std::vector<double>>(&given))
    return fmt::format("[{}]", fmt::join(*list, ", "));
  return fmt::format("{}", std::get<double>(given));
}

bool equals(const Json& value, const Given& given) {
  if (value.is_string() != std::holds_alternative<std::string>(given)) return false;
  if (auto* text = std::get_if<std::string>(&given)) return value.str() == *text;
  if (auto* flag = std::get_if<bool>(&given)) return value.boolean(false) == *flag;
  if (auto* whole = std::get_if<int64_t>(&given)) return value.integer() == *whole;
  if (auto* list = std::get_if<std::vector<int64_t>>(&given)) return integers_of(value) == *list;
  if (auto* texts = std::get_if<std::vector<std::string>>(&given)) return texts_of(value) == *texts;
  if (auto* list = std::get_if<std::vector<double>>(&given)) return numbers_of(value) == *list;
  return float(value.number()) == float(std::get<double>(given));  // as members are
}

void expect(const HfCondition& condition, const Json& config) {
  const Json value = at(config, place_in(config, condition.places));
  std::vector<std::string> texts;
  for (const Given& given : condition.allowed) texts.push_back(text_of(given));
  const auto is_allowed = [&](const Json& found) {
    return std::any_of(condition.allowed.begin(), condition.allowed.end(),
                       [&](const Given& given) { return equals(found, given); });
  };
  // null counts as false.
  if (value.is_null() && texts == std::vector<std::string>{"true"}) value.wrong("true");
  if (!value.present()) return;
  if (condition.each && value.is_array())
    return value.each([&](const Json& item) {
      if (!is_allowed(item)) item.wrong(one_of(texts));
    });
  if (!is_allowed(value))
    value.wrong(texts.empty() ? "nothing there" : condition.from + one_of(texts));
}

// A class may have a second name for models with experts, because GGUF files tell them apart.
std::string name_of(const Architecture& a, const Metadata& meta) {
  const std::string with_experts = std::string(a.name) + "_moe";
  const bool has_them = meta.integer("model.expert_count", 0) > 0;
  return has_them && find_architecture(with_experts) ? with_experts : a.name;
}

// Where transformers keeps the parameters of rotary positions, in one of two objects.
void expect_rope(const Keys& keys, const Json& config) {
  const bool turns = std::any_of(keys.list.begin(), keys.list.end(),
                                 [](const Key& key) { return key.ours == "model.rope_dim"; });
  const Json older = config["rope_scaling"], newer = config["rope_parameters"];
  for (const Json& value : {older, newer})
    if (!turns && value.size() > 0)
      value.wrong("no such key, because the model has no rotary positions");
  if (older.size() > 0 && newer.size() > 0 && !older.equals(newer))
    older.wrong("no such key together with rope_parameters");
}

// An object whose members have the numbers of some layers, which must be those of `layers`.
void expect(const HfLayers& layers, const Json& config, int64_t n_layers) {
  const Json object = config[layers.place];
  if (!object.present()) return;
  for (int64_t i = 0; i < n_layers; ++i) {
    const Json member = object[std::to_string(i)];
    if (member.present() != layers.wanted(i))
      member.wrong(fmt::format("{}, as {}", layers.wanted(i) ? "an object" : "nothing there",
                               layers.reason));
    if (member.present() && !member.has(layers.keys[0]))
      member[layers.keys[0]].wrong("it in every layer");
  }
  object.each([&](const std::string& layer, const Json& member) {
    int64_t number = -1;
    std::from_chars(layer.data(), layer.data() + layer.size(), number);
    if (number < 0 || number >= n_layers || std::to_string(number) != layer)
      member.wrong(fmt::format("layers 0 to {}", n_layers - 1));
    member.each([&](const std::string& name, const Json& value) {
      if (std::find(layers.keys.begin(), layers.keys.end(), name) == layers.keys.end())
        value.wrong(fmt::format("no other keys than {}", fmt::join(layers.keys, ", ")));
    });
  });
}

void append_ids(const Json& value, std::vector<int64_t>& ids) {
  if (!value.present()) return;
  if (!value.is_array()) return ids.push_back(value.integer());
  value.each([&](const Json& item) { ids.push_back(item.integer()); });
}

}  // namespace

void read_hf_keys(const Json& config, Model& model, Metadata& meta) {
  Keys keys;
  model.keys(keys);
  for (const Key& key : keys.list) {
    const std::string spelled = look_up(key, config, meta);
    key.read(meta, spelled);
  }
  model.agree(meta.origin);
  for (const HfCondition& condition : keys.conditions) expect(condition, config);
}

HfConfig read_hf_config(const std::string& folder, Metadata& meta) {
  const Json whole = read_json(folder + "/config.json");
  meta.origin = folder + "/config.json";
  HfConfig found;
  if (whole.has("quantization_config")) found.quantization = whole["quantization_config"];
  found.of_text = whole.has("text_config");
  const Json config = found.of_text ? whole["text_config"] : whole;
  const Architecture& architecture =
      found.of_text ? architecture_of_text(whole, folder) : architecture_of(config, folder);
  meta.set_str("general.architecture", architecture.name);
  const auto model = complete_model(architecture, meta,
                                    [&](const Key& key) { return look_up(key, config, meta); });
  meta.set_str("general.architecture", name_of(architecture, meta));
  Keys keys;
  model->keys(keys);
  for (const HfCondition& condition : keys.conditions) expect(condition, config);
  for (const HfLayers& layers : keys.layers) expect(layers, config, model->n_layers);
  for (const HfTensors& those : keys.tensors)
    if (const Json flag = config[those.flag]; flag.is_null() || !flag.boolean(those.usual))
      found.unwanted.push_back({those.endings, fmt::format("{} is {}", those.flag,
                                                           flag.present()   ? "false"
                                                           : flag.is_null() ? "null"
                                                                            : "missing")});
  expect({{"is_causal"}, {true}, false, ""}, config);
  expect_rope(keys, config);

  found.vocab_size = model->vocab;
  const auto said = [&](bool value) {
    for (const Json& part : {config, whole})
      if (part["tie_word_embeddings"].present() &&
          part["tie_word_embeddings"].boolean(value) == value)
        return true;
    return false;
  };
  found.tied = said(true) || (keys.hf_tied && !said(false));
  found.untied = said(false) && !found.tied;
  const auto value_of = [&](const char* key) { return whole.has(key) ? whole[key] : config[key]; };
  found.bos_id = value_of("bos_token_id").integer(-1);
  append_ids(value_of("eos_token_id"), found.eos_ids);
  const std::string generation = folder + "/generation_config.json";
  if (exists(generation)) append_ids(read_json(generation)["eos_token_id"], found.eos_ids);
  return found;
}

}  // namespace chaski
