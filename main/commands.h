// The subcommands: each is one file that declares its flags and returns what to do once they are
// parsed, and one line in the list.
#pragma once
#include <functional>

#include "main/flags.h"

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
Action declare_doctor(Flags flags);

struct Command {
  const char* name;
  const char* help;
  Action (*declare)(Flags flags);
};

constexpr Command kCommands[] = {
    {"run", "complete a prompt", declare_run},
    {"chat", "talk to a model", declare_chat},
    {"quantize", "make a model smaller", declare_quantize},
    {"convert", "GGUF, Hugging Face folder or llama2.c to .quipu; .quipu to GGUF", declare_convert},
    {"inspect", "show what is in a model file", declare_inspect},
    {"tokenize", "text to tokens and back", declare_tokenize},
    {"template", "show what a model's chat template does", declare_template},
    {"eval", "measure how well a model foretells a text", declare_eval},
    {"bench", "measure speed against the limits of this machine", declare_bench},
    {"doctor", "say what of this machine makes models fast or slow", declare_doctor},
};

// Parses the command line and does what it says.
int run_command_line(int argc, char** argv);

}  // namespace chaski
