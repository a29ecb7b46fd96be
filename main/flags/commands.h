// The subcommands: each is one file that declares its flags and returns what to do once they are
// parsed, and one line in the list.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "main/flags/flags.h"

namespace chaski {

using Action = std::function<int()>;  // the exit status; errors are thrown

Action declare_run(Flags flags);
Action declare_chat(Flags flags);
Action declare_quantize(Flags flags);
Action declare_convert(Flags flags);
Action declare_inspect(Flags flags);
Action declare_tokenize(Flags flags);
Action declare_template(Flags flags);
Action declare_bench(Flags flags);
Action declare_eval(Flags flags);
Action declare_plan(Flags flags);
Action declare_compare(Flags flags);
Action declare_doctor(Flags flags);
Action declare_pull(Flags flags);
Action declare_list(Flags flags);
Action declare_completion(Flags flags);

struct Command {
  const char* name;
  const char* help;
  Action (*declare)(Flags flags);
};

constexpr Command kCommands[] = {
    {"run", "complete a prompt", declare_run},
    {"chat", "talk to a model", declare_chat},
    {"quantize", "make a model smaller", declare_quantize},
    {"convert", "a model to .quipu, to GGUF, or to a folder as GPTQ or AWQ packs it",
     declare_convert},
    {"inspect", "show what is in a model file", declare_inspect},
    {"tokenize", "text to tokens and back", declare_tokenize},
    {"template", "show what a model's chat template does", declare_template},
    {"eval", "measure how well a model foretells a text", declare_eval},
    {"compare", "find where two models foretell a text otherwise", declare_compare},
    {"plan", "say what a model would take and how fast it would be", declare_plan},
    {"bench", "measure speed against the limits of this machine", declare_bench},
    {"pull", "fetch a model over the network", declare_pull},
    {"list", "the models that lie on this machine", declare_list},
    {"doctor", "say what of this machine makes models fast or slow", declare_doctor},
    {"completion", "a script that completes commands and flags in a shell", declare_completion},
};

// Parses the command line and does what it says.
int run_command_line(int argc, char** argv);

// Of all commands, in the order of the list.
std::vector<Manual> manuals();

}  // namespace chaski
