// chaski completion: a script for a shell that completes commands, flags, their values and names of
// models. It is made from the same manuals as --help. Other values are completed as files by the
// shell itself.
#include <fmt/format.h>

#include <memory>

#include "main/flags/commands.h"
#include "main/flags/manual.h"
#include "main/terminal/output.h"

namespace chaski {

namespace {

std::string all_commands() {
  std::string words;
  for (const Command& command : kCommands)
    words += (words.empty() ? "" : " ") + std::string(command.name);
  return words;
}

std::string all_topics() {
  std::string words = all_commands();
  for (const Topic& topic : kTopics) words += " " + std::string(topic.name);
  return words;
}

// "run --kv"|...: a pattern for the command and the word before a value of the flag.
std::string pattern_of(const Manual& command, const ListedFlag& flag) {
  std::string pattern;
  for (const std::string& name : flag.names)
    pattern += fmt::format("{}\"{} {}\"", pattern.empty() ? "" : "|", command.command, name);
  return pattern;
}

// Positional arguments come last, because their pattern matches after any flag.
std::string bash_values() {
  std::string cases = fmt::format("      \"help help\") offers=\"{}\" ;;\n", all_topics());
  for (const Manual& command : manuals()) {
    std::string positional;
    for (const ListedFlag& flag : command.flags) {
      if (flag.help.empty() || (flag.values.empty() && !flag.model)) continue;
      const bool has_no_name = flag.names.empty();
      (has_no_name ? positional : cases) += fmt::format(
          "      {}) {} ;;\n",
          has_no_name ? fmt::format("\"{} \"*", command.command) : pattern_of(command, flag),
          flag.model ? "models=1" : fmt::format("offers=\"{}\"", fmt::join(flag.values, " ")));
    }
    cases += positional;
  }
  return cases;
}

std::string bash_flags() {
  std::string cases;
  for (const Manual& command : manuals()) {
    std::string names;
    for (const ListedFlag& flag : command.flags)
      if (!flag.names.empty() && !flag.help.empty())
        names += (names.empty() ? "" : " ") + flag.name();
    cases += fmt::format("      {}) offers=\"{}\" ;;\n", command.command, names);
  }
  return cases;
}

// Bash splits words at "=" and ":", so the script takes the word from the line itself, and
// completes only the part after such a character.
std::string for_bash() {
  return "_chaski() {\n"
         "  local IFS=$' \\t\\n' line=${COMP_LINE:0:$COMP_POINT} word before offers= models=\n"
         "  word=${line##*[[:space:]]}\n"
         "  line=${line%\"$word\"}\n"
         "  while [[ $line == *[[:space:]] ]]; do line=${line%?}; done\n"
         "  before=${line##*[[:space:]]}\n"
         "  case $word in --*=*) before=${word%%=*} word=${word#*=} ;; esac\n"
         "  COMPREPLY=()\n"
         "  if [ \"$COMP_CWORD\" = 1 ]; then\n"
         "    offers=\"" +
         all_commands() +
         " help\"\n"
         "  elif [[ $word == -* ]]; then\n"
         "    case ${COMP_WORDS[1]} in\n" +
         bash_flags() +
         "    esac\n"
         "  else\n"
         "    case \"${COMP_WORDS[1]} $before\" in\n" +
         bash_values() +
         "    esac\n"
         "  fi\n"
         "  if [ -n \"$models\" ]; then\n"
         "    IFS=$'\\n'\n"
         "    COMPREPLY=($(compgen -f -- \"$word\"))\n"
         // not compgen -W: it would execute text in a file's name
         "    while read -r before; do\n"
         "      [[ $before == \"$word\"* ]] && COMPREPLY+=(\"$before\")\n"
         "    done < <(\"${COMP_WORDS[0]}\" list -q -v 2>/dev/null | sed 's/  .*//')\n"
         "    type compopt >/dev/null 2>&1 && compopt -o filenames 2>/dev/null\n"
         "  fi\n"
         "  COMPREPLY+=($(compgen -W \"$offers\" -- \"$word\"))\n"
         "  [ -n \"$BASH_VERSION\" ] && case $word in *:*) "
         "COMPREPLY=(\"${COMPREPLY[@]#\"${word%:*}:\"}\") ;; esac\n"
         "}\n"
         "complete -o default -F _chaski chaski\n";
}

// Quoted for fish.
std::string fish_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) out += (c == '\'' || c == '\\' ? "\\" : "") + std::string(1, c);
  return out + "'";
}

// Works when it is sourced, and as the function _chaski in a folder of zsh's fpath.
std::string for_zsh() {
  return "#compdef chaski\nautoload -U +X bashcompinit && bashcompinit\n" + for_bash() +
         "[[ $funcstack[1] = _chaski ]] && _bash_complete -o default -F _chaski\n";
}

std::string fish_values(const ListedFlag& flag) {
  if (flag.model) return " -r -a \"(chaski list -q -v 2>/dev/null | string replace -r '  .*' '')\"";
  if (!flag.values.empty()) return fmt::format(" -x -a '{}'", fmt::join(flag.values, " "));
  return flag.value.empty() ? "" : " -r";
}

std::string for_fish() {
  std::string script = "complete -c chaski -n __fish_use_subcommand -f\n";
  script += fmt::format(
      "complete -c chaski -n __fish_use_subcommand -a help -d 'print the help of a command or "
      "topic'\n"
      "complete -c chaski -n '__fish_seen_subcommand_from help' -f -a '{}'\n",
      all_topics());
  for (const Manual& command : manuals()) {
    script += fmt::format("complete -c chaski -n __fish_use_subcommand -a {} -d {}\n",
                          command.command, fish_quoted(command.help));
    for (const ListedFlag& flag : command.flags) {
      if (flag.help.empty()) continue;
      script +=
          fmt::format("complete -c chaski -n '__fish_seen_subcommand_from {}'", command.command);
      for (const std::string& name : flag.names)
        script += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      script += fmt::format("{} -d {}\n", fish_values(flag), fish_quoted(flag.help));
    }
  }
  return script;
}

int complete(const std::string& shell) {
  put(shell == "bash" ? for_bash() : shell == "zsh" ? for_zsh() : for_fish());
  return int(Exit::done);
}

}  // namespace

Action declare_completion(Flags parser) {
  auto shell = std::make_shared<std::string>();
  parser.add("SHELL", *shell, "the shell: bash, zsh or fish")
      .required()
      .one_of({"bash", "zsh", "fish"});
  parser.example("In the running bash", ". <(chaski completion bash)");
  parser.example("For zsh, in a folder of its fpath", "chaski completion zsh > _chaski");
  parser.example("For fish", "chaski completion fish > chaski.fish");
  return [shell] { return complete(*shell); };
}

}  // namespace chaski
