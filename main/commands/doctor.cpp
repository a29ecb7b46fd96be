// chaski doctor: checks what decides how fast models run on this machine, one verdict a line.
#include <fmt/format.h>

#include <memory>
#include <string>

#include "engine/machine/machine.h"
#include "main/flags/commands.h"
#include "main/flags/options.h"
#include "main/terminal/json_output.h"
#include "main/terminal/output.h"

namespace chaski {

namespace {

const char* verdict_of(const Finding& f) {
  return f.absent ? "none" : f.advice.empty() ? "good" : "look";
}

int examine(bool json) {
  const std::vector<Finding> findings = examine_machine();
  JsonValue list = JsonValue::array();
  for (const Finding& f : findings) {
    if (json)
      list.push_back(
          {{"what", f.what}, {"verdict", verdict_of(f)}, {"found", f.found}, {"advice", f.advice}});
    else
      put(hanging(fmt::format("{:<14}{:<6}", f.what, verdict_of(f)),
                  escaped(f.found) + (f.advice.empty() ? "" : " (" + escaped(f.advice) + ")"), 20,
                  stdout_is_terminal() ? size_t(terminal_width()) : std::string::npos));
  }
  if (json) put_json({{"findings", list}});
  return int(Exit::done);
}

}  // namespace

Action declare_doctor(Flags parser) {
  auto json = std::make_shared<bool>();
  declare_json(parser, *json);
  parser.example("Check this machine", "chaski doctor");
  parser.example("Write a report to a file", "chaski doctor > machine.txt");
  parser.example("Write the result for a program", "chaski doctor --json");
  return [json] { return examine(*json); };
}

}  // namespace chaski
