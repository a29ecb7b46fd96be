// chaski list: lists the models found on this machine, by the names that -m accepts.
#include <fmt/format.h>

#include <memory>

#include "engine/shelf/inspection.h"
#include "engine/shelf/shelf.h"
#include "main/flags/commands.h"
#include "main/flags/options.h"
#include "main/terminal/json_output.h"
#include "main/terminal/output.h"

namespace chaski {

namespace {

int list(const JsonForm& json) {
  const std::vector<ShelvedModel> models = models_on_shelf();
  JsonValue array = JsonValue::array();
  std::vector<std::vector<std::string>> rows;
  for (const ShelvedModel& m : models) {
    const std::string refusal = refusal_of(m.path);
    JsonValue one = {{"name", m.name},
                     {"path", m.path},
                     {"bytes", m.bytes},
                     {"place", m.place},
                     {"runs", refusal.empty()}};
    if (!refusal.empty()) one["refusal"] = refusal;
    if (json.lines) put_event("model", one);
    array.push_back(std::move(one));
    rows.push_back({escaped(m.name), fmt::format("{:.1f} MB", double(m.bytes) / 1e6), m.place,
                    escaped(m.path)});
    if (!refusal.empty()) rows.back().push_back("cannot run: " + escaped(refusal));
  }
  if (json.whole) put_json({{"models", array}});
  if (!json.any()) put(table(rows, "<><<<"));
  if (models.empty())
    put_notice(
        "no models found; set CHASKI_MODELS to your folders with models, separated by colons, or "
        "give a file with -m");
  return int(Exit::done);
}

}  // namespace

Action declare_list(Flags parser) {
  auto json = std::make_shared<JsonForm>();
  declare_json(parser, *json);
  parser.example("List the names that -m accepts", "chaski list");
  parser.example("Search your own folders, too", "CHASKI_MODELS=~/models:/data/models chaski list");
  parser.example("Write the result for a program", "chaski list --json");
  return [json] { return list(*json); };
}

}  // namespace chaski
