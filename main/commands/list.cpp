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

struct Listed {
  ShelvedModel model;
  std::string good_for, refusal;
  int64_t context = 0;  // in tokens; 0: unknown
};

Listed look_at(ShelvedModel model) {
  Listed listed{std::move(model), "", ""};
  try {
    const Inspection found = inspect_model(listed.model.path, "");
    listed.refusal = found.refusal;
    listed.good_for = good_for(found);
    listed.context = own_context(found.source);
  } catch (const Error& error) {
    listed.refusal = error.what();
  }
  return listed;
}

std::string context_text(int64_t tokens) {
  if (tokens == 0) return "";
  return tokens % 1024 == 0 ? fmt::format("{}k context", tokens / 1024)
                            : fmt::format("{} context", tokens);
}

JsonValue json_of(const Listed& one) {
  JsonValue json = {{"name", one.model.name},
                    {"path", one.model.path},
                    {"bytes", one.model.bytes},
                    {"place", one.model.place},
                    {"runs", one.refusal.empty()}};
  if (one.context > 0) json["context"] = one.context;
  if (!one.good_for.empty()) json["good_for"] = one.good_for;
  if (!one.refusal.empty()) json["refusal"] = one.refusal;
  return json;
}

int list(const JsonForm& json, bool verbose) {
  JsonValue array = JsonValue::array();
  std::vector<std::vector<std::string>> rows;
  std::string unreadable;
  size_t n = 0;
  for (ShelvedModel& model : models_on_shelf()) {
    const Listed one = look_at(std::move(model));
    ++n;
    array.push_back(json_of(one));
    if (json.lines) put_event("model", array.back());
    // Models of another kind can be read, but chaski does not run them.
    if (!one.refusal.empty() && one.good_for.empty()) {
      unreadable += (unreadable.empty() ? "" : ", ") + escaped(one.model.name);
      if (!verbose) continue;
    }
    rows.push_back({escaped(one.model.name),
                    fmt::format("{:.1f} MB", double(one.model.bytes) / 1e6),
                    context_text(one.context),
                    one.refusal.empty()    ? one.good_for
                    : one.good_for.empty() ? "cannot run: " + escaped(one.refusal)
                                           : one.good_for + ", which chaski does not run",
                    one.model.place});
    if (verbose) rows.back().push_back(escaped(one.model.path));
  }
  if (json.whole) put_json({{"models", array}});
  if (!json.any()) put(table(rows, "<>><<<"));
  if (!json.any() && !verbose && !unreadable.empty())
    put_notice(fmt::format("cannot run: {} (chaski inspect NAME or list -v says why)", unreadable));
  if (n == 0)
    put_notice(
        "no models found; chaski pull smollm2 downloads a small one. CHASKI_MODELS names your "
        "folders with models, separated by colons");
  for (const std::string& folder : missing_folders_of_user())
    put_notice(fmt::format("CHASKI_MODELS names {}, which is not a folder", folder));
  return int(Exit::done);
}

}  // namespace

Action declare_list(Flags parser) {
  auto json = std::make_shared<JsonForm>();
  auto verbose = std::make_shared<bool>(false);
  declare_json(parser, *json);
  parser.add_switch("-v,--verbose", *verbose,
                    "print paths too, and for each model that cannot run the reason");
  parser.example("List the names that -m accepts", "chaski list");
  parser.example("Search your own folders, too", "CHASKI_MODELS=~/models:/data/models chaski list");
  parser.example("Write the result for a program", "chaski list --json");
  return [json, verbose] { return list(*json, *verbose); };
}

}  // namespace chaski
