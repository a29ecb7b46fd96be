// chaski cache: lists the converted models in the cache folder, or what a folder of `chaski serve
// --cache` holds, or removes it.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <filesystem>
#include <memory>

#include "engine/requests/cached_models.h"
#include "engine/requests/disk_cache.h"
#include "engine/shelf/converted.h"
#include "engine/shelf/shelf.h"
#include "main/flags/commands.h"
#include "main/flags/options.h"
#include "main/terminal/json_output.h"
#include "main/terminal/output.h"

namespace chaski {

namespace {

struct CacheFlags {
  std::string keep_converted = "auto", folder;
  bool empty = false, json = false;
};

std::string time_text(std::chrono::system_clock::time_point time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm local = {};
  ::localtime_r(&seconds, &local);
  return fmt::format("{:%Y-%m-%d %H:%M}", local);
}

std::string prefixes_text(size_t n) { return n == 1 ? "1 prefix" : fmt::format("{} prefixes", n); }

std::string name_shown(const std::string& model) {
  std::error_code none;
  if (model.empty()) return "of an unknown model";
  return escaped(model) + (std::filesystem::exists(model, none) ? "" : " (not there any more)");
}

int cache_of_server(const CacheFlags& flags) {
  std::error_code none;
  if (!std::filesystem::is_directory(flags.folder, none))
    fail(Exit::io, "{}: is not a folder, expected one of chaski serve --cache", flags.folder);
  const std::vector<CachedModel> models = cached_models(flags.folder);
  // An empty one may be the folder of a server that has kept nothing yet.
  if (models.empty() && !std::filesystem::is_empty(flags.folder, none) && !none)
    fail(Exit::io,
         "{}: holds no cache of chaski serve --cache, which has a folder for each model, named by "
         "{} hexadecimal digits",
         flags.folder, DiskCache::kFolderDigits);
  if (flags.empty) drop_cached_models(flags.folder);
  uint64_t bytes = 0;
  size_t answers = 0, prefixes = 0;
  JsonValue array = JsonValue::array();
  std::vector<std::vector<std::string>> rows;
  for (const CachedModel& model : models) {
    bytes += model.bytes, answers += model.answers, prefixes += model.prefixes;
    array.push_back({{"model", model.model},
                     {"file", model.folder},
                     {"bytes", model.bytes},
                     {"used", std::chrono::system_clock::to_time_t(model.used)},
                     {"answers", model.answers},
                     {"prefixes", model.prefixes}});
    rows.push_back({size_text(model.bytes), counted(model.answers, "answer"),
                    prefixes_text(model.prefixes), "used " + time_text(model.used),
                    name_shown(model.model)});
  }
  if (flags.json)
    put_json(
        {{"folder", flags.folder}, {"bytes", bytes}, {"removed", flags.empty}, {"models", array}});
  else if (!flags.empty)
    put(table(rows, ">>><<"));
  const std::string all =
      fmt::format("{} and {} of {}, {}", counted(answers, "answer"), prefixes_text(prefixes),
                  counted(models.size(), "model"), size_text(bytes));
  put_summary(fmt::format("{}{} {} {}", flags.empty ? "removed " : "", all,
                          flags.empty ? "from" : "in", escaped(flags.folder)));
  return int(Exit::done);
}

int cache(const CacheFlags& flags) {
  if (!flags.folder.empty()) return cache_of_server(flags);
  const uint64_t limit = most_converted(keep_converted_of(flags.keep_converted));
  const std::vector<KeptModel> models = kept_models();
  if (flags.empty) drop_kept_models();
  uint64_t bytes = 0;
  JsonValue array = JsonValue::array();
  std::vector<std::vector<std::string>> rows;
  for (const KeptModel& model : models) {
    bytes += model.bytes;
    array.push_back({{"model", model.source},
                     {"file", model.file},
                     {"bytes", model.bytes},
                     {"used", std::chrono::system_clock::to_time_t(model.used)}});
    rows.push_back(
        {size_text(model.bytes), "used " + time_text(model.used), name_shown(model.source)});
  }
  if (flags.json)
    put_json({{"folder", converted_folder()},
              {"bytes", bytes},
              {"limit", limit},
              {"removed", flags.empty},
              {"models", array}});
  else if (!flags.empty)
    put(table(rows, "><<"));
  if (converted_folder().empty()) {
    put_summary("there is no folder for converted models: set HOME or XDG_CACHE_HOME");
    return int(Exit::done);
  }
  const std::string all =
      fmt::format("{}, {}", counted(models.size(), "converted model"), size_text(bytes));
  put_summary(flags.empty ? fmt::format("removed {} from {}", all, escaped(converted_folder()))
                          : fmt::format("{} of at most {} in {}", all, size_text(limit),
                                        escaped(converted_folder())));
  return int(Exit::done);
}

}  // namespace

Action declare_cache(Flags parser) {
  auto flags = std::make_shared<CacheFlags>();
  parser
      .add("DIR", flags->folder, "a folder of chaski serve --cache; default: the converted models")
      .type("DIR");
  parser.add_switch("--empty", flags->empty,
                    "remove the listed files; a model is converted again when it is opened, and a "
                    "prompt is read again");
  declare_keep_converted(parser, flags->keep_converted);
  declare_json(parser, flags->json);
  parser.example("Show which models are kept, and how much disk they use", "chaski cache");
  parser.example("Remove them", "chaski cache --empty");
  parser.example("Write the result for a program", "chaski cache --json");
  return [flags] { return cache(*flags); };
}

}  // namespace chaski
