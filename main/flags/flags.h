// The flags of a subcommand: a small interface to CLI11. Only flags.cpp includes CLI11's headers,
// because they take longer to compile than most of chaski's files.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace chaski {

// Description of a flag, from which --help, man pages, completion and the config file are made.
struct ListedFlag {
  std::vector<std::string> names;  // "-m", "--model"; empty for a positional argument
  std::string position;            // "IN"; empty for a flag that has only names
  std::string help, heading;
  std::string value;                  // "MODEL"; empty for a switch
  std::vector<std::string> values;    // offered by completion; others may be valid, too
  std::vector<std::string> excludes;  // names of flags it cannot be combined with
  bool required = false, repeats = false, model = false;
  bool notes_if_repeated = false;  // Flag::notes_if_repeated()
  bool fetches = false;            // the value is a model that is downloaded if it is not here
  std::string* text = nullptr;     // the variable of a flag with one text
  // Of a flag that names the machines on which the command starts: refuses others of its flags.
  std::function<void()> check_hosts = {};
  bool by_config = false;  // its value comes from the config file
  bool unnamed = false;    // its value was typed without its name

  std::string name() const { return names.empty() ? position : names.back(); }
};

// Description of a command: the only source of its help, man page and completion.
struct Manual {
  struct Table {
    std::string heading;
    std::vector<std::pair<std::string, std::string>> rows;  // a word and its meaning
  };
  struct Example {
    const char *does, *line;
  };
  std::string command, help;
  std::deque<ListedFlag> flags;  // in the order of their declaration
  std::vector<Table> tables;
  std::vector<Example> examples;

  const ListedFlag* flag(const std::string& name) const;  // null if there is none
};

// The upper bound of Flag::within() for numbers without one.
constexpr int kMaxCount = std::numeric_limits<int>::max();

// Sets the properties of one flag where it is declared.
class Flag {
 public:
  Flag() = default;
  Flag(CLI::Option* option, ListedFlag* listed) : option_(option), listed_(listed) {}

  Flag& type(const char* name);  // name of the value in the help
  Flag& help(std::string text);  // replaces the help it was declared with
  Flag& required();
  Flag& not_empty(const char* expected);
  Flag& excludes(const Flag& other);
  // The range is printed in errors only: in the help, most ranges would not help a reader.
  Flag& within(int least, int most);
  Flag& model();  // a path, or a name from `chaski list`, which is replaced with its path
  // Names of machines, on which the command starts (ranks.h). Before that it calls `check`, which
  // throws Error(usage) if another flag does not suit them.
  Flag& hosts(std::function<void()> check);
  Flag& hub();  // a model of the hub, which is downloaded and replaced with its path
  // Ignores case, and accepts the names that other programs use for a format (value_here()).
  // `instead` says what is expected in place of a name that it knows, and "" for other names.
  Flag& one_of(std::vector<std::string> names, std::string (*instead)(std::string) = nullptr);
  Flag& one_of(std::vector<std::string> names, int least, int most);  // a name or a number
  Flag& knows(std::vector<std::string> values);  // for completion; not a restriction
  Flag& list(int most);                          // takes up to `most` values, separated by commas
  Flag& single();                                // takes one value, although its variable is a list
  Flag& one_each();  // takes one value each time; may be given several times
  // If it is given again, a note says that the last value is used. For other flags, --verbose does.
  Flag& notes_if_repeated();

  bool given() const;
  bool typed() const { return given() && !listed_->by_config; }
  bool unnamed() const { return listed_->unnamed; }  // as the prompt in `chaski run MODEL PROMPT`
  std::string name() const { return listed_->name(); }

 private:
  CLI::Option* option_ = nullptr;
  ListedFlag* listed_ = nullptr;
};

class Flags {
 public:
  Flags(CLI::App& app, Manual& manual) : app_(app), manual_(manual) {}

  // `names` is "-p,--prompt", or "IN" for a positional argument. `value` keeps its default if the
  // flag is not given, and replaces {} in "default {}" of the help. The whole text has to be a
  // decimal number (CLI11 itself would read "" as 0 and "010" as 8). An int may end in k (times
  // 1024) or M (times 1048576).
  Flag add(const char* names, std::string& value, const std::string& help);
  Flag add(const char* names, int& value, const std::string& help);
  Flag add(const char* names, double& value, const std::string& help);
  Flag add(const char* names, std::vector<std::string>& values, const std::string& help);
  Flag add(const char* names, std::vector<int32_t>& values, const std::string& help);
  Flag add_switch(const char* names, bool& value, const std::string& help);
  // A flag whose text is parsed by `take`, which calls wrong_flag() for an invalid text.
  Flag add_read(const char* names, std::function<void(const std::string&)> take,
                const std::string& help);
  Flag named(const char* name);
  // Puts the flags declared after this call under a heading in the help.
  void heading(const char* text) { heading_ = text; }
  // Adds a table below the flags, which explains words used as values.
  void table(Manual::Table table) { manual_.tables.push_back(std::move(table)); }
  void example(const char* does, const char* line) { manual_.examples.push_back({does, line}); }

 private:
  Flag listed(CLI::Option* option, const char* names, const std::string& help,
              const char* value = "");

  CLI::App& app_;
  Manual& manual_;
  const char* heading_ = "";
};

// Parses words that do not come from the command line as flags of a command `name`. Returns the
// long names of the given flags, without dashes. Throws Error(usage), whose lists of names also
// have `others`: names that the caller takes itself.
std::vector<std::string> read_flags(const std::string& name, std::vector<std::string> words,
                                    const std::function<void(Flags&)>& declare,
                                    const std::vector<std::string>& others = {});

// The long names of all declared flags, without dashes.
std::vector<std::string> names_of_flags(const std::function<void(Flags&)>& declare);

// Whether the command takes `chaski run MODEL PROMPT` for -m MODEL and -p PROMPT.
bool takes_model_and_prompt(std::string_view command);

// Replaces a model's path at the start of a line with the name that the user typed: paths in the
// stores of other programs are long and hard to recognise.
std::string with_name_of_model(const std::string& line);

// Parses a number that may not fit into an int. Calls wrong_flag() for anything else; `otherwise`
// names other values that are allowed, such as "-1 or ".
uint64_t whole_number(const std::string& flag, const std::string& text,
                      const std::string& otherwise = "");

// Throws a usage error in the parser's form: "--prompt is "1,,2", expected ...".
[[noreturn]] void wrong_flag(const std::string& flag, const std::string& why);

}  // namespace chaski
