#include "engine/shelf/shelf.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <sstream>
#include <tuple>

#include "engine/machine/cache_folder.h"
#include "engine/shelf/hub.h"
#include "engine/shelf/inspection.h"
#include "engine/shelf/short_names.h"
#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/base/nearest.h"
#include "ggml-like-tensor/base/split_name.h"
#include "models/import/json_file.h"

namespace chaski {

namespace fs = std::filesystem;

namespace {

constexpr int kMaxDepth = 6;  // levels of folders that are searched

// The value of an environment variable, with "" for null.
std::string text_of(const char* value) { return value ? value : ""; }

std::string small(std::string text) {
  for (char& c : text) c = char(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::vector<std::string> folders_of_user() {
  std::vector<std::string> folders;
  std::istringstream all(text_of(std::getenv("CHASKI_MODELS")));
  for (std::string folder; std::getline(all, folder, ':');)
    if (!folder.empty()) folders.push_back(folder);
  return folders;
}

// Whether the file is a later part of a split model, or a vision projector (mmproj).
bool is_not_listed(const std::string& name) {
  const size_t of = name.rfind("-of-");
  return name.find("mmproj") != std::string::npos ||
         (of != std::string::npos && of >= 5 && name.substr(of - 5, 5) != "00001");
}

// Hugging Face's library names folders "models--OWNER--NAME/snapshots/HASH".
std::string name_of_folder(const fs::path& folder) {
  std::string name = folder.filename().string();
  const std::string above = folder.parent_path().parent_path().filename().string();
  if (folder.parent_path().filename() != "snapshots" || !above.starts_with("models--")) return name;
  name = above.substr(8);
  if (const size_t at = name.find("--"); at != std::string::npos) name.replace(at, 2, "/");
  return name;
}

class Shelf {
 public:
  // Folders inside a model's folder are parts of it, such as 2_Dense of a sentence encoder.
  void search(const fs::path& folder, const char* place, bool in_model = false,
              int deep = kMaxDepth) {
    std::error_code none;
    if (!folders_.insert(fs::canonical(folder, none)).second || none) return;
    bool config = false;
    uint64_t tensors = 0;
    std::vector<fs::path> inside;
    for (fs::directory_iterator at(folder, none), end; !none && at != end; at.increment(none)) {
      const std::string name = at->path().filename().string();
      if (at->is_directory(none)) {
        inside.push_back(at->path());
      } else if (name.ends_with(".gguf") || name.ends_with(".quipu")) {
        if (!is_not_listed(name)) add(at->path().stem().string(), at->path(), place);
      } else if (name.ends_with(".safetensors")) {
        std::error_code lost;  // set for a broken link
        const uint64_t bytes = fs::file_size(at->path(), lost);
        if (!lost) tensors += bytes;
      } else if (name == "config.json") {
        config = true;
      }
    }
    const bool is_model = config && tensors > 0 && !in_model;
    if (is_model) add(name_of_folder(folder), folder, place, tensors);
    if (deep == 0) return;
    for (const fs::path& next : inside) search(next, place, in_model || is_model, deep - 1);
  }

  // manifests/HOST/OWNER/NAME/TAG is a JSON file with the digest of the model's file in blobs/.
  void search_ollama(const fs::path& store) {
    std::error_code none;
    for (fs::recursive_directory_iterator at(store / "manifests", none), end; !none && at != end;
         at.increment(none)) {
      if (!at->is_regular_file(none) || at.depth() != 3) continue;
      const fs::path name = at->path().parent_path(), owner = name.parent_path();
      std::string blob = blob_of(at->path());
      if (blob.empty()) continue;
      std::replace(blob.begin(), blob.end(), ':', '-');
      add((owner.filename() == "library" ? "" : owner.filename().string() + "/") +
              name.filename().string() + ":" + at->path().filename().string(),
          store / "blobs" / blob, "ollama");
    }
  }

  // Sorted by name. A name that occurs again gets the suffix #2, #3, ...
  std::vector<ShelvedModel> models() {
    std::sort(all_.begin(), all_.end(), [](const ShelvedModel& a, const ShelvedModel& b) {
      return std::tie(a.name, a.path) < std::tie(b.name, b.path);
    });
    std::string before;
    int same = 0;
    for (ShelvedModel& m : all_) {
      same = m.name == before ? same + 1 : 1;
      before = m.name;
      if (same > 1) m.name += fmt::format("#{}", same);
    }
    return std::move(all_);
  }

 private:
  // The digest of the manifest's model layer; empty if the file is not a manifest.
  static std::string blob_of(const fs::path& manifest) {
    std::string blob;
    try {
      read_json(manifest.string())["layers"].each([&](const Json& layer) {
        if (layer["mediaType"].str("").ends_with("image.model")) blob = layer["digest"].str();
      });
    } catch (const Error&) {
      return "";
    }
    return blob;
  }

  void add(const std::string& name, const fs::path& path, const char* place, uint64_t bytes = 0) {
    std::error_code none;
    const fs::path whole = fs::canonical(path, none);
    if (none || !seen_.insert(whole).second) return;
    const bool counts = bytes == 0;
    if (counts) bytes = fs::file_size(whole, none);
    if (none) return;
    for (const std::string& part : names_of_parts(path.string()))
      if (std::error_code lost; counts && part != path.string())
        if (const uint64_t more = fs::file_size(part, lost); !lost) bytes += more;
    all_.push_back({name, path.string(), bytes, place});
  }

  std::vector<ShelvedModel> all_;
  std::set<fs::path> seen_, folders_;
};

}  // namespace

std::string first_folder_of_shelf() {
  const std::vector<std::string> own = folders_of_user();
  if (own.empty() && cache_folder().empty())
    fail(Exit::usage, "CHASKI_MODELS and HOME are not set, expected --to FOLDER");
  return own.empty() ? cache_folder() : own[0];
}

std::vector<std::string> missing_folders_of_user() {
  std::vector<std::string> missing;
  std::error_code none;
  for (const std::string& folder : folders_of_user())
    if (!fs::is_directory(folder, none)) missing.push_back(folder);
  return missing;
}

std::vector<ShelvedModel> models_on_shelf() {
  Shelf shelf;
  for (const std::string& folder : folders_of_user()) shelf.search(folder, "CHASKI_MODELS");
  const std::string home = text_of(std::getenv("HOME")),
                    cache = text_of(std::getenv("XDG_CACHE_HOME")),
                    caches = cache.empty() ? home + "/.cache" : cache,
                    hub = text_of(std::getenv("HF_HOME")),
                    ollama = text_of(std::getenv("OLLAMA_MODELS"));
  if (!cache_folder().empty()) shelf.search(cache_folder(), "chaski");
  if (!hub.empty() || !home.empty())
    shelf.search((hub.empty() ? caches + "/huggingface" : hub) + "/hub", "Hugging Face");
  if (!home.empty()) {
    shelf.search(caches + "/llama.cpp", "llama.cpp");
    shelf.search(home + "/.lmstudio/models", "LM Studio");
  }
  if (!ollama.empty() || !home.empty())
    shelf.search_ollama(ollama.empty() ? home + "/.ollama/models" : ollama);
  return shelf.models();
}

namespace {

// The names that are most similar to `name`, best first, at most three.
std::vector<std::string> three_nearest(const std::string& name, std::vector<std::string> names) {
  std::vector<std::string> nearest;
  while (nearest.size() < 3 && !names.empty()) {
    nearest.push_back(nearest_name(name, names));
    std::erase(names, nearest.back());
  }
  return nearest;
}

// "Qwen/Qwen3-0.6B" is called Qwen, Qwen3, Qwen3-0.6B and Qwen/Qwen3, too: names are typed without
// their ends.
std::vector<std::string> beginnings_of(const std::string& name) {
  std::vector<std::string> all;
  const size_t slash = name.rfind('/');
  for (const size_t from : {size_t(0), slash == std::string::npos ? 0 : slash + 1})
    for (size_t at = from + 1; at <= name.size(); ++at)
      if (at == name.size() || std::string_view("-_.:/#").find(name[at]) != std::string::npos)
        all.push_back(name.substr(from, at - from));
  return all;
}

// The model with a beginning that is most similar to `name`; of several the one whose whole name
// is. `models` is not empty.
std::vector<ShelvedModel>::iterator nearest_model(const std::string& name,
                                                  std::vector<ShelvedModel>& models) {
  std::vector<std::string> beginnings, names;
  for (const ShelvedModel& model : models)
    std::ranges::move(beginnings_of(model.name), std::back_inserter(beginnings));
  const std::string nearest = small(nearest_name(name, beginnings));
  for (const ShelvedModel& model : models)
    if (std::ranges::count(beginnings_of(small(model.name)), nearest) > 0)
      names.push_back(model.name);
  return std::ranges::find(models, nearest_name(name, names), &ShelvedModel::name);
}

// Opens the model to read its kind. False if it cannot be opened, because its kind is unknown.
bool makes_embeddings(const std::string& path) {
  try {
    return good_for(inspect_model(path, "")) == "embeddings";
  } catch (const Error&) {
    return false;
  }
}

std::string with_and(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i)
    text += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + names[i];
  return text;
}

// Whether `model` is what `pull` stores, or Hugging Face's library, for this name of a hub.
bool is_from_hub(const ShelvedModel& model, const std::string& name) {
  const size_t colon = name.find(':');
  const std::string repository = name.substr(0, colon);
  if (colon != std::string::npos && !has_quant(model.path, name.substr(colon + 1))) return false;
  return model.name == repository || model.path.find("/" + repository + "/") != std::string::npos;
}

// The only model for which `fits` is true. Of several, the one in the preferred quantization.
template <class Fits>
const ShelvedModel* only(const std::vector<ShelvedModel>& all, Fits fits) {
  std::vector<const ShelvedModel*> found, preferred;
  for (const ShelvedModel& model : all)
    if (fits(model)) found.push_back(&model);
  for (const ShelvedModel* model : found)
    if (has_quant(model->path, kPreferredQuant)) preferred.push_back(model);
  if (found.size() > 1 && preferred.size() == 1) return preferred[0];
  return found.size() == 1 ? found[0] : nullptr;
}

}  // namespace

FoundModel find_model(const std::string& name, NameMatch match) {
  const std::vector<ShelvedModel> all = models_on_shelf();
  for (const ShelvedModel& m : all)
    if (m.name == name || fs::path(m.path).filename() == name) return {m.path, m.name};
  if (const ShortName* known = find_short_name(name))
    for (const ShelvedModel& m : all)
      if (fs::path(m.path).filename() == known->file) return {m.path, m.name, true};
  if (const std::string of_hub = name_on_hub(name); !of_hub.empty())
    if (const ShelvedModel* m =
            only(all, [&](const ShelvedModel& model) { return is_from_hub(model, of_hub); }))
      return {m->path, m->name, true};
  if (match == NameMatch::whole) return {};
  std::vector<const ShelvedModel*> begin, contain;
  for (const ShelvedModel& m : all) {
    const size_t at = small(m.name).find(small(name));
    if (at == 0) begin.push_back(&m);
    if (at != std::string::npos) contain.push_back(&m);
  }
  const auto& found = begin.empty() ? contain : begin;
  if (found.size() == 1) return {found[0]->path, found[0]->name, true};
  if (found.empty()) return {};
  std::vector<std::string> names;
  for (const ShelvedModel* m : found) names.push_back(m->name);
  const std::vector<std::string> nearest = three_nearest(name, names);
  fail(Exit::usage, "{} models have names that {} {}, expected one of them: {}{}", names.size(),
       begin.empty() ? "contain" : "begin with", name, with_and(nearest),
       names.size() > nearest.size() ? " are the nearest (chaski list shows all)" : "");
}

std::string path_of_model(const std::string& name) {
  std::error_code none;
  if (name.empty() || name.find('/') == 0 || name.find('.') == 0 || fs::exists(name, none))
    return name;
  const FoundModel found = find_model(name);
  return found.path.empty() ? name : found.path;
}

std::string name_on_shelf(const std::string& path) {
  std::error_code none;
  for (const ShelvedModel& model : models_on_shelf())
    if (fs::equivalent(model.path, path, none)) return model.name;
  return path;
}

std::string nearest_models(const std::string& name, WantedModel wanted) {
  std::vector<ShelvedModel> models = models_on_shelf();
  std::vector<std::string> nearest;
  while (nearest.size() < 3 && !models.empty()) {
    const auto at = nearest_model(name, models);
    if (wanted == WantedModel::any || !makes_embeddings(at->path)) nearest.push_back(at->name);
    models.erase(at);
  }
  return with_and(nearest);
}

}  // namespace chaski
