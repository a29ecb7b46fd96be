#include "main/api/model_state.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "engine/shelf/inspection.h"  // for own_context()
#include "engine/shelf/model_file.h"

namespace chaski {

namespace {

constexpr const char* kKeepExpected =
    R"(seconds, or a time such as "5m"; 0: unload at once, -1: keep until the memory is needed)";

// A number and a unit at the beginning of `text`, which are removed from it. Nothing if there is no
// number or the unit is unknown. Without a unit: seconds.
std::optional<double> take_time(std::string_view& text) {
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}, {"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}};
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !std::isfinite(number)) return std::nullopt;
  text.remove_prefix(size_t(end - text.data()));
  if (text.empty()) return number;
  for (const auto& [unit, seconds] : kUnits)
    if (text.starts_with(unit)) {
      text.remove_prefix(unit.size());
      return number * seconds;
    }
  return std::nullopt;
}

// Adds a tensor to the sums: `bytes` by format.
void add_tensor(const TensorInfo& tensor, ModelFacts& facts,
                std::map<std::string, uint64_t>& bytes) {
  bytes[std::string(info(tensor.format).name)] += tensor.bytes();
  facts.bytes += tensor.bytes();
  facts.weights += double(tensor.rows) * double(tensor.cols);
}

// The mixtures of formats that GGUF's general.file_type has a name for.
constexpr std::pair<int, const char*> kMixtures[] = {{11, "q3_k_s"}, {12, "q3_k_m"}, {13, "q3_k_l"},
                                                     {14, "q4_k_s"}, {15, "q4_k_m"}, {16, "q5_k_s"},
                                                     {17, "q5_k_m"}, {21, "q2_k_s"}};

// The formats with the most bytes, at most two, the first one with the most.
std::vector<std::string> most_common(const std::map<std::string, uint64_t>& bytes) {
  std::vector<std::pair<uint64_t, std::string>> all;
  for (const auto& [format, sum] : bytes) all.emplace_back(sum, format);
  std::ranges::stable_sort(all, std::ranges::greater{}, &std::pair<uint64_t, std::string>::first);
  std::vector<std::string> most;
  for (const auto& [sum, format] : all)
    if (most.size() < 2) most.push_back(format);
  return most;
}

// The name of a GGUF file's mixture, else the format with the most bytes. Programs that write a
// model in other formats may keep the key. So the mixture counts only if its own format is one of
// the two with the most bytes: q4_k for q4_k_m.
std::string format_of(const Metadata& meta, const std::string& path,
                      const std::map<std::string, uint64_t>& bytes) {
  const std::vector<std::string> most = most_common(bytes);
  const std::string common = most.empty() ? "" : most[0];
  if (!path.ends_with(".gguf")) return common;
  const int64_t type = meta.integer("gguf.general.file_type", -1);
  const auto at = std::ranges::find(kMixtures, type, [](const auto& one) { return one.first; });
  if (at == std::end(kMixtures)) return common;
  const std::string mixture = at->second;
  return std::ranges::count(most, mixture.substr(0, mixture.rfind('_'))) > 0 ? mixture : common;
}

}  // namespace

std::optional<double> seconds_of(const std::string& text) {
  if (text == "forever") return -1;
  std::string_view rest = text;
  const bool negative = rest.starts_with('-');
  if (negative) rest.remove_prefix(1);
  double sum = 0;
  do {
    if (rest.empty() || rest[0] < '0' || rest[0] > '9') return std::nullopt;
    const std::optional<double> part = take_time(rest);
    if (!part) return std::nullopt;
    sum += *part;
  } while (!rest.empty());
  return negative && sum > 0 ? -1 : sum;
}

std::optional<double> read_keep(const Field& fields) {
  std::optional<double> keep;
  for (const char* name : {"ttl", "keep_alive"}) {
    const auto field = fields.find(name);
    if (!field) continue;
    keep = field->is_text() ? seconds_of(field->text()) : field->number();
    if (!keep) field->wrong(kKeepExpected);
  }
  return keep;
}

ModelFacts facts_of(const Engine& engine) {
  ModelFacts facts;
  std::map<std::string, uint64_t> bytes;
  for (const Weight& tensor : engine.weights()->tensors) add_tensor(tensor.info, facts, bytes);
  facts.path = engine.path(), facts.format = format_of(engine.meta(), facts.path, bytes);
  facts.family = engine.meta().str("general.architecture", "");
  facts.context = engine.context_length(), facts.vocab = engine.vocab_size();
  return facts;
}

ModelFacts facts_of(const ModelSource& source, int context) {
  ModelFacts facts;
  std::map<std::string, uint64_t> bytes;
  for (const TensorSource& tensor : source.tensors) add_tensor(tensor.info, facts, bytes);
  facts.path = source.path, facts.format = format_of(source.meta, facts.path, bytes);
  facts.family = source.meta.str("general.architecture", "");
  facts.context = context > 0 ? context : int(own_context(source));
  facts.vocab = int(source.meta.integer("model.vocab_size", 0));
  return facts;
}

ModelState state_of(const ServedModel& served) {
  ModelState state;
  state.name = served.name, state.created = served.created;
  state.facts = facts_of(served.engine());
  state.bytes = served.engine().file_bytes();
  state.on_device = served.engine().device() != "cpu";
  return state;
}

const char* word_of(ModelState::Kind kind) {
  using Kind = ModelState::Kind;
  return kind == Kind::loaded ? "loaded" : kind == Kind::loading ? "loading" : "unloaded";
}

ModelHeader header_of(std::shared_ptr<const ServedModel> served) {
  const Engine& engine = served->engine();
  ModelHeader header;
  header.state = state_of(*served), header.defaults = served->defaults;
  header.chat_template = served->chat_template, header.meta = &engine.meta();
  header.tokenizer = engine.has_tokenizer() ? &engine.tokenizer() : nullptr;
  header.owner = std::move(served);
  return header;
}

ModelHeader header_of(ModelState state, const std::string& tokenizer_file) {
  struct Opened {
    OpenModel model;
    std::unique_ptr<Tokenizer> tokenizer;
  };
  const std::string path = state.facts.path == "(bundled)" ? "" : state.facts.path;
  const auto opened = std::make_shared<Opened>(open_model(path, tokenizer_file));
  opened->tokenizer = tokenizer_of(opened->model.source.meta);
  ModelHeader header;
  header.state = std::move(state);
  header.meta = &opened->model.source.meta, header.tokenizer = opened->tokenizer.get();
  header.owner = opened;
  return header;
}

}  // namespace chaski
