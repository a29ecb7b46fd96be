// A look at a folder: whether it holds draft heads, and of which kind.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "models/import/json_file.h"

namespace chaski {

// next_layer and delta_next: a layer that predicts one more token (models/heads); its model may be
// in the same folder.
enum class HeadsKind { none, medusa, eagle1, eagle3, next_layer, delta_next };

// Reads config.json once; the importers of heads take it from here. The constructor is implicit, so
// that they can be called with a path.
class HeadsFolder {
 public:
  HeadsFolder(const std::string& path);

  const std::string& path() const { return path_; }
  HeadsKind kind() const { return kind_; }  // none also for a folder that cannot be read
  bool is_eagle() const { return kind_ == HeadsKind::eagle1 || kind_ == HeadsKind::eagle3; }
  // Of delta_next: whether the model of the layer is in the folder too.
  bool has_model() const { return has_model_; }
  // Throws Error(bad_file | io) if config.json cannot be read.
  Json config() const { return config_ ? *config_ : read_json(path_ + "/config.json"); }

 private:
  HeadsKind eagle_kind();

  std::string path_;
  std::optional<Json> config_;
  HeadsKind kind_ = HeadsKind::none;
  bool has_model_ = false;
};

// The files of an EAGLE head.
constexpr const char *kEagleFile = "model.safetensors", *kEaglePickle = "pytorch_model.bin",
                     *kEagleIndex = "model.safetensors.index.json";
// The files of Medusa heads.
constexpr const char *kMedusaFile = "medusa_lm_head.safetensors",
                     *kMedusaPickle = "medusa_lm_head.pt";

// Calls fn with the name of each tensor and the path of its file, in a folder with safetensors in
// one file or several.
void each_tensor_name(const std::string& folder,
                      const std::function<void(const std::string&, const std::string&)>& fn);

}  // namespace chaski
