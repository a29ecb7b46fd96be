// Every variable of the environment that chaski looks at: --help and the man page list them, and
// make check holds that the list is whole.
#pragma once

namespace chaski {

struct Variable {
  const char *name, *help;
};

constexpr Variable kVariables[] = {
    {"CHASKI_CONFIG", "the file of defaults; none: no such file"},
    {"CHASKI_MODELS", "folders with models, with a colon between two, for chaski list and -m"},
    {"CHASKI_HUB",
     "the address of the hub that chaski pull OWNER/MODEL asks, such as https://HOST"},
    {"HTTPS_PROXY",
     "the proxy that chaski pull goes through (also https_proxy, ALL_PROXY and all_proxy)"},
    {"NO_PROXY", "hosts, with a comma between two, that it asks without a proxy (also no_proxy)"},
    {"CHASKI_ISA", "the instruction set to use, such as avx2 or scalar, in place of the best"},
    {"CUDA_VISIBLE_DEVICES", "the GPUs that the driver lets chaski see; empty: none"},
    {"NO_COLOR", "not empty: no faint letters"},
    {"TERM", "dumb or empty: the terminal knows no escape sequences"},
    {"HOME", "where .config, .cache and .local/state are"},
    {"XDG_CONFIG_HOME", "in place of ~/.config: chaski/config.toml"},
    {"XDG_CACHE_HOME", "in place of ~/.cache: what was measured and checked, fetched models"},
    {"XDG_STATE_HOME", "in place of ~/.local/state: lines typed in chats"},
    {"HF_HOME", "where Hugging Face's libraries keep models, for chaski list"},
    {"OLLAMA_MODELS", "where ollama keeps models, for chaski list"},
};

}  // namespace chaski
