// Every environment variable that chaski reads. --help and the man page list them, and make check
// verifies that the list is complete.
#pragma once

namespace chaski {

struct Variable {
  const char *name, *help;
};

constexpr Variable kVariables[] = {
    {"CHASKI_CONFIG", "config file with defaults for flags; none: read no config file"},
    {"CHASKI_MODELS", "folders with models for chaski list and -m, separated by colons"},
    {"CHASKI_HUB",
     "address of another hub for chaski pull OWNER/MODEL, such as https://HOST; none: no hub"},
    {"CHASKI_API_KEY", "API key that chaski load-test sends to the server"},
    {"HTTPS_PROXY",
     "proxy for chaski pull and load-test (also https_proxy, ALL_PROXY and all_proxy)"},
    {"NO_PROXY",
     "hosts that chaski pull and load-test contact without a proxy, separated by commas (also "
     "no_proxy)"},
    {"CHASKI_ISA", "instruction set to use, such as avx2 or scalar (default: the fastest)"},
    {"CHASKI_MEASURE", "brief: measure the machine's speeds in a moment, inexactly (for tests)"},
    {"CHASKI_PDL", "0: GPU kernels do not start before the previous kernel has ended"},
    {"CHASKI_WORDS", "command line of --hosts, which chaski itself sets for the machines"},
    {"CHASKI_LEAST_BYTES",
     "weights with fewer bytes are not split over the machines of --hosts (for tests)"},
    {"OMPI_COMM_WORLD_SIZE", "number of processes that mpirun started, which compute together"},
    {"OMPI_COMM_WORLD_RANK", "number of this process among them"},
    {"CUDA_VISIBLE_DEVICES", "GPUs that chaski can see; empty: none"},
    {"LISTEN_FDS", "number of sockets that systemd hands to chaski serve"},
    {"LISTEN_PID", "process that these sockets are for"},
    {"NOTIFY_SOCKET", "socket on which chaski serve tells systemd that it is ready"},
    {"VISUAL", "text editor for /edit of chaski chat, before EDITOR"},
    {"EDITOR", "text editor for /edit of chaski chat"},
    {"NO_COLOR", "if not empty, print no dim text"},
    {"TERM", "if dumb or empty, print no escape sequences"},
    {"HOME", "folder that contains .config, .cache and .local/state"},
    {"XDG_CONFIG_HOME", "replaces ~/.config, the folder of chaski/config.toml"},
    {"XDG_CACHE_HOME", "replaces ~/.cache, the folder for downloaded models and measurements"},
    {"XDG_STATE_HOME", "replaces ~/.local/state, the folder for the input history of chats"},
    {"HF_HOME", "folder where Hugging Face's libraries keep models, for chaski list"},
    {"OLLAMA_MODELS", "folder where ollama keeps models, for chaski list"},
};

}  // namespace chaski
