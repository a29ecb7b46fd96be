// chaski pull: downloads a model to the first folder that `chaski list` searches. Prints its path
// to stdout.
#include <cctype>
#include <chrono>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "engine/shelf/hub.h"
#include "engine/shelf/inspection.h"
#include "engine/shelf/shelf.h"
#include "engine/shelf/short_names.h"
#include "main/flags/commands.h"
#include "main/flags/fetch_model.h"
#include "main/flags/options.h"
#include "main/terminal/json_output.h"
#include "main/terminal/output.h"
#include "main/terminal/signals.h"

namespace chaski {

namespace fs = std::filesystem;

namespace {

struct PullFlags {
  ModelWanted wanted;
  std::string token_file;
  JsonForm json;
};

std::string first_line_of(const std::string& file) {
  std::string text = read_text(file);
  text.resize(std::min(text.find_first_of("\r\n"), text.size()));
  if (text.empty())
    fail(Exit::usage, "--token-file {} is empty, expected an access token in the first line", file);
  return text;
}

bool is_named_as_model(const std::string& path) {
  return path.ends_with(".gguf") || path.ends_with(".quipu");
}

// For a model that chaski runs.
std::string command_for(const std::string& path) {
  return good_for(inspect_model(path, "")).starts_with("chat") ? "chat" : "run";
}

int pull(PullFlags& flags) {
  for (char& c : flags.wanted.sha256) c = char(std::tolower(static_cast<unsigned char>(c)));
  if (!flags.wanted.sha256.empty() && !is_sha256(flags.wanted.sha256))
    fail(Exit::usage, "--sha256 is {}, expected 64 hexadecimal digits", flags.wanted.sha256);
  if (flags.wanted.folder.empty()) flags.wanted.folder = first_folder_of_shelf();
  const Interruption interruption(Interruption::Scope::program);
  FetchOptions options;
  options.stop = &interruption.requested();
  options.notice = [](const std::string& line) { put_notice(line); };
  if (!flags.token_file.empty()) options.token = first_line_of(flags.token_file);

  const auto start = std::chrono::steady_clock::now();
  const RemoteModel model = remote_model(flags.wanted, options);
  uint64_t bytes = 0, fetched = 0;
  size_t proven = 0;
  std::vector<FetchedFile> all;
  JsonValue list = JsonValue::array();
  for (const RemoteFile& file : model.files) {
    const FetchedFile done = fetch_with_bar(file, options);
    if (done.stopped) {
      put_part_kept(file, done);
      break;
    }
    all.push_back(done);
    bytes += done.bytes, fetched += done.fetched, proven += done.proven;
    list.push_back({{"path", file.path},
                    {"bytes", done.bytes},
                    {"fetched", done.fetched},
                    {"sha256", done.sha256},
                    {"proven", done.proven}});
    if (flags.json.lines) put_event("file", list.back());
  }
  if (interruption.signal() != 0) end_by_signal(interruption.signal());
  const std::string refusal = refusal_of_fetched(model, all);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const std::string name = name_on_shelf(model.path);
  if (flags.json.any())
    flags.json.put_result(
        {{"model", name}, {"path", model.path}, {"files", list}, {"seconds", seconds}});
  else
    put(model.path + "\n");
  if (!refusal.empty() && is_named_as_model(model.path))
    put_notice("chaski cannot run it: " + refusal);
  put_summary(fmt::format(
      "{:.1f} MB in {}{}, {}{}", double(bytes) / 1e6, counted(model.files.size(), "file"),
      fetched == 0 ? ", already downloaded" : fmt::format(", downloaded in {:.1f} s", seconds),
      proven == model.files.size() ? "checksums match"
      : proven == 0
          ? std::string("only the lengths were checked, no checksums are known")
          : fmt::format("{} with a matching checksum, the others checked by length", proven),
      refusal.empty() ? fmt::format("; chaski {} -m {}", command_for(model.path), name) : ""));
  return int(Exit::done);
}

}  // namespace

Action declare_pull(Flags parser) {
  auto flags = std::make_shared<PullFlags>();
  parser
      .add("NAME", flags->wanted.what,
           fmt::format("OWNER/MODEL or OWNER/MODEL:QUANT on the hub {}, the address of its page, "
                       "https://HOST/FILE, or a short name of the table below",
                       host_of(default_hub().address)))
      .not_empty("a name or a URL")
      .required();
  parser
      .add("--to", flags->wanted.folder,
           "folder to write to (default: the first folder that chaski list searches)")
      .not_empty("a folder")
      .type("FOLDER");
  parser
      .add("--sha256", flags->wanted.sha256,
           "expected SHA-256 checksum of the file (default: from the hub)")
      .not_empty("64 hexadecimal digits")
      .type("HEX");
  parser
      .add("--file", flags->wanted.pattern,
           "files of the model to download, with * and ? (default: one GGUF model, or the "
           "safetensors and the files they need)")
      .not_empty("a name or pattern")
      .type("PATTERN");
  parser
      .add("--token-file", flags->token_file,
           "file whose first line is an access token for the hub")
      .not_empty("a file")
      .type("FILE");
  declare_json(parser, flags->json);
  Manual::Table table{"Short names", {}};
  for (const ShortName& one : short_names())
    table.rows.emplace_back(one.name, fmt::format("{}: {}, {:.0f} MB, {}", one.good_for, one.model,
                                                  double(one.bytes) / 1e6, one.licence));
  parser.table(std::move(table));
  parser.example("Download a small model to chat with", "chaski pull smollm2");
  parser.example("Download a file and check its checksum",
                 "chaski pull https://HOST/model.gguf --sha256 HEX");
  parser.example("Download from the hub into a folder, with a line of JSON for each file",
                 "chaski pull owner/model:q4_k_m --to models --jsonl");
  return [flags] { return pull(*flags); };
}

}  // namespace chaski
