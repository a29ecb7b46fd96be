// The models that lie on this machine where programs keep them: the folders of CHASKI_MODELS (with
// a colon between two), chaski's cache folder, and the stores of Hugging Face's libraries, ollama,
// llama.cpp and LM Studio. Files are looked at by name and size alone.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace chaski {

struct ShelvedModel {
  std::string name;  // unique; what -m takes
  std::string path;
  uint64_t bytes = 0;
  std::string place;  // "CHASKI_MODELS", "ollama", ...
};

// By name. A file that several names lead to is there once. What cannot be read is passed over.
std::vector<ShelvedModel> models_on_shelf();

// Where it is looked first: the first folder of CHASKI_MODELS, or chaski's cache folder. Throws
// Error(usage) if there is neither.
std::string first_folder_of_shelf();

// `name` itself where a file has that name or it begins with a dot or a slash; else the path of the
// model of that name, or of the only one whose name begins so, in small or capital letters. Throws
// Error(usage) that names them if several do. Where none does the name comes back, for an error
// that says there is no such file.
std::string path_of_model(const std::string& name);

}  // namespace chaski
