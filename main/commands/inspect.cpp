// chaski inspect: shows what is in a model file, without running it.
#include <fmt/format.h>

#include <memory>

#include "engine/session/memory_need.h"
#include "engine/shelf/inspection.h"
#include "engine/shelf/model_file.h"
#include "main/commands/layer_order.h"
#include "main/flags/commands.h"
#include "main/flags/options.h"
#include "main/terminal/json_output.h"
#include "main/terminal/output.h"
#include "main/terminal/states_output.h"

namespace chaski {

namespace {

struct InspectFlags {
  std::string file, tokenizer;
  bool json = false, verify = false;
};

constexpr size_t kMostShown = 80, kMostItems = 4;

// For a table: shortens long texts and adds their length.
std::string shortened(std::string_view text) {
  return text.size() <= kMostShown
             ? escaped(text)
             : fmt::format("{}... ({} bytes)", escaped(text.substr(0, kMostShown)), text.size());
}

struct Shown {
  std::string operator()(int64_t value) const { return std::to_string(value); }
  std::string operator()(double value) const { return fmt::format("{:.6g}", value); }
  std::string operator()(const std::string& value) const { return shortened(value); }
  std::string operator()(std::string_view value) const { return shortened(value); }
  template <class List>
  std::string operator()(const List& values) const {
    std::string text = "[";
    for (size_t i = 0; i < std::min(values.size(), kMostItems); ++i)
      text += (i > 0 ? ", " : "") + (*this)(values[i]);
    return text +
           (values.size() > kMostItems ? fmt::format(", ...] ({} items)", values.size()) : "]");
  }
};

struct AsJson {
  JsonValue operator()(int64_t value) const { return value; }
  JsonValue operator()(double value) const { return value; }
  JsonValue operator()(const std::string& value) const { return value; }
  // Prints only the first items of long lists such as vocabularies.
  template <class List>
  JsonValue operator()(const List& values) const {
    const bool whole = values.size() <= 64;
    JsonValue items = JsonValue::array();
    for (size_t i = 0; i < (whole ? values.size() : kMostItems); ++i) items.push_back(values[i]);
    if (whole) return items;
    return {{"items", values.size()}, {"first", items}};
  }
};

std::string shown(const Value& value) {
  if (value.type == ValueType::boolean) return std::get<int64_t>(value.data) ? "true" : "false";
  return std::visit(Shown{}, value.data);
}

JsonValue as_json(const Value& value) {
  if (value.type == ValueType::boolean) return std::get<int64_t>(value.data) != 0;
  return std::visit(AsJson{}, value.data);
}

// The size of the KV cache in --kv's default format; nothing for a file that chaski cannot run.
std::optional<KvStates> states_of(const Inspection& found) {
  if (!found.refusal.empty()) return std::nullopt;
  const EngineOptions usual;
  const std::optional<StateBytes> bytes = state_bytes(found.source, usual.kv);
  if (!bytes) return std::nullopt;
  return KvStates{std::string(info(usual.kv).name), *bytes};
}

std::string needs_table(const Inspection& found) {
  std::vector<std::vector<std::string>> rows;
  for (const Need& need : found.needs)
    rows.push_back({need.what, shortened(need.name),
                    need.here              ? "here"
                    : need.nearest.empty() ? "missing"
                                           : "missing, nearest: " + need.nearest});
  const std::string text = "needs:\n" + table(rows, "<<<", "  ");
  if (!found.refusal.empty()) return text + "chaski cannot run it: " + found.refusal + "\n";
  return text + (found.source.meta.has("tokenizer.kind")
                     ? "chaski can run it\n"
                     : "chaski can only bench it, because it has no tokenizer\n");
}

// The quantization errors of a tensor, as recorded in the file; empty if none are.
std::string losses_of(const ModelSource& source, const TensorSource& tensor) {
  const size_t at = size_t(&tensor - source.tensors.data());
  const auto value = [&](const char* key) {
    const Floats& all = source.meta.floats(key);
    return all.size() == source.tensors.size() ? all[at] : 0;
  };
  std::string text;
  if (const double x = value("quantize.errors"); x > 0) text += fmt::format("lost {:.2e}", x);
  if (const double x = value("quantize.output_errors"); x > 0)
    text += fmt::format(", of the outputs {:.2e} (by search {:.2e})", x,
                        value("quantize.search_errors"));
  return text;
}

void put_table(const Inspection& found) {
  const ModelSource& source = found.source;
  std::string text = fmt::format("{}: {}\n", escaped(source.path), source.kind);
  std::vector<std::vector<std::string>> values, tensors;
  for (const auto& [key, value] : source.meta.all()) values.push_back({escaped(key), shown(value)});
  for (const TensorSource* tensor : by_layers(
           source.tensors, [](auto& t) -> auto& { return t.info.name; })) {
    const TensorInfo& t = tensor->info;
    tensors.push_back({escaped(t.name), std::to_string(t.rows), "x", std::to_string(t.cols),
                       std::string(info(t.format).name), fmt::format("{} bytes", t.bytes()),
                       losses_of(source, *tensor)});
  }
  for (const UnreadTensor* t : by_layers(
           source.unread, [](auto& t) -> auto& { return t.name; }))
    tensors.push_back({escaped(t->name), fmt::format("{}", fmt::join(t->shape, " x ")), "", "",
                       escaped(t->format)});
  text += table(values, "<<", "  ") + table(tensors, "<><<<><", "  ");
  const ModelTotals totals = totals_of(source);
  text += fmt::format("{} tensors, {} weights, {} bytes, {:.2f} bits per weight", totals.tensors,
                      totals.weights, totals.bytes, totals.bits_per_weight());
  const auto read = found.refusal.empty() ? weight_bytes_a_token(source) : std::nullopt;
  text += read ? fmt::format("; a token reads {} bytes\n", *read) : "\n";
  if (const auto states = states_of(found)) text += states_line(*states);
  put(text + needs_table(found));
}

void put_file_json(const Inspection& found, bool verified) {
  const ModelSource& source = found.source;
  JsonValue metadata = JsonValue::object(), tensors = JsonValue::array();
  for (const auto& [key, value] : source.meta.all()) metadata[key] = as_json(value);
  for (const TensorSource& tensor : source.tensors) {
    const TensorInfo& t = tensor.info;
    tensors.push_back({{"name", t.name},
                       {"format", info(t.format).name},
                       {"rows", t.rows},
                       {"cols", t.cols},
                       {"bytes", t.bytes()}});
  }
  for (const UnreadTensor& t : source.unread)
    tensors.push_back({{"name", t.name}, {"format", t.format}, {"shape", t.shape}});
  JsonValue needs = JsonValue::array();
  for (const Need& need : found.needs) {
    needs.push_back({{"what", need.what}, {"name", need.name}, {"here", need.here}});
    if (!need.nearest.empty()) needs.back()["nearest"] = need.nearest;
  }
  const ModelTotals totals = totals_of(source);
  JsonValue json = {{"file", source.path},
                    {"kind", source.kind},
                    {"weights", totals.weights},
                    {"weight_bytes", totals.bytes},
                    {"bits_per_weight", totals.bits_per_weight()},
                    {"metadata", metadata},
                    {"tensors", tensors},
                    {"needs", needs},
                    {"runs", found.refusal.empty() && source.meta.has("tokenizer.kind")}};
  if (!found.refusal.empty())
    json["refusal"] = found.refusal;
  else if (const auto read = weight_bytes_a_token(source))
    json["weight_bytes_a_token"] = *read;
  if (const auto states = states_of(found)) json["states"] = states_json(*states);
  if (verified) json["verified"] = true;
  put_json(json);
}

int inspect(const InspectFlags& flags) {
  const Inspection found = inspect_model(flags.file, flags.tokenizer);
  const ModelSource& source = found.source;
  if (flags.verify) {
    if (!source.verify)
      fail(Exit::usage, "{} is a {}, expected a .quipu file for --verify", flags.file, source.kind);
    verify_source(source);
  }
  if (flags.json)
    put_file_json(found, flags.verify);
  else
    put_table(found);
  if (flags.verify && !flags.json) put("every tensor matches its checksum\n");
  return int(Exit::done);
}

}  // namespace

Action declare_inspect(Flags parser) {
  auto flags = std::make_shared<InspectFlags>();
  parser.add("FILE", flags->file, "model file or folder")
      .not_empty("a model file or folder")
      .model()
      .required()
      .type("FILE");
  declare_tokenizer(parser, flags->tokenizer);
  parser.add_switch("--verify", flags->verify,
                    "read all weights and compare them with their checksums (.quipu only)");
  declare_json(parser, flags->json);
  parser.example("Show what is in a file, and whether chaski can run it",
                 "chaski inspect model.gguf");
  parser.example("Check that a file is undamaged", "chaski inspect model.quipu --verify");
  parser.example("Write the result for a program", "chaski inspect model.gguf --json");
  return [flags] { return inspect(*flags); };
}

}  // namespace chaski
