// Finds models on this machine: in the folders of CHASKI_MODELS (separated by colons), chaski's
// cache folder, and the stores of Hugging Face's libraries, ollama, llama.cpp and LM Studio. It
// uses only names and sizes of files and, but for nearest_models(), does not open models.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "ggml-like-tensor/base/memory.h"  // size_text()

namespace chaski {

struct ShelvedModel {
  std::string name;  // unique; -m accepts it
  std::string path;
  uint64_t bytes = 0;
  std::string place;  // "CHASKI_MODELS", "ollama", ...
};

// Sorted by name. A file with several names is listed once. Unreadable files are skipped.
std::vector<ShelvedModel> models_on_shelf();

// The paths in CHASKI_MODELS that are no folders.
std::vector<std::string> missing_folders_of_user();
// The folder that is searched first: the first of CHASKI_MODELS, or chaski's cache folder. Throws
// Error(usage) if there is neither.
std::string first_folder_of_shelf();

// A model that was found by a name, or by a part of it.
struct FoundModel {
  std::string path;  // empty: none
  std::string name;  // as listed
  bool by_part = false;
};

// The model with this name, file name, short name (short_names.h) or name OWNER/MODEL[:QUANT] of a
// hub. Else, with NameMatch::part, the only one whose name begins with `name`, or else contains it,
// ignoring case. Throws Error(usage) if there are several, with the nearest three.
enum class NameMatch { whole, part };
FoundModel find_model(const std::string& name, NameMatch match = NameMatch::part);

// Resolves the value of -m. Returns `name` itself if such a file exists, if it begins with a dot or
// a slash, or if find_model() finds none. Else returns the path of the model.
std::string path_of_model(const std::string& name);

// The name in models_on_shelf() of the model with this path; `path` itself if it is not there.
std::string name_on_shelf(const std::string& path);

// "a, b and c": the names of at most three models whose names, or beginnings of names, are most
// similar; empty if there are no models. `text`: without those that only make embeddings.
enum class WantedModel { any, text };
std::string nearest_models(const std::string& name, WantedModel wanted);

}  // namespace chaski
