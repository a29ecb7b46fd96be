#include "main/flags/manual.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/session/engine.h"  // for Error
#include "main/flags/commands.h"
#include "main/flags/environment.h"
#include "main/flags/formats.h"
#include "main/terminal/output.h"

namespace chaski {

namespace {

constexpr size_t kWidest = 100, kColumn = 28, kLeastColumn = 12;

constexpr const char* kSummary = "Runs, quantizes and inspects language models on this machine.";

using Row = std::pair<std::string, std::string>;

const std::vector<Row> kExits = {
    {"0", "success"},
    {"2", "wrong flag, command, config file, grammar, schema or recipe"},
    {"3",
     "damaged or unsupported model, or another malformed input: chat "
     "template, tools, API keys, conversation, measurements, KV cache"},
    {"4", "not enough memory"},
    {"5", "a file, the network or the disk failed"},
    {"6", "the GPU failed or cannot be used"},
    {"7", "the prompt is too long for the context"},
    {"8", "the model computed NaN or infinity"},
    {"9",
     "the answer was cut off before it satisfied its grammar, "
     "schema or expression, or before its tool call was complete"},
    {"10", "chaski batch: some lines have an error in their result"},
    {"130, 141, 143", "ended by SIGINT, SIGPIPE or SIGTERM"}};

constexpr const char* kAboutFormats =
    "Weight formats of chaski quantize, with their bits per weight. The first six suffice for most "
    "uses.";

const std::vector<Manual::Example> kExamples = {
    {"Let the bundled model tell a story", "chaski run --seed 10"},
    {"Chat with a model", "chaski chat -m model.gguf"},
    {"List all flags of a command", "chaski help run"}};

// "-m, --model MODEL"; "IN" for a positional argument.
std::string title(const ListedFlag& flag) {
  const std::string names = fmt::format("{}", fmt::join(flag.names, ", "));
  if (names.empty()) return flag.position;
  return flag.value.empty() ? names : names + " " + flag.value;
}

// The flags under a heading; "" for flags without one. A flag without help is not listed: the
// command refuses it and says why.
std::vector<Row> rows_of(const Manual& command, const std::string& heading) {
  std::vector<Row> rows;
  for (const ListedFlag& flag : command.flags)
    if (!flag.names.empty() && !flag.help.empty() && flag.heading == heading)
      rows.emplace_back(title(flag), flag.help);
  return rows;
}

std::vector<Row> positionals_of(const Manual& command) {
  std::vector<Row> rows;
  for (const ListedFlag& flag : command.flags)
    if (!flag.position.empty()) rows.emplace_back(flag.position, flag.help);
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
  return {{"-h, --help", "print this help; after a command, its help"},
          {"--version", "print the version"}};
}

std::vector<Row> commands() {
  std::vector<Row> rows;
  for (const Command& command : kCommands) rows.emplace_back(command.name, command.help);
  return rows;
}

std::vector<Row> topics() {
  std::vector<Row> rows;
  for (const Topic& topic : kTopics) rows.emplace_back(topic.name, topic.help);
  return rows;
}

// Help text in lines of the terminal's width, at most kWidest.
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

// Escapes text for roff.
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

bool takes_model_and_prompt(std::string_view command) {
  return command == "run" || command == "chat";
}

std::string usage_of(const Manual& command) {
  std::string line = fmt::format("chaski {} [FLAG...]", command.command);
  for (const ListedFlag& flag : command.flags)
    if (!flag.position.empty())
      line += flag.required ? " " + flag.position : " [" + flag.position + "]";
  if (takes_model_and_prompt(command.command)) line += " [MODEL [PROMPT]]";
  return line;
}

std::string help_of(const Manual& command) {
  HelpText help;
  help.line(command.help);
  help.line("Usage: " + usage_of(command));
  help.rows("Arguments", positionals_of(command));
  help.rows("Flags", rows_of(command, ""));
  for (const std::string& heading : headings_of(command))
    help.rows(heading, rows_of(command, heading));
  for (const Manual::Table& table : command.tables) help.rows(table.heading, table.rows);
  help.examples(command.examples);
  return help.text();
}

std::string help_of_topic(const std::string& name) {
  if (name != kTopics[0].name) return "";
  HelpText help;
  help.line(kAboutFormats);
  help.line("Usage: chaski quantize [FLAG...] IN OUT TYPE");
  for (const Manual::Table& table : weight_format_tables()) help.rows(table.heading, table.rows);
  return help.text();
}

std::string help_of_program() {
  HelpText help;
  help.line(kSummary);
  help.line("Usage: chaski COMMAND [FLAG...]");
  help.rows("Commands", commands());
  help.rows("Topics of chaski help", topics());
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
  page.rows(positionals_of(command));
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
  page.section("Weight formats");
  page.line(kAboutFormats);
  for (const Manual::Table& table : weight_format_tables()) {
    page.part(table.heading);
    page.rows(table.rows);
  }
  page.section("Environment");
  page.rows(variables());
  page.section("Files");
  page.rows({{"~/.config/chaski/config.toml",
              "Defaults for flags, by their long names: at the top for every command, in a table "
              "[chat] for one command, in a table [models.\"PATTERN\"] for models whose name or "
              "file name matches. The command line overrides the file."}});
  page.section("Exit status");
  page.rows(kExits);
  page.examples(kExamples);
  std::vector<std::string> others;
  for (const Command& command : kCommands) others.push_back(std::string("chaski-") + command.name);
  page.see_also(others);
  return page.text();
}

void refuse_missing(const Manual& manual, std::string_view what) {
  for (const ListedFlag& flag : manual.flags)
    if (!flag.position.empty() && what.starts_with(flag.position + " "))
      fail(Exit::usage, "{} is missing ({}), expected {}", flag.position, flag.help,
           usage_of(manual));
  throw Error(Exit::usage, std::string(what));
}

}  // namespace chaski
