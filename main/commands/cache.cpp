// chaski cache: lists the converted models in the cache folder, or removes them.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <filesystem>
#include <memory>

#include "engine/shelf/converted.h"
#include "engine/shelf/shelf.h"
#include "main/flags/commands.h"
#include "main/flags/options.h"
#include "main/terminal/json_output.h"
#include "main/terminal/output.h"

namespace chaski {

namespace {

struct CacheFlags {
  std::string keep_converted = "auto";
  bool empty = false, json = false;
};

std::string time_text(std::chrono::system_clock::time_point time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm local = {};
  ::localtime_r(&seconds, &local);
  return fmt::format("{:%Y-%m-%d %H:%M}", local);
}

int cache(const CacheFlags& flags) {
  const uint64_t limit = most_converted(keep_converted_of(flags.keep_converted));
  const std::vector<KeptModel> models = kept_models();
  if (flags.empty) drop_kept_models();
  uint64_t bytes = 0;
  JsonValue array = JsonValue::array();
  std::vector<std::vector<std::string>> rows;
  for (const KeptModel& model : models) {
    std::error_code none;
    bytes += model.bytes;
    const bool gone = model.source.empty() || !std::filesystem::exists(model.source, none);
    array.push_back({{"model", model.source},
                     {"file", model.file},
                     {"bytes", model.bytes},
                     {"used", std::chrono::system_clock::to_time_t(model.used)}});
    rows.push_back({size_text(model.bytes), "used " + time_text(model.used),
                    (model.source.empty() ? "of an unknown model" : escaped(model.source)) +
                        (gone && !model.source.empty() ? " (not there any more)" : "")});
  }
  if (flags.json)
    put_json({{"folder", converted_folder()},
              {"bytes", bytes},
              {"limit", limit},
              {"removed", flags.empty},
              {"models", array}});
  else if (!flags.empty)
    put(table(rows, "><<"));
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
  parser.add_switch("--empty", flags->empty,
                    "remove all converted models; chaski converts a model again when it is opened");
  declare_keep_converted(parser, flags->keep_converted);
  declare_json(parser, flags->json);
  parser.example("Show which models are kept, and how much disk they use", "chaski cache");
  parser.example("Remove them", "chaski cache --empty");
  parser.example("Write the result for a program", "chaski cache --json");
  return [flags] { return cache(*flags); };
}

}  // namespace chaski
