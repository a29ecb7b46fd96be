// The flags of a subcommand: the little of CLI11 that chaski uses. CLI11's own headers, which cost
// more to compile than most of chaski's files, are seen by flags.cpp alone.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace chaski {

// What a user may say about one flag, told where it is declared.
class Flag {
 public:
  Flag() = default;
  explicit Flag(CLI::Option* option) : option_(option) {}

  Flag& type(const char* name);  // of the value, in the help
  Flag& help(const char* text);  // in place of what it was declared with
  Flag& required();
  Flag& not_empty(const char* expected);
  Flag& excludes(const Flag& other);
  // An error says the range. The help does not, because most ranges would tell a reader nothing.
  Flag& within(int least, int most);
  // Small and capital letters are the same, and a format may have the name it has elsewhere.
  Flag& one_of(std::vector<std::string> names);
  Flag& one_of(const char* name, int least, int most);  // the name, or a number
  Flag& list(int most);  // takes up to so many values with a comma between two
  Flag& single();        // takes one value, although its variable is a list
  Flag& one_each();      // takes one value each time it is given, for several

  bool given() const;

 private:
  CLI::Option* option_ = nullptr;
};

class Flags {
 public:
  explicit Flags(CLI::App& app) : app_(app) {}

  // `names` are "-p,--prompt", or "IN" for what is told by its place on the command line. `value`
  // stays as it is if the flag is not given. A number is a decimal number from the first character
  // to the last, where CLI11 itself would take "" for 0 and "010" for 8; an int may end in k, for
  // 1024 times as much.
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

 private:
  CLI::App& app_;
};

// What a flag for a number that int does not hold is told. Calls wrong_flag().
uint64_t whole_number(const std::string& flag, const std::string& text);

// Error(usage) as the parser says it: "--prompt: is 1,,2, expected ...".
[[noreturn]] void wrong_flag(const std::string& flag, const std::string& why);

}  // namespace chaski
