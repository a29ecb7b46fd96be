// Finds models on this machine: in the folders of CHASKI_MODELS (separated by colons), chaski's
// cache folder, and the stores of Hugging Face's libraries, ollama, llama.cpp and LM Studio. It
// uses only names and sizes of files and does not open models.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace chaski {

struct ShelvedModel {
  std::string name;  // unique; -m accepts it
  std::string path;
  uint64_t bytes = 0;
  std::string place;  // "CHASKI_MODELS", "ollama", ...
};

// Sorted by name. A file with several names is listed once. Unreadable files are skipped.
std::vector<ShelvedModel> models_on_shelf();

// The folder that is searched first: the first of CHASKI_MODELS, or chaski's cache folder. Throws
// Error(usage) if there is neither.
std::string first_folder_of_shelf();

// Resolves the value of -m. Returns `name` itself if such a file exists, or if it begins with a dot
// or a slash. Else returns the path of the model with this name, or of the only model whose name
// begins with it, ignoring case. Throws Error(usage) with their names if there are several. Returns
// `name` if there is none, so that opening it reports a missing file.
std::string path_of_model(const std::string& name);

}  // namespace chaski
