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
  Flag& required();
  Flag& not_empty(const char* expected);
  Flag& excludes(const Flag& other);
  // The range is told when it is left, not in the help, where most of them would say nothing.
  Flag& within(int least, int most);
  Flag& one_of(std::vector<std::string> names);
  Flag& one_of(const char* name, int least, int most);  // the name, or a number
  Flag& list(int most);                                 // up to so many, with commas
  Flag& single();
  Flag& one_each();  // several need the flag several times

  bool given() const;

 private:
  CLI::Option* option_ = nullptr;
};

class Flags {
 public:
  explicit Flags(CLI::App& app) : app_(app) {}

  // `names`: "-p,--prompt", or "IN" for what has its place. The value stays as it is if it is not
  // given. Numbers are decimal, and all of what is given: CLI11 itself takes "" for 0, "010" for 8.
  Flag add(const char* names, std::string& value, const std::string& help);
  Flag add(const char* names, int& value, const std::string& help);
  Flag add(const char* names, double& value, const std::string& help);
  Flag add(const char* names, uint64_t& value, const std::string& help);
  Flag add(const char* names, std::vector<std::string>& values, const std::string& help);
  Flag add(const char* names, std::vector<int32_t>& values, const std::string& help);
  Flag add_switch(const char* names, bool& value, const std::string& help);
  // One that is read by `take`, which calls wrong() for what it cannot read.
  Flag add_read(const char* names, std::function<void(const std::string&)> take,
                const std::string& help);
  Flag named(const char* name);

 private:
  CLI::App& app_;
};

// Error(usage) as the parser says it: "--prompt: is 1,,2, expected ...".
[[noreturn]] void wrong_flag(const std::string& flag, const std::string& why);

}  // namespace chaski
