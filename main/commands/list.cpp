// chaski list: the models that lie on this machine, by the names that -m takes.
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
    if (!refusal.empty()) rows.back().push_back("does not run: " + escaped(refusal));
  }
  if (json.whole) put_json({{"models", array}});
  if (!json.any()) put(table(rows, "<><<<"));
  if (models.empty())
    put_notice(
        "there is no model where they are looked for: set CHASKI_MODELS to your folders, with a "
        "colon between two, or give a file with -m");
  return int(Exit::done);
}

}  // namespace

Action declare_list(Flags parser) {
  auto json = std::make_shared<JsonForm>();
  declare_json(parser, *json);
  parser.example("What -m takes on this machine", "chaski list");
  parser.example("With folders of your own", "CHASKI_MODELS=~/models:/data/models chaski list");
  parser.example("For a program", "chaski list --json");
  return [json] { return list(*json); };
}

}  // namespace chaski
