// The subcommands: each is one file that declares its flags and returns what to do once they are
// parsed, and one line in the list.
#pragma once
#include <CLI/App.hpp>
#include <functional>

namespace chaski {

using Action = std::function<int()>;  // the exit status; errors are thrown

Action declare_run(CLI::App& app);
Action declare_chat(CLI::App& app);
Action declare_quantize(CLI::App& app);
Action declare_convert(CLI::App& app);
Action declare_inspect(CLI::App& app);
Action declare_tokenize(CLI::App& app);
Action declare_bench(CLI::App& app);

struct Command {
  const char* name;
  const char* help;
  Action (*declare)(CLI::App& app);
};

constexpr Command kCommands[] = {
    {"run", "complete a prompt", declare_run},
    {"chat", "talk to a model", declare_chat},
    {"quantize", "make a model smaller", declare_quantize},
    {"convert", "GGUF, Hugging Face folder or llama2.c to .quipu; .quipu to GGUF", declare_convert},
    {"inspect", "show what is in a model file", declare_inspect},
    {"tokenize", "text to tokens and back", declare_tokenize},
    {"bench", "measure speed against the limits of this machine", declare_bench},
};

}  // namespace chaski
