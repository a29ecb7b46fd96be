#include "main/flags/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "engine/measure/kv_loss.h"
#include "engine/measure/perplexity.h"
#include "engine/passes/placement.h"
#include "engine/session/follow.h"
#include "engine/shelf/inspection.h"  // for expected_names()
#include "main/flags/formats.h"
#include "main/flags/ranks.h"
#include "main/flags/values.h"
#include "main/terminal/output.h"
#include "main/terminal/progress.h"

namespace chaski {

namespace {

constexpr int kMaxThreads = 1024;
constexpr int kMostSilence = 2000;  // milliseconds until a note says what chaski waits for

}  // namespace

std::vector<std::string> kv_names() {
  std::vector<std::string> names;
  for (const KvType& type : kKvTypes) names.push_back(type.name);
  return names;
}

void declare_model(Flags& flags, std::string& model) {
  flags
      .add("-m,--model", model,
           "model file or folder, or a name from chaski list (default: the bundled model)")
      .not_empty("a model file or folder")
      .model()
      .type("MODEL");
}

void declare_models(Flags& flags, std::vector<std::string>& models) {
  flags
      .add("-m,--model", models,
           "model file or folder, or a name from chaski list (default: the bundled model); "
           "NAME=MODEL: requests ask for it by this name; may be repeated")
      .one_each()
      .not_empty("a model file or folder")
      .model()
      .type("MODEL");
}

void declare_tokenizer(Flags& flags, std::string& tokenizer) {
  flags.add("--tokenizer", tokenizer, "tokenizer.bin file of a llama2.c model")
      .not_empty("a file")
      .type("FILE");
}

void declare_threads(Flags& flags, int& threads) {
  flags.add("-t,--threads", threads, "maximum number of threads (default: one per core)")
      .within(1, kMaxThreads)
      .type("N");
}

void declare_json(Flags& flags, bool& json) {
  flags.add_switch("--json", json, "write the result to standard output as JSON (docs/json.md)");
}

void declare_json(Flags& flags, JsonForm& json) {
  declare_json(flags, json.whole);
  flags
      .add_switch("--jsonl", json.lines,
                  "write JSON lines: one for each event as it happens, the result last")
      .excludes(flags.named("--json"));
}

void declare_shape(Flags& flags, std::string& shape) {
  const std::string shapes = fmt::format(
      "use random weights of a known shape instead of a model: SHAPE or SHAPE:FORMAT; shapes: {}",
      fmt::join(shape_names(), ", "));
  flags.add("--shape", shape, shapes)
      .not_empty("a shape")
      .type("SHAPE")
      .excludes(flags.named("--model"))
      .excludes(flags.named("--tokenizer"))
      .excludes(flags.named("--load"))
      .excludes(flags.named("--verify"));
}

ShapeOptions shape_of(const std::string& text) {
  ShapeOptions shape;
  const size_t colon = text.find(':');
  shape.shape = text.substr(0, colon);
  if (colon == std::string::npos) return shape;
  const std::optional<Format> format = format_named(text.substr(colon + 1));
  if (!format)
    fail(Exit::usage, "--shape has the unknown format {}, expected a format such as q4, q8 or f16",
         escaped(text.substr(colon + 1)));
  shape.format = *format;
  return shape;
}

void declare_chat_template(Flags& flags, std::string& given) {
  flags
      .add("--chat-template", given,
           fmt::format("use this chat template, not the model's own: a Jinja file, the Jinja text "
                       "itself, or the name of a format: {}",
                       fmt::join(ChatTemplate::names(), ", ")))
      .not_empty("a file or a name")
      .knows(ChatTemplate::names())
      .type("FILE");
}

TemplateChoice template_of(const std::string& given) {
  if (given.empty()) return {};
  const std::vector<std::string> names = ChatTemplate::names();
  if (std::ranges::count(names, given) > 0) return {given, "", ""};
  if (given.find("{%") != given.npos || given.find("{{") != given.npos)
    return {"", given, "--chat-template"};
  std::error_code none;
  if (!std::filesystem::exists(given, none))
    fail(Exit::usage, "--chat-template is {}, expected a Jinja file or {}", escaped(given),
         expected_names(given, names));
  return {"", read_text(given), given};
}

void ModelFlags::declare(Flags& flags, Kv kvs) {
  declare_model(flags, engine.model);
  declare_tokenizer(flags, engine.tokenizer);
  declare_running(flags, kvs);
}

void ModelFlags::declare(Flags& flags, std::vector<std::string>& models) {
  declare_models(flags, models);
  declare_tokenizer(flags, engine.tokenizer);
  declare_running(flags);
}

void ModelFlags::declare_running(Flags& flags, Kv kvs) {
  flags.add_switch("-v,--verbose", engine.verbose, "print more, such as why no GPU is used");
  declare_threads(flags, engine.threads);
  flags.add_switch("--threads-fixed", engine.threads_fixed,
                   "use exactly this many threads, even on a busy machine");
  flags
      .add("-c,--ctx", engine.context,
           "context size in tokens, prompt plus answer, such as 4k; 0: the model's maximum "
           "(default {})")
      .within(0, kMaxCount)
      .type("N");
  flags
      .add(
          "--rope-scaling", engine.rope_scaling,
          "replace the file's RoPE scaling: none, or linear:F, dynamic:F or yarn:F for F times the "
          "model's own context")
      .knows({"none", "linear:", "dynamic:", "yarn:"})
      .type("KIND:F");
  Flag flag = flags.add("--kv", kv, "format of the KV cache, as listed below (default {})")
                  .one_of(kv_names());
  flags.table({"KV cache formats", kv_formats(kv_names())});
  if (kvs == Kv::list)
    flag.list(int(std::size(kKvTypes))).type("FORMAT,...");
  else
    flag.single().type("FORMAT");
  flags.add("--load", load, "how to load a .quipu file: mmap, or copy into huge pages (default {})")
      .one_of({"mmap", "copy"})
      .type("HOW");
  flags
      .add(
          "--verify", verify,
          "when to compare a .quipu file with its checksums: always, once (again after it changed) "
          "or never (default {})")
      .one_of({"always", "once", "never"})
      .type("WHEN");
  declare_keep_converted(flags, keep_converted);
  flags
      .add("--expert-memory", expert_memory,
           "memory for the experts of a mapped model, such as 4G; the others are read from the "
           "file when they are chosen (default {}: as much as is free)")
      .not_empty("auto or a number of bytes such as 4G")
      .knows({"auto"})
      .type("SIZE");
  flags
      .add("--weight-memory", weight_memory,
           "memory for the layers of a mapped model without experts, such as 4G; the others are "
           "read from the file for every token (default {}: as much as is free)")
      .not_empty("auto or a number of bytes such as 4G")
      .knows({"auto"})
      .type("SIZE");
  flags
      .add("--device", engine.device,
           "device: cpu, cuda or cuda:N; auto uses a GPU if there is one (default {})")
      .knows({"auto", "cpu", "cuda"})
      .type("DEVICE");
  flags
      .add("--gpu-layers", gpu_layers,
           "run the last N layers on the GPU, the others on the CPU; all: refuse a GPU that "
           "cannot hold all layers (default {}: all that fit)")
      .one_of({"auto", "all"}, 0, kMaxCount)
      .type("N");
  flags.add_switch(
      "--cpu-experts", engine.cpu_experts,
      "keep the experts of the layers on the GPU in the CPU's memory, and compute them "
      "there");
}

void ModelFlags::declare_hosts(Flags& flags) {
  flags
      .add("--hosts", hosts,
           "compute the model together with other machines: this one and the others, such as a,b; "
           "mpirun starts chaski there (docs/fleet.md)")
      .hosts([this] { check_rank_speeds(); })
      .type("HOST,...");
  flags
      .add("--rank-speeds", rank_speeds,
           "relative speeds of these machines, such as 2,1: the first one computes two thirds of "
           "the model (default: all are equally fast)")
      .not_empty("a number for each machine, such as 2,1")
      .type("N,...");
}

namespace {

std::vector<double> speeds_of(const std::string& text) {
  std::vector<double> speeds;
  for (size_t at = 0, end; at <= text.size(); at = end + 1) {
    end = std::min(text.find(',', at), text.size());
    const auto speed = number_of<double>(text.substr(at, end - at));
    if (!speed || !(*speed > 0 && *speed < 1e6))
      fail(Exit::usage, "--rank-speeds {}",
           refusal(escaped(text), "a positive number for each machine, such as 2,1"));
    speeds.push_back(*speed);
  }
  return speeds;
}

}  // namespace

void ModelFlags::check_rank_speeds() const {
  if (!rank_speeds.empty())
    expect_rank_speeds(speeds_of(rank_speeds), 1 + int(std::ranges::count(hosts, ',')));
}

EngineOptions ModelFlags::options(const std::string& kv_type) const {
  EngineOptions options = engine;
  for (const KvType& type : kKvTypes)
    if (type.name == kv_type) options.kv = type.format;
  options.copy = load == "copy";
  options.verify = verify == "always" ? Verify::always
                   : verify == "once" ? Verify::once
                                      : Verify::never;
  options.keep_converted = keep_converted_of(keep_converted);
  if (expert_memory != "auto") options.expert_memory = bytes_of("--expert-memory", expert_memory);
  if (weight_memory != "auto") options.weight_memory = bytes_of("--weight-memory", weight_memory);
  options.gpu_layers = gpu_layers == "auto"  ? kAllThatFit
                       : gpu_layers == "all" ? kAllLayers
                                             : std::stoi(gpu_layers);
  options.link = ranks_link();
  if (!rank_speeds.empty()) options.rank_speeds = speeds_of(rank_speeds);
  if (!rank_speeds.empty() && !options.link)
    fail(Exit::usage, "--rank-speeds is for several machines, expected --hosts too");
  options.notice =
      options.wait = [](const std::string& line) { put_notice(with_name_of_model(line)); };
  return options;
}

KeepConverted keep_converted_of(const std::string& text) {
  if (text == "auto") return std::nullopt;
  return text == "no" ? 0 : bytes_of("--keep-converted", text);
}

void declare_keep_converted(Flags& flags, std::string& text) {
  flags
      .add("--keep-converted", text,
           "how much disk the cache folder may use for models that had to be converted to .quipu, "
           "such as 20G; no: keep none (default {}: a tenth of the free disk)")
      .not_empty("auto, no or a number of bytes such as 20G")
      .knows({"auto", "no"})
      .type("SIZE");
}

std::shared_ptr<Engine> open_engine(EngineOptions options) {
  std::optional<ProgressBar> bar;
  options.upload = [&, more = options.upload](uint64_t done, uint64_t all) {
    if (more) more(done, all);
    if (!bar) bar.emplace(ProgressScale{double(all) / 1e6, "MB"});
    bar->show({"to the GPU", done, all});
  };
  // Notices are held back until the model is open, so that an error is printed alone.
  struct Held {
    std::vector<std::string> lines;
    bool over = false;
  };
  const auto held = std::make_shared<Held>();
  const auto print = options.notice;
  options.notice = [held, print](const std::string& line) {
    held->over ? print(line) : held->lines.push_back(line);
  };
  std::shared_ptr<Engine> engine = options.link ? open_on_all({options}) : Engine::open(options);
  bar.reset();
  held->over = true;
  static std::set<std::string> printed;  // over all models that this process opens
  for (const std::string& line : held->lines)
    if (printed.insert(line).second) print(line);
  return engine;
}

void put_saturation() {
  static bool reported = false;
  const std::string note = kv_saturation();
  if (!note.empty() && !std::exchange(reported, true)) put_notice(note);
}

namespace {

// A backslash before any other character is kept.
std::string without_escapes(const std::string& text) {
  constexpr std::string_view kLetters = "ntr\\\"'", kMeant = "\n\t\r\\\"'";
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t at = text[i] == '\\' && i + 1 < text.size() ? kLetters.find(text[i + 1])
                                                             : std::string_view::npos;
    out += at == std::string_view::npos ? text[i] : kMeant[at];
    if (at != std::string_view::npos) ++i;
  }
  return out;
}

}  // namespace

void PromptFlags::declare(Flags& flags) {
  // A text that is dropped is perhaps a question that gets no answer.
  text_flag = flags.add("-p,--prompt", text, "the input text").notes_if_repeated().type("TEXT");
  file_flag = flags
                  .add("-f,--file", files,
                       "read the input text from FILE, after the text of -p; -: from standard "
                       "input (default: standard input). Several are joined")
                  .one_each()
                  .not_empty("a file")
                  .type("FILE");
  flags.add_switch("-e,--escape", escape,
                   "replace the escapes \\n, \\t, \\r, \\\\, \\\" and \\' in -p");
}

void PromptFlags::declare_pipe(Flags& flags) {
  flags
      .add("--pipe", pipe.emplace("last"),
           "where piped text goes if there is -p or -f: last (after them), first, or no (it is not "
           "read) (default {})")
      .one_of({"last", "first", "no"})
      .type("WHERE");
}

void PromptFlags::declare_special(Flags& flags) {
  flags.add_switch("--parse-special", parse_special,
                   "read control tokens spelled in the text, such as <|im_start|>, as what they "
                   "are; without it they are text");
}

Spelled PromptFlags::spelled(const Tokenizer& tokenizer, const std::string& text) const {
  constexpr size_t kMostNamed = 3;
  if (parse_special) return Spelled::control;
  const std::vector<TokenId> tokens = tokenizer.control_tokens_in(text);
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(tokens.size(), kMostNamed); ++i)
    names.push_back(escaped(tokenizer.raw(tokens[i])));
  if (tokens.size() > kMostNamed)
    names.push_back(counted(tokens.size() - kMostNamed, "other control token"));
  if (!tokens.empty())
    put_notice(fmt::format(
        "the prompt contains {}, which {} read as text; --parse-special reads such tokens as what "
        "they are, and chaski chat writes them itself",
        fmt::join(names, ", "), tokens.size() == 1 ? "is" : "are"));
  return Spelled::text;
}

bool PromptFlags::names_standard_input() const { return std::ranges::count(files, "-") > 0; }

bool PromptFlags::reads_standard_input() const {
  if (names_standard_input()) return true;
  if (stdin_is_terminal() || pipe == "no") return false;
  return !given() || (pipe && standard_input_is_open());
}

std::string PromptFlags::without_line_end(std::string text) const {
  if (!pipe || keeps_line_end) return text;
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

std::optional<std::string> PromptFlags::read() const {
  if (std::ranges::count(files, "-") > 1)
    fail(Exit::usage, "-f - is given twice, but standard input can be read only once");
  std::vector<std::string> parts;
  if (text_flag.given()) parts.push_back(escape ? without_escapes(text) : text);
  std::optional<size_t> place;  // of standard input
  for (const std::string& file : files)
    if (file != "-")
      parts.push_back(without_line_end(read_text(file)));
    else
      place = parts.size();
  if (reads_standard_input()) {
    if (given() && !names_standard_input() && !standard_input_is_ready(kMostSilence))
      put_notice(
          "waiting for standard input, which is joined with -p and -f (--pipe no ignores it)");
    std::string piped = without_line_end(read_text(""));
    if (pipe == "first") place = 0;
    if (!piped.empty())
      parts.insert(parts.begin() + ptrdiff_t(place.value_or(parts.size())), piped);
  }
  if (parts.empty()) return std::nullopt;
  if (!pipe && given() && !names_standard_input() && standard_input_has_text())
    put_notice("standard input is not read, because the text is given");
  std::erase(parts, "");
  return fmt::format("{}", fmt::join(parts, "\n\n"));
}

std::string PromptFlags::required() const {
  std::optional<std::string> input = read();
  if (!input)
    fail(Exit::usage, "no text given, expected -p TEXT, -f FILE or text on standard input");
  return *input;
}

void WindowFlags::declare(Flags& flags) {
  model.engine.context = 512;
  model.declare_running(flags);
  flags.named("--ctx").help("window size in tokens (default 512)").within(kLeastWindow, kMaxCount);
  text.declare(flags);
  flags.add("--chunks", windows, "maximum number of windows; 0: the whole text (default {})")
      .within(0, kMaxCount)
      .type("N");
}

// llama.cpp removes the last newline of a text, and figures should be comparable with its own.
std::string WindowFlags::read() const {
  std::string all = text.required();
  if (all.ends_with('\n')) all.pop_back();
  return all;
}

int WindowFlags::windows_of(size_t tokens, int window) const {
  const int all = chaski::windows_of(tokens, window);
  const bool one = text.files.size() == 1 && text.files[0] != "-" && !text.text_flag.given();
  const std::string name = one ? text.files[0] + ": the text" : "the text";
  if (all == 0)
    fail(Exit::usage, "{} has {}, expected at least {}, the size of one window (see --ctx)", name,
         counted(tokens, "token"), window);
  return windows > 0 && windows <= all ? windows : all;
}

void put_rest_note(size_t tokens, int window, int windows) {
  const size_t rest = tokens % size_t(window);
  if (rest > 0 && windows == chaski::windows_of(tokens, window))
    put_notice(
        fmt::format("the text has {}; the last {} do not fill a window of {}, and are not scored",
                    counted(tokens, "token"), rest, window));
}

}  // namespace chaski
