// Chooses the importer for a path by its content, never by its name.
#include "models/import/import.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <optional>
#include <vector>

#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/base/mapping.h"
#include "models/import/folder.h"
#include "models/import/hf/eagle.h"
#include "models/import/hf/hf_config.h"
#include "models/import/hf/hf_tokenizer.h"
#include "models/import/hf/medusa.h"
#include "models/import/json_file.h"

namespace chaski {
namespace {

constexpr std::string_view kKnown =
    "a .quipu or GGUF file, a folder with config.json and safetensors, or a llama2.c .bin";

constexpr size_t kBeginning = 28;  // the header of llama2.c version 0

// Version 0 has no magic, only seven numbers that must be plausible sizes. The sixth, vocab_size,
// is negative if the model has a classifier of its own.
bool looks_like_llama2c(const std::string& bytes) {
  if (bytes.starts_with("24ka")) return true;
  std::array<int32_t, 7> header;
  if (bytes.size() < sizeof header) return false;
  std::memcpy(header.data(), bytes.data(), sizeof header);
  for (int i = 0; i < 7; ++i)
    if (header[i] == 0 || (header[i] < 0 && i != 5) || header[i] > 1 << 24 ||
        header[i] < -(1 << 24))
      return false;
  return true;
}

// A safetensors file begins with the length of a JSON object, then the object.
bool looks_like_safetensors(const std::string& path, const std::string& bytes) {
  uint64_t length = 0;
  if (bytes.size() <= sizeof length || bytes[sizeof length] != '{') return false;
  std::memcpy(&length, bytes.data(), sizeof length);
  std::error_code error;
  const uint64_t size = std::filesystem::file_size(path, error);
  return !error && length <= size - sizeof length;
}

}  // namespace

void expect_no_heads(const std::string& folder) {
  const HeadsFolder found(folder);
  const bool medusa = found.kind() == HeadsKind::medusa;
  if (medusa || found.is_eagle())
    fail(Exit::bad_file,
         "{}: folder holds {}, not a model, expected --draft {} together with -m and the model {} "
         "made for",
         folder, medusa ? "Medusa heads" : "an EAGLE head", folder,
         medusa ? "they were" : "it was");
}

// For a message: a folder that only keeps model files is not itself a model.
std::optional<std::string> model_file_in(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code none;
  for (auto at = std::filesystem::directory_iterator(folder, none);
       at != std::filesystem::directory_iterator(); at.increment(none))
    if (const std::string ending = at->path().extension(); ending == ".gguf" || ending == ".quipu")
      files.push_back(at->path().string());
  if (files.empty()) return std::nullopt;
  return "one of the model files in it, such as " + *std::ranges::min_element(files);
}

bool is_llama2c(const std::string& path) {
  return !is_folder(path) && looks_like_llama2c(beginning_of(path, kBeginning));
}

ModelSource import_model(const std::string& path, const ImportOptions& options) {
  if (is_folder(path)) try {
      if (!exists(path + "/config.json"))
        fail(Exit::bad_file, "{}: folder has no config.json, expected {}", path,
             model_file_in(path).value_or(std::string(kKnown)));
      return import_hf_folder(path);
    } catch (const Error&) {
      expect_no_heads(path);
      throw;
    }
  const std::string bytes = beginning_of(path, kBeginning);
  if (bytes.empty()) fail(Exit::bad_file, "{}: file is empty, expected {}", path, kKnown);
  if (bytes.starts_with("GGUF")) return import_gguf(path);
  if (looks_like_safetensors(path, bytes))
    fail(Exit::bad_file, "{}: file is a safetensors file, expected the path of its folder", path);
  if (looks_like_llama2c(bytes)) return import_llama2c(path, options.tokenizer);
  fail(Exit::bad_file, "{}: content is not a known model format, expected {}", path, kKnown);
}

Metadata import_tokenizer(const std::string& path, const ImportOptions& options) {
  if (!is_folder(path)) {
    const std::string bytes = beginning_of(path, kBeginning);
    if (bytes.starts_with("GGUF") || looks_like_llama2c(bytes))
      return import_model(path, options).meta;
  }
  Metadata meta;
  meta.origin = path;
  if (!is_folder(path)) {
    read_tokenizer_file(path, meta);
    return meta;
  }
  HfConfig config;
  if (const std::string file = path + "/config.json"; exists(file))
    config.vocab_size = std::max<int64_t>(0, read_json(file)["vocab_size"].integer(0));
  read_hf_tokenizer(path, config, meta);
  return meta;
}

}  // namespace chaski
