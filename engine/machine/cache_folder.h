// Small texts that are kept in the user's cache folder from run to run: what would take time to
// find out again. Whoever loses one only loses that time.
#pragma once
#include <span>
#include <string>
#include <vector>

namespace chaski {

// $XDG_CACHE_HOME/chaski or $HOME/.cache/chaski; empty where neither is set.
std::string cache_folder();

// For what is the user's own: $XDG_STATE_HOME/chaski or $HOME/.local/state/chaski, or empty.
std::string state_folder();
// For what the user writes: $XDG_CONFIG_HOME/chaski or $HOME/.config/chaski, or empty.
std::string config_folder();
// Lines that are kept there, oldest first, for the user's eyes only. add_lines() puts new ones
// behind what is in the file by then, and keeps the last `most`; where it cannot be written nothing
// happens.
std::vector<std::string> kept_lines(const std::string& path);
void add_lines(const std::string& path, std::span<const std::string> lines, size_t most);

// What is kept under a name, such as "verified/0123"; "" if nothing is.
std::string kept_text(const std::string& name);
// Keeps it, if that can be done.
void keep_text(const std::string& name, const std::string& text);

}  // namespace chaski
