// Which known architecture is built most like a model of an unknown one: it has the most names of
// tensors in common, layer numbers aside. Of equals, it has the most keys in common.
#pragma once
#include <string>
#include <vector>

namespace chaski {

// What an unknown model has. Tensors have the names of a Hugging Face folder, or chaski's spelling
// of those of a GGUF file; keys have those of config.json, or of GGUF without the architecture.
struct Structure {
  bool of_folder = false;
  std::vector<std::string> tensors, keys;
};

struct NearestStructure {
  std::string name;        // of the architecture, as such files spell it; empty: none is near
  double share = 0;        // of the names of either that both have
  bool of_tensors = true;  // false: it has none, so the names are those of keys
};
NearestStructure nearest_structure(const Structure& structure);

// For errors: "one of 80 known ones (built most like qwen3moe: 92% of the names of its tensors are
// the same)".
std::string expected_architecture(const Structure& structure);

}  // namespace chaski
