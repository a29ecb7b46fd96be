// How the flags of commands are declared; flags.cpp reads them.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <limits>

#include "engine/session/engine.h"
#include "engine/shelf/inspection.h"
#include "main/flags/flags.h"
#include "main/flags/habits.h"
#include "main/flags/values.h"

namespace chaski {

namespace {

constexpr int kLeast = std::numeric_limits<int>::min(), kMost = std::numeric_limits<int>::max();

CLI::Validator range(int least, int most) {
  return {[=](std::string& text) { return rewrite_whole(text, least, most); }, ""};
}
CLI::Validator any_real() { return {expect_real, ""}; }

// The help text, in which the flag's default replaces the {} of "default {}".
template <class T>
std::string with_default(std::string help, const T& value) {
  constexpr std::string_view kPlace = "default {}";
  if (const size_t at = help.find(kPlace); at != std::string::npos)
    help.replace(at, kPlace.size(), fmt::format("default {}", value));
  return help;
}

}  // namespace

const ListedFlag* Manual::flag(const std::string& name) const {
  for (const ListedFlag& flag : flags)
    if (std::ranges::count(flag.names, name) > 0) return &flag;
  return nullptr;
}

Flag& Flag::type(const char* name) {
  option_->type_name(name);
  listed_->value = name;
  return *this;
}
Flag& Flag::help(std::string text) { return listed_->help = std::move(text), *this; }
Flag& Flag::required() { return option_->required(), listed_->required = true, *this; }
Flag& Flag::excludes(const Flag& other) {
  option_->excludes(other.option_);
  listed_->excludes.push_back(other.listed_->name());
  other.listed_->excludes.push_back(listed_->name());
  return *this;
}
Flag& Flag::within(int least, int most) { return option_->transform(range(least, most)), *this; }
Flag& Flag::not_empty(const char* expected) {
  const auto test = [what = std::string(expected)](std::string& text) {
    return text.empty() ? refusal(text, what) : std::string();
  };
  option_->check({test, ""});
  return *this;
}
Flag& Flag::model() {
  const auto rewrite = [](std::string& text) {
    text = path_of_named_model(text);
    return std::string();
  };
  option_->transform({rewrite, ""});
  listed_->model = true;
  return *this;
}
Flag& Flag::hosts(std::function<void()> check) {
  return listed_->check_hosts = std::move(check), *this;
}
Flag& Flag::hub() { return listed_->fetches = true, *this; }
Flag& Flag::knows(std::vector<std::string> values) {
  listed_->values = std::move(values);
  return *this;
}
Flag& Flag::one_of(std::vector<std::string> names, std::string (*instead)(std::string)) {
  knows(names);
  const auto rewrite = [names = std::move(names), instead](std::string& text) {
    if (std::ranges::find(names, text) != names.end()) return std::string();
    for (const auto& wanted : {text, std::string(value_here(small(text)))})
      for (const std::string& name : names)
        if (small(name) == small(wanted)) return text = name, std::string();
    const std::string other = instead ? instead(text) : "";
    return refusal(text, other.empty() ? expected_names(text, names) : other);
  };
  option_->transform({rewrite, ""});
  return *this;
}
Flag& Flag::one_of(std::vector<std::string> names, int least, int most) {
  knows(names);
  const auto test = [=, names = std::move(names)](std::string& text) {
    const auto value = number_of<int>(text);
    return std::ranges::count(names, text) > 0 || (value && *value >= least && *value <= most)
               ? std::string()
               : refusal(text, fmt::format("{} or a number from {} to {}", fmt::join(names, ", "),
                                           least, most));
  };
  option_->check({test, ""});
  return *this;
}
Flag& Flag::list(int most) {
  option_->delimiter(',')->expected(1, most)->allow_extra_args(false);
  listed_->repeats = false;
  return *this;
}
Flag& Flag::single() {
  option_->expected(1);
  listed_->repeats = false;
  return *this;
}
Flag& Flag::notes_if_repeated() { return listed_->notes_if_repeated = true, *this; }
Flag& Flag::one_each() { return option_->allow_extra_args(false), *this; }
bool Flag::given() const { return option_->count() > 0; }

Flag Flags::listed(CLI::Option* option, const char* names, const std::string& help,
                   const char* value) {
  ListedFlag& flag = manual_.flags.emplace_back();
  for (const std::string& name : CLI::detail::split(names, ','))
    name[0] == '-' ? flag.names.push_back(name) : void(flag.position = name);
  flag.help = help;
  flag.heading = heading_;
  flag.value = value;
  flag.repeats = option->get_items_expected_max() > 1;
  return Flag(option, &flag);
}

Flag Flags::add(const char* names, std::string& value, const std::string& help) {
  const Flag flag = listed(app_.add_option(names, value), names, with_default(help, value), "TEXT");
  manual_.flags.back().text = &value;
  return flag;
}
Flag Flags::add(const char* names, int& value, const std::string& help) {
  return listed(app_.add_option(names, value)->transform(range(kLeast, kMost)), names,
                with_default(help, value), "N");
}
Flag Flags::add(const char* names, double& value, const std::string& help) {
  return listed(app_.add_option(names, value)->check(any_real()), names, with_default(help, value),
                "X");
}
Flag Flags::add(const char* names, std::vector<std::string>& values, const std::string& help) {
  return listed(app_.add_option(names, values), names,
                with_default(help, fmt::format("{}", fmt::join(values, ","))), "TEXT");
}
Flag Flags::add(const char* names, std::vector<int32_t>& values, const std::string& help) {
  return listed(app_.add_option(names, values)->transform(range(kLeast, kMost)), names, help, "N");
}
Flag Flags::add_switch(const char* names, bool& value, const std::string& help) {
  return listed(app_.add_flag(names, value), names, help);
}
Flag Flags::add_read(const char* names, std::function<void(const std::string&)> take,
                     const std::string& help) {
  return listed(app_.add_option_function<std::string>(names, std::move(take)), names, help, "TEXT");
}
Flag Flags::named(const char* name) {
  for (ListedFlag& flag : manual_.flags)
    if (std::ranges::count(flag.names, name) > 0) return Flag(app_.get_option(name), &flag);
  ENSURE(false, "a command names only flags that it has declared");
}

void wrong_flag(const std::string& flag, const std::string& why) {
  throw CLI::ValidationError(flag, why);
}

}  // namespace chaski
