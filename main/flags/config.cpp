#include "main/flags/config.h"

#include <fmt/format.h>
#include <fnmatch.h>

// Nothing is written, and the formatters take time to compile.
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <span>

#include "engine/machine/cache_folder.h"
#include "engine/session/engine.h"    // for Error
#include "engine/shelf/inspection.h"  // for likely_name()
#include "engine/shelf/shelf.h"
#include "main/flags/commands.h"
#include "main/terminal/output.h"

namespace chaski {

namespace {

constexpr const char* kModels = "models";
constexpr size_t kMostConfigBytes = 64 << 10;

// Empty if there is none.
std::string config_file() {
  const char* named = std::getenv("CHASKI_CONFIG");
  if (named && *named) return std::string_view(named) == "none" ? "" : named;
  if (config_folder().empty()) return "";
  const std::string path = config_folder() + "/config.toml";
  std::error_code none;
  return std::filesystem::exists(path, none) ? path : "";
}

std::string node_text(const toml::node& node) {
  if (const auto* text = node.as_string()) return fmt::format("\"{}\"", text->get());
  if (const auto* truth = node.as_boolean()) return truth->get() ? "true" : "false";
  if (const auto* whole = node.as_integer()) return fmt::format("{}", whole->get());
  if (const auto* real = node.as_floating_point()) return fmt::format("{}", real->get());
  return node.is_array() ? "an array" : node.is_table() ? "a table" : "a date or time";
}

std::optional<std::string> word_of(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (node.is_number()) return node_text(node);
  return std::nullopt;
}

class ConfigReader {
 public:
  ConfigReader(const std::string& path, const Manual& command,
               const std::map<std::string, std::string>& given)
      : path_(path), command_(command), given_(given), commands_(manuals()) {}

  Defaults read() {
    const std::string text = read_text(path_);
    if (text.size() > kMostConfigBytes)  // the parser recurses once for each dot in a name
      fail(Exit::usage, "{} has {} bytes, expected at most {} for a config file", path_,
           text.size(), kMostConfigBytes);
    toml::table all;
    try {
      all = toml::parse(text);
    } catch (const toml::parse_error& error) {
      fail(Exit::usage, "{}:{}: {}", path_, error.source().begin.line,
           std::string(error.description()));
    }
    read_top(all);
    if (const toml::node* own = all.get(command_.command)) read_keys(*own->as_table());
    if (const toml::node* models = all.get(kModels)) read_models(*models);
    Defaults defaults;
    defaults.path = path_;
    for (const auto& [flag, setting] : settings_) {
      defaults.lines[flag] = setting.line;
      defaults.words.insert(defaults.words.end(), setting.words.begin(), setting.words.end());
    }
    return defaults;
  }

 private:
  struct Setting {
    int line;
    std::vector<std::string> words;
  };

  template <class... Args>
  [[noreturn]] void refuse(const toml::node& node, fmt::format_string<Args...> format,
                           Args&&... args) const {
    fail(Exit::usage, "{}:{}: {}", path_, node.source().begin.line,
         fmt::format(format, std::forward<Args>(args)...));
  }

  const Manual* command_named(std::string_view name) const {
    for (const Manual& command : commands_)
      if (command.command == name) return &command;
    return nullptr;
  }

  // The top of the file: flags for all commands, and tables of commands. Checks all keys but the
  // models' tables, which read_models() checks.
  void read_top(const toml::table& all) {
    for (const auto& [key, node] : all) {
      const std::string name(key.str());
      if (name == kModels) continue;
      if (const Manual* command = command_named(name)) {
        if (!node.is_table())
          refuse(node, "{} is {}, expected the table [{}]", name, node_text(node), name);
        for (const auto& [inner, value] : *node.as_table())
          expect_flag(*command, std::string(inner.str()), value);
        continue;
      }
      if (!is_flag_of_one(commands_, name))
        refuse_key(name, node, "a flag of chaski or a command", commands_, true);
      take(name, node);
    }
  }

  void read_models(const toml::node& node) {
    const toml::table* models = node.as_table();
    if (!models)
      refuse(node, "{} is {}, expected tables such as [models.\"llama*\"]", kModels,
             node_text(node));
    std::vector<Manual> with_model;
    for (const Manual& command : commands_)
      if (command.flag("--model")) with_model.push_back(command);
    std::vector<std::pair<std::string, const toml::table*>> in_order;
    for (const auto& [pattern, table] : *models) {
      if (!table.is_table())
        refuse(table, "{} is {}, expected a table [models.\"{}\"]", pattern.str(), node_text(table),
               pattern.str());
      for (const auto& [key, value] : *table.as_table()) {
        const std::string name(key.str());
        if (value.is_table())
          refuse(value,
                 "[{0}.{1}.{2}] is not a table of a model, expected quotes: [{0}.\"{1}.{2}\"]",
                 kModels, pattern.str(), name);
        if (name == "model")
          refuse(value,
                 "model cannot be set in a model's table, expected it at the top or in a command's "
                 "table");
        if (!is_flag_of_one(with_model, name))
          refuse_key(name, value, "a flag of a command that opens a model", with_model, false);
      }
      in_order.emplace_back(pattern.str(), table.as_table());
    }
    if (!command_.flag("--model") || in_order.empty()) return;
    std::ranges::sort(in_order, {},
                      [](const auto& entry) { return entry.second->source().begin.line; });
    const std::vector<std::string> names = names_of_model();
    for (const auto& [pattern, table] : in_order)
      if (std::ranges::any_of(names, [&](const std::string& name) {
            return ::fnmatch(pattern.c_str(), name.c_str(), FNM_CASEFOLD) == 0;
          }))
        read_keys(*table);
  }

  // The names of the model that will be opened, to match with the patterns.
  std::vector<std::string> names_of_model() const {
    const auto typed = given_.find(given_.contains("--hub") ? "--hub" : "--model");
    const auto set = settings_.find("--model");
    if (typed == given_.end() && set == settings_.end()) return {"bundled"};
    const std::string model = typed != given_.end() ? typed->second : set->second.words[1];
    const std::filesystem::path path = path_of_model(model);
    return {model, path.filename(), path.stem()};
  }

  void read_keys(const toml::table& table) {
    for (const auto& [key, value] : table) take(std::string(key.str()), value);
  }

  // A key may have underscores for the dashes of the flag's name.
  static const ListedFlag* flag_of(const Manual& command, std::string key) {
    std::ranges::replace(key, '_', '-');
    return key == "help" ? nullptr : command.flag("--" + key);
  }

  static bool is_flag_of_one(std::span<const Manual> commands, const std::string& key) {
    return std::ranges::any_of(commands, [&](const Manual& c) { return flag_of(c, key); });
  }

  void expect_flag(const Manual& command, const std::string& key, const toml::node& node) const {
    if (!flag_of(command, key))
      refuse_key(key, node, "a flag of chaski " + command.command, {&command, 1}, false);
  }

  [[noreturn]] void refuse_key(const std::string& key, const toml::node& node,
                               const std::string& expected, std::span<const Manual> commands,
                               bool or_table) const {
    std::vector<std::string> names;
    for (const Manual& command : commands) {
      for (const ListedFlag& flag : command.flags)
        if (!flag.names.empty()) names.push_back(flag.name().substr(2));
      if (or_table) names.push_back(command.command);
    }
    if (or_table) names.emplace_back(kModels);
    const std::string likely = likely_name(key, names);
    refuse(node, "{} is not {}{}", key, expected,
           likely.empty() ? ", expected a flag's long name without dashes"
                          : fmt::format(", did you mean {}?", likely));
  }

  // Takes the value of a key that is a flag. The running command may not have this flag.
  void take(const std::string& key, const toml::node& node) {
    const ListedFlag* flag = flag_of(command_, key);
    if (!flag || is_given(*flag)) return;
    const std::string name = flag->name();
    Setting& setting = settings_[name];
    setting = {int(node.source().begin.line), {}};
    if (flag->value.empty()) {
      const auto* truth = node.as_boolean();
      if (!truth) refuse(node, "{} is {}, expected true or false", key, node_text(node));
      truth->get() ? setting.words.push_back(name) : void(settings_.erase(name));
      return;
    }
    const bool joined = flag->value.ends_with(",...");
    const toml::array* several = flag->repeats || joined ? node.as_array() : nullptr;
    if (!several) return put_words(setting, key, *flag, node);
    std::string with_commas;
    for (const toml::node& each : *several) {
      if (!joined)
        put_words(setting, key, *flag, each);
      else if (const auto word = word_of(each))
        with_commas += (with_commas.empty() ? "" : ",") + *word;
      else
        refuse_value(key, *flag, each);
    }
    if (joined) setting.words = {name, with_commas};
  }

  bool is_given(const ListedFlag& flag) const {
    return given_.contains(flag.name()) ||
           std::ranges::any_of(flag.excludes,
                               [&](const auto& other) { return given_.contains(other); });
  }

  void put_words(Setting& setting, const std::string& key, const ListedFlag& flag,
                 const toml::node& node) const {
    const auto word = word_of(node);
    if (!word) refuse_value(key, flag, node);
    setting.words.insert(setting.words.end(), {flag.name(), *word});
  }

  [[noreturn]] void refuse_value(const std::string& key, const ListedFlag& flag,
                                 const toml::node& node) const {
    refuse(node, "{} is {}, expected a value for {} {}", key, node_text(node), flag.name(),
           flag.value);
  }

  const std::string& path_;
  const Manual& command_;
  const std::map<std::string, std::string>& given_;
  const std::vector<Manual> commands_;
  std::map<std::string, Setting> settings_;  // by the flag's long name
};

}  // namespace

std::string Defaults::place_of(std::string_view error) const {
  const std::string flag(error.substr(0, error.find_first_of(": ")));
  const auto at = lines.find(flag);
  return at == lines.end() ? "" : fmt::format("{}:{}: ", path, at->second);
}

Defaults read_defaults(const Manual& command, const std::map<std::string, std::string>& given) {
  const std::string path = config_file();
  return path.empty() ? Defaults() : ConfigReader(path, command, given).read();
}

}  // namespace chaski
