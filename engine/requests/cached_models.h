// What a folder of disk_cache.h holds, by model, for `chaski cache DIR`.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace chaski {

struct CachedModel {
  std::string folder;                // in the folder of all models
  std::string model;                 // path of the model; empty if it is not known
  size_t answers = 0, prefixes = 0;  // files
  uint64_t bytes = 0;
  std::chrono::system_clock::time_point used;  // of the folder itself if it has no files
};

// Writes the path of the model into the folder that its cache has. Throws Error(io).
void name_cached_model(const std::string& folder, const std::string& model);

// The last used first. Other files and folders in `folder` are left out.
std::vector<CachedModel> cached_models(const std::string& folder);
// Removes the files of these models, and no others. A server that uses the folder fills it again.
void drop_cached_models(const std::string& folder);

}  // namespace chaski
