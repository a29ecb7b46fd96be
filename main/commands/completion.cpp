// chaski completion: a script by which a shell completes commands, flags, their values and names of
// models, from what --help is made of. What has no values is a file; shells know those.
#include <fmt/format.h>

#include <memory>

#include "main/flags/commands.h"
#include "main/terminal/output.h"

namespace chaski {

namespace {

std::string all_commands() {
  std::string words;
  for (const Command& command : kCommands)
    words += (words.empty() ? "" : " ") + std::string(command.name);
  return words;
}

// "run --kv"|... where a word behind these is one of the flag's values.
std::string pattern_of(const Manual& command, const ListedFlag& flag) {
  std::string pattern;
  for (const std::string& name : flag.names)
    pattern += fmt::format("{}\"{} {}\"", pattern.empty() ? "" : "|", command.command, name);
  return pattern;
}

// What is told by its place comes last: its pattern fits behind any flag.
std::string bash_values() {
  std::string cases;
  for (const Manual& command : manuals()) {
    std::string by_place;
    for (const ListedFlag& flag : command.flags) {
      if (flag.values.empty() && !flag.model) continue;
      const bool placed = flag.names.empty();
      (placed ? by_place : cases) += fmt::format(
          "      {}) {} ;;\n",
          placed ? fmt::format("\"{} \"*", command.command) : pattern_of(command, flag),
          flag.model ? "models=1" : fmt::format("offers=\"{}\"", fmt::join(flag.values, " ")));
    }
    cases += by_place;
  }
  return cases;
}

std::string bash_flags() {
  std::string cases;
  for (const Manual& command : manuals()) {
    std::string names;
    for (const ListedFlag& flag : command.flags)
      if (!flag.names.empty()) names += (names.empty() ? "" : " ") + flag.name();
    cases += fmt::format("      {}) offers=\"{}\" ;;\n", command.command, names);
  }
  return cases;
}

// Bash takes words apart at "=" and ":", so they are taken from the line. What stands before such a
// sign stays as it is.
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
         "\"\n"
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
         // compgen -W would run what stands in a file's name
         "    while read -r before; do\n"
         "      [[ $before == \"$word\"* ]] && COMPREPLY+=(\"$before\")\n"
         "    done < <(\"${COMP_WORDS[0]}\" list -q 2>/dev/null | sed 's/  .*//')\n"
         "    type compopt >/dev/null 2>&1 && compopt -o filenames 2>/dev/null\n"
         "  fi\n"
         "  COMPREPLY+=($(compgen -W \"$offers\" -- \"$word\"))\n"
         "  [ -n \"$BASH_VERSION\" ] && case $word in *:*) "
         "COMPREPLY=(\"${COMPREPLY[@]#\"${word%:*}:\"}\") ;; esac\n"
         "}\n"
         "complete -o default -F _chaski chaski\n";
}

// As fish reads it between quotes.
std::string fish_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) out += (c == '\'' || c == '\\' ? "\\" : "") + std::string(1, c);
  return out + "'";
}

// Read when it is sourced, or as a function of zsh's own when _chaski stands in its fpath.
std::string for_zsh() {
  return "#compdef chaski\nautoload -U +X bashcompinit && bashcompinit\n" + for_bash() +
         "[[ $funcstack[1] = _chaski ]] && _bash_complete -o default -F _chaski\n";
}

std::string fish_values(const ListedFlag& flag) {
  if (flag.model) return " -r -a \"(chaski list -q 2>/dev/null | string replace -r '  .*' '')\"";
  if (!flag.values.empty()) return fmt::format(" -x -a '{}'", fmt::join(flag.values, " "));
  return flag.value.empty() ? "" : " -r";
}

std::string for_fish() {
  std::string script = "complete -c chaski -n __fish_use_subcommand -f\n";
  for (const Manual& command : manuals()) {
    script += fmt::format("complete -c chaski -n __fish_use_subcommand -a {} -d {}\n",
                          command.command, fish_quoted(command.help));
    for (const ListedFlag& flag : command.flags) {
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
  parser.add("SHELL", *shell, "bash, zsh or fish").required().one_of({"bash", "zsh", "fish"});
  parser.example("In this bash", ". <(chaski completion bash)");
  parser.example("For zsh, in a folder of its fpath", "chaski completion zsh > _chaski");
  parser.example("For fish", "chaski completion fish > chaski.fish");
  return [shell] { return complete(*shell); };
}

}  // namespace chaski
