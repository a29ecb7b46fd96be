#include "main/flags/manual.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "main/flags/commands.h"
#include "main/flags/environment.h"
#include "main/terminal/output.h"

namespace chaski {

namespace {

constexpr size_t kWidest = 100, kColumn = 28, kLeastColumn = 12;

constexpr const char* kSummary = "Runs, quantizes and inspects language models on this machine.";

using Row = std::pair<std::string, std::string>;

const std::vector<Row> kExits = {{"0", "done"},
                                 {"2", "usage: a flag, a command or the config file"},
                                 {"3", "bad model file"},
                                 {"4", "not enough memory"},
                                 {"5", "input or output"},
                                 {"6", "device"},
                                 {"7", "prompt too long"},
                                 {"8", "numbers that are not finite"},
                                 {"130, 141, 143", "ended by a signal"}};

const std::vector<Manual::Example> kExamples = {
    {"A story by the model that is part of the program", "chaski run --seed 10"},
    {"A conversation", "chaski chat -m model.gguf"},
    {"Every flag of a command", "chaski help run"}};

// "-m, --model MODEL"; "IN" for what is told by its place.
std::string title(const ListedFlag& flag) {
  const std::string names = fmt::format("{}", fmt::join(flag.names, ", "));
  if (names.empty()) return flag.place;
  return flag.value.empty() ? names : names + " " + flag.value;
}

// The flags under a heading; "": those without.
std::vector<Row> rows_of(const Manual& command, const std::string& heading) {
  std::vector<Row> rows;
  for (const ListedFlag& flag : command.flags)
    if (!flag.names.empty() && flag.heading == heading) rows.emplace_back(title(flag), flag.help);
  return rows;
}

std::vector<Row> places_of(const Manual& command) {
  std::vector<Row> rows;
  for (const ListedFlag& flag : command.flags)
    if (!flag.place.empty()) rows.emplace_back(flag.place, flag.help);
  return rows;
}

std::vector<std::string> headings_of(const Manual& command) {
  std::vector<std::string> headings;
  for (const ListedFlag& flag : command.flags)
    if (!flag.heading.empty() && std::ranges::count(headings, flag.heading) == 0)
      headings.push_back(flag.heading);
  return headings;
}

std::vector<Row> variables() {
  std::vector<Row> rows;
  for (const Variable& variable : kVariables) rows.emplace_back(variable.name, variable.help);
  return rows;
}

std::vector<Row> program_flags() {
  return {{"-h, --help", "this list; behind a command, its flags"},
          {"--version", "which chaski this is"}};
}

std::vector<Row> commands() {
  std::vector<Row> rows;
  for (const Command& command : kCommands) rows.emplace_back(command.name, command.help);
  return rows;
}

// Lines as wide as the terminal, and of a length that reads well.
class HelpText {
 public:
  void line(const std::string& text) { text_ += text + "\n"; }

  void rows(const std::string& heading, const std::vector<Row>& rows) {
    if (rows.empty()) return;
    text_ += fmt::format("\n{}:\n", heading);
    size_t widest = 0;
    for (const auto& [word, help] : rows) widest = std::max(widest, word.size() + 4);
    column_ = std::clamp(widest, kLeastColumn, kColumn);
    for (const auto& [word, help] : rows) row(word, help);
  }

  void examples(const std::vector<Manual::Example>& examples) {
    text_ += "\nExamples:\n";
    for (const auto& [does, line] : examples) text_ += fmt::format("  {}:\n    {}\n", does, line);
  }

  std::string text() const { return text_; }

 private:
  void row(const std::string& word, const std::string& help) {
    std::string line = fmt::format("  {:<{}}", word, column_ - 2);
    if (line.size() > column_) {
      text_ += line + "\n";
      line.assign(column_, ' ');
    }
    text_ += hanging(std::move(line), help, column_, width_);
  }

  const size_t width_ =
      stdout_is_terminal() ? std::min(size_t(terminal_width()), kWidest) : kWidest;
  size_t column_ = kColumn;
  std::string text_;
};

// Text as roff reads it.
std::string roff(std::string_view text) {
  constexpr std::pair<char, const char*> kNames[] = {
      {'\\', "\\e"},  {'-', "\\-"},   {'\'', "\\(aq"}, {'`', "\\(ga"},
      {'^', "\\(ha"}, {'~', "\\(ti"}, {'"', "\\(dq"}};
  std::string out = text.starts_with('.') ? "\\&" : "";
  for (const char c : text) {
    const auto name = std::ranges::find(kNames, c, &std::pair<char, const char*>::first);
    out += name == std::end(kNames) ? std::string(1, c) : name->second;
  }
  return out;
}

std::string capitals(std::string text) {
  for (char& c : text) c = char(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

class ManPage {
 public:
  ManPage(const std::string& name, const std::string& help) {
    text_ = fmt::format(".TH {} 1 {} \"chaski {}\" \"chaski\"\n.SH NAME\n{} \\- {}\n",
                        roff(capitals(name)), kDate, kVersion, roff(name), roff(help));
  }

  void section(const std::string& heading) { text_ += ".SH " + roff(capitals(heading)) + "\n"; }
  void part(const std::string& heading) { text_ += ".SS " + roff(heading) + "\n"; }
  void line(const std::string& text) { text_ += roff(text) + "\n"; }
  void bold(const std::string& text) { text_ += ".B " + roff(text) + "\n"; }

  void rows(const std::vector<Row>& rows) {
    for (const auto& [word, help] : rows)
      text_ += fmt::format(".TP\n.B {}\n{}\n", roff(word), roff(help));
  }

  void examples(const std::vector<Manual::Example>& examples) {
    section("Examples");
    for (const auto& [does, line] : examples)
      text_ += fmt::format(".TP\n{}:\n.B {}\n", roff(does), roff(line));
  }

  void see_also(const std::vector<std::string>& names) {
    section("See also");
    for (const std::string& name : names)
      text_ += fmt::format(".BR {} (1){}\n", roff(name), name == names.back() ? "" : ",");
  }

  std::string text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace

std::string usage_of(const Manual& command) {
  std::string line = fmt::format("chaski {} [FLAG...]", command.command);
  for (const ListedFlag& flag : command.flags)
    if (!flag.place.empty()) line += flag.required ? " " + flag.place : " [" + flag.place + "]";
  return line;
}

std::string help_of(const Manual& command) {
  HelpText help;
  help.line(command.help);
  help.line("Usage: " + usage_of(command));
  help.rows("Arguments", places_of(command));
  help.rows("Flags", rows_of(command, ""));
  for (const std::string& heading : headings_of(command))
    help.rows(heading, rows_of(command, heading));
  for (const Manual::Table& table : command.tables) help.rows(table.heading, table.rows);
  help.examples(command.examples);
  return help.text();
}

std::string help_of_program() {
  HelpText help;
  help.line(kSummary);
  help.line("Usage: chaski COMMAND [FLAG...]");
  help.rows("Commands", commands());
  help.rows("Flags", program_flags());
  help.rows("Environment", variables());
  help.rows("Exit status", kExits);
  help.examples(kExamples);
  return help.text();
}

std::string man_page(const Manual& command) {
  ManPage page("chaski-" + command.command, command.help);
  page.section("Synopsis");
  page.bold(usage_of(command));
  page.section("Options");
  page.rows(places_of(command));
  page.rows(rows_of(command, ""));
  for (const std::string& heading : headings_of(command)) {
    page.part(heading);
    page.rows(rows_of(command, heading));
  }
  for (const Manual::Table& table : command.tables) {
    page.section(table.heading);
    page.rows(table.rows);
  }
  page.examples(command.examples);
  page.see_also({"chaski"});
  return page.text();
}

std::string man_page_of_program() {
  ManPage page("chaski", "run, quantize and inspect language models on this machine");
  page.section("Synopsis");
  page.bold("chaski COMMAND [FLAG...]");
  page.section("Commands");
  page.rows(commands());
  page.section("Options");
  page.rows(program_flags());
  page.section("Environment");
  page.rows(variables());
  page.section("Files");
  page.rows({{"~/.config/chaski/config.toml",
              "defaults for flags, by their long names: at the top for every command, in a table "
              "[chat] for one, in a table [models.\"NAME\"] for models whose name or file name "
              "fits the pattern. What is typed wins."}});
  page.section("Exit status");
  page.rows(kExits);
  page.examples(kExamples);
  std::vector<std::string> others;
  for (const Command& command : kCommands) others.push_back(std::string("chaski-") + command.name);
  page.see_also(others);
  return page.text();
}

}  // namespace chaski
