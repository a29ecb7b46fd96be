// The user's folders, and small texts stored in the cache folder from run to run. They save time
// and may be deleted.
#pragma once
#include <span>
#include <string>
#include <vector>

namespace chaski {

// $XDG_CACHE_HOME/chaski or $HOME/.cache/chaski; empty where neither is set.
std::string cache_folder();

// For data such as the input history: $XDG_STATE_HOME/chaski or $HOME/.local/state/chaski, or
// empty.
std::string state_folder();
// For the config file: $XDG_CONFIG_HOME/chaski or $HOME/.config/chaski, or empty.
std::string config_folder();
// Lines of a file that only the user may read, oldest first. add_line() appends at once, so that a
// program that is killed loses none. shorten_lines() keeps the last `most`, at most 16 MB. Both do
// nothing if the file cannot be written.
std::vector<std::string> kept_lines(const std::string& path);
void add_line(const std::string& path, const std::string& line);
void shorten_lines(const std::string& path, size_t most);

// The name of a text about a file or folder, such as "verified/0123": of its canonical path. Empty
// if it does not exist, or there is no cache folder.
std::string kept_name(const std::string& kind, const std::string& path);
// The text stored under a name, such as "verified/0123"; "": none.
std::string kept_text(const std::string& name);
// True if the folder of such a text can be written. Makes it.
bool can_keep_text(const std::string& name);
// Does nothing if the text cannot be stored.
void keep_text(const std::string& name, const std::string& text);

}  // namespace chaski
