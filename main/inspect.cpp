// chaski inspect: what is in a model file, without running it.
#include <memory>

#include "engine/model_file.h"
#include "main/commands.h"
#include "main/json_output.h"
#include "main/options.h"
#include "main/output.h"

namespace chaski {

namespace {

struct InspectFlags {
  std::string file, tokenizer;
  bool json = false, verify = false;
};

constexpr size_t kMostText = 80, kMostItems = 4;

// For a table: long texts and lists are cut, and it is said that they are.
std::string shortened(std::string_view text) {
  return text.size() <= kMostText
             ? escaped(text)
             : fmt::format("{}... ({} bytes)", escaped(text.substr(0, kMostText)), text.size());
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
  // Vocabularies are what `chaski tokenize` is for.
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

void put_table(const ModelSource& source) {
  std::string text = fmt::format("{}: {}\n", escaped(source.path), source.kind);
  for (const auto& [key, value] : source.meta.all())
    text += fmt::format("  {:<36}{}\n", escaped(key), shown(value));
  for (const TensorSource& tensor : source.tensors) {
    const TensorInfo& t = tensor.info;
    text += fmt::format("  {:<28}{:>8} x {:<8}{:<8}{:>14} bytes\n", escaped(t.name), t.rows, t.cols,
                        info(t.format).name, t.bytes());
  }
  const ModelTotals totals = totals_of(source);
  put(text + fmt::format("{} tensors, {} weights, {} bytes, {:.2f} bits per weight\n",
                         totals.tensors, totals.weights, totals.bytes, totals.bits_per_weight()));
}

void put_file_json(const ModelSource& source, bool verified) {
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
  const ModelTotals totals = totals_of(source);
  JsonValue json = {{"file", source.path},
                    {"kind", source.kind},
                    {"weights", totals.weights},
                    {"weight_bytes", totals.bytes},
                    {"bits_per_weight", totals.bits_per_weight()},
                    {"metadata", metadata},
                    {"tensors", tensors}};
  if (verified) json["verified"] = true;
  put_json(json);
}

int inspect(const InspectFlags& flags) {
  const ModelSource source = open_model(flags.file, flags.tokenizer).source;
  if (flags.verify) {
    if (!source.verify)
      fail(Exit::usage, "{}: is a {}, expected a .quipu file for --verify", flags.file,
           source.kind);
    verify_source(source);
  }
  if (flags.json)
    put_file_json(source, flags.verify);
  else
    put_table(source);
  if (flags.verify && !flags.json) put("every tensor matches its checksum\n");
  return int(Exit::done);
}

}  // namespace

Action declare_inspect(Flags parser) {
  auto flags = std::make_shared<InspectFlags>();
  parser.add("FILE", flags->file, "model file or folder")
      .not_empty("a model file or folder")
      .required();
  declare_tokenizer(parser, flags->tokenizer);
  parser.add_switch("--verify", flags->verify,
                    "read everything and compare with the checksums (.quipu)");
  declare_json(parser, flags->json);
  return [flags] { return inspect(*flags); };
}

}  // namespace chaski
