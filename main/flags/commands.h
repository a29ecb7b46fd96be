// The subcommands. Each is one file, which declares its flags and returns the action to run after
// parsing, and one line in the list below.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "main/flags/flags.h"

namespace chaski {

using Action = std::function<int()>;  // the exit status; errors are thrown

Action declare_run(Flags flags);
Action declare_chat(Flags flags);
Action declare_serve(Flags flags);
Action declare_batch(Flags flags);
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
Action declare_load_test(Flags flags);
Action declare_pull(Flags flags);
Action declare_list(Flags flags);
Action declare_cache(Flags flags);
Action declare_completion(Flags flags);

struct Command {
  const char* name;
  const char* help;
  Action (*declare)(Flags flags);
};

constexpr Command kCommands[] = {
    {"run", "complete a prompt", declare_run},
    {"chat", "chat with a model", declare_chat},
    {"serve", "answer requests of other programs over HTTP", declare_serve},
    {"batch", "answer a file of requests, several at once", declare_batch},
    {"quantize", "make a model smaller", declare_quantize},
    {"convert", "convert a model to .quipu, to GGUF, or to a folder for vLLM and transformers",
     declare_convert},
    {"inspect", "show what is in a model file", declare_inspect},
    {"tokenize", "convert text to tokens and back", declare_tokenize},
    {"template", "show the text that a model's chat template makes", declare_template},
    {"eval", "measure perplexity on a text", declare_eval},
    {"compare", "show where two models predict a text differently", declare_compare},
    {"plan", "estimate the memory and speed of a model on this machine", declare_plan},
    {"bench", "measure speed, compared with the limits of this machine", declare_bench},
    {"load-test", "measure how fast a server answers many users", declare_load_test},
    {"pull", "download a model", declare_pull},
    {"list", "list the models found on this machine", declare_list},
    {"cache", "show or remove the converted models in the cache folder", declare_cache},
    {"doctor", "check what makes models fast or slow on this machine", declare_doctor},
    {"completion", "print a script that completes commands and flags in a shell",
     declare_completion},
};

// Parses the command line and runs its command. Returns the exit status.
int run_command_line(std::vector<std::string> words);

// The manuals of all commands, in the order of kCommands.
std::vector<Manual> manuals();

}  // namespace chaski
