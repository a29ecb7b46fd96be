// Small texts that are kept in the user's cache folder from run to run: what would take time to
// find out again. Whoever loses one only loses that time.
#pragma once
#include <string>

namespace chaski {

// $XDG_CACHE_HOME/chaski or $HOME/.cache/chaski; empty where neither is set.
std::string cache_folder();

// What is kept under a name, such as "verified/0123"; "" if nothing is.
std::string kept_text(const std::string& name);
// Keeps it, if that can be done.
void keep_text(const std::string& name, const std::string& text);

}  // namespace chaski
