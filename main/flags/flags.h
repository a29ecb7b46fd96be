// The flags of a subcommand: the little of CLI11 that chaski uses. CLI11's own headers, which cost
// more to compile than most of chaski's files, are seen by flags.cpp alone.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace chaski {

// A flag as --help, man pages, completion and the config file know it.
struct ListedFlag {
  std::vector<std::string> names;  // "-m", "--model"; none: told by its place
  std::string place;               // "IN"; empty for what has a name only
  std::string help, heading;
  std::string value;                  // "MODEL"; empty for a switch
  std::vector<std::string> values;    // some that a shell may offer
  std::vector<std::string> excludes;  // names of flags that it cannot stand beside
  bool required = false, repeats = false, model = false;
  bool by_config = false;  // what it has comes from the file of defaults

  std::string name() const { return names.empty() ? place : names.back(); }
};

// What a command tells of itself, and all that is told of it elsewhere is made of.
struct Manual {
  struct Table {
    std::string heading;
    std::vector<std::pair<std::string, std::string>> rows;  // a word, and what it means
  };
  struct Example {
    const char *does, *line;
  };
  std::string command, help;
  std::deque<ListedFlag> flags;  // in the order of their declaration
  std::vector<Table> tables;
  std::vector<Example> examples;

  const ListedFlag* flag(const std::string& name) const;  // null: it has none
};

// What a user may say about one flag, told where it is declared.
class Flag {
 public:
  Flag() = default;
  Flag(CLI::Option* option, ListedFlag* listed) : option_(option), listed_(listed) {}

  Flag& type(const char* name);  // of the value, in the help
  Flag& help(const char* text);  // in place of what it was declared with
  Flag& required();
  Flag& not_empty(const char* expected);
  Flag& excludes(const Flag& other);
  // An error says the range. The help does not, because most ranges would tell a reader nothing.
  Flag& within(int least, int most);
  Flag& model();  // a file, or a name of `chaski list`, for which its path is taken
  // Small and capital letters are the same, and a format may have the name it has elsewhere.
  Flag& one_of(std::vector<std::string> names);
  Flag& one_of(const char* name, int least, int most);  // the name, or a number
  Flag& knows(std::vector<std::string> values);         // among others; shells offer them
  Flag& list(int most);  // takes up to so many values with a comma between two
  Flag& single();        // takes one value, although its variable is a list
  Flag& one_each();      // takes one value each time it is given, for several

  bool given() const;
  bool typed() const { return given() && !listed_->by_config; }
  std::string name() const { return listed_->name(); }

 private:
  CLI::Option* option_ = nullptr;
  ListedFlag* listed_ = nullptr;
};

class Flags {
 public:
  Flags(CLI::App& app, Manual& manual) : app_(app), manual_(manual) {}

  // `names` are "-p,--prompt", or "IN" for what is told by its place on the command line. `value`
  // stays as it is if the flag is not given. A number is a decimal number from the first character
  // to the last, where CLI11 itself would take "" for 0 and "010" for 8; an int may end in k
  // or M, for 1024 or 1048576 times as much.
  Flag add(const char* names, std::string& value, const std::string& help);
  Flag add(const char* names, int& value, const std::string& help);
  Flag add(const char* names, double& value, const std::string& help);
  Flag add(const char* names, std::vector<std::string>& values, const std::string& help);
  Flag add(const char* names, std::vector<int32_t>& values, const std::string& help);
  Flag add_switch(const char* names, bool& value, const std::string& help);
  // A flag whose text is read by `take`, which calls wrong_flag() for what it cannot read.
  Flag add_read(const char* names, std::function<void(const std::string&)> take,
                const std::string& help);
  Flag named(const char* name);
  // The flags that follow stand under this heading in the help.
  void heading(const char* text) { heading_ = text; }
  // Words that values have, explained below the flags.
  void table(Manual::Table table) { manual_.tables.push_back(std::move(table)); }
  void example(const char* does, const char* line) { manual_.examples.push_back({does, line}); }

 private:
  Flag listed(CLI::Option* option, const char* names, const std::string& help,
              const char* value = "");

  CLI::App& app_;
  Manual& manual_;
  const char* heading_ = "";
};

// Reads words that did not come from the command line as flags of a command `name`. Returns the
// long names of those that are given, without dashes. Throws Error(usage).
std::vector<std::string> read_flags(const std::string& name, std::vector<std::string> words,
                                    const std::function<void(Flags&)>& declare);

// The long names of what is declared, without dashes.
std::vector<std::string> names_of_flags(const std::function<void(Flags&)>& declare);

// A line that begins with the path of a model, with the name in its place by which the user called
// it: paths in the stores of other programs are long, and tell nobody anything.
std::string with_name_of_model(const std::string& line);

// What a flag for a number that int does not hold is told. Calls wrong_flag(), whose line begins
// what is expected with `otherwise`.
uint64_t whole_number(const std::string& flag, const std::string& text,
                      const std::string& otherwise = "");

// Error(usage) as the parser says it: "--prompt: is 1,,2, expected ...".
[[noreturn]] void wrong_flag(const std::string& flag, const std::string& why);

}  // namespace chaski
