#include "engine/requests/cached_models.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <system_error>

#include "engine/requests/disk_cache.h"
#include "ggml-like-tensor/base/atomic_file.h"

namespace chaski {

namespace fs = std::filesystem;

namespace {

constexpr const char* kNameFile = "model";  // holds the path of the model

bool is_cache(const std::string& name) {
  return name.size() == DiskCache::kFolderDigits &&
         name.find_first_not_of("0123456789abcdef") == name.npos;
}

// Calls take(path, name) for each file of a folder.
template <class Take>
void each_in(const fs::path& folder, Take take) {
  std::error_code none;
  for (auto at = fs::directory_iterator(folder, none); at != fs::directory_iterator();
       at.increment(none))
    take(at->path(), at->path().filename().string());
}

std::string read_name(const fs::path& folder) {
  std::ifstream in(folder / kNameFile);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

void name_cached_model(const std::string& folder, const std::string& model) {
  const std::string path = (fs::path(folder) / kNameFile).string();
  std::error_code none;
  if (fs::exists(path, none)) return;
  AtomicFile file(path, Permissions::owner_only);
  const std::string known = fs::exists(model, none) ? fs::canonical(model, none).string() : model;
  file.write(std::as_bytes(std::span(known)));
  file.commit();
}

std::vector<CachedModel> cached_models(const std::string& folder) {
  std::vector<CachedModel> all;
  each_in(folder, [&](const fs::path& path, const std::string& name) {
    if (!is_cache(name)) return;
    CachedModel one{.folder = path.string(), .model = read_name(path), .used = {}};
    each_in(path, [&](const fs::path& file, const std::string& in) {
      struct stat st = {};
      const bool answer = in.ends_with(AnswerCache::kEnding),
                 prefix = in.ends_with(PrefixFiles::kEnding);
      if ((!answer && !prefix) || ::stat(file.c_str(), &st) != 0) return;
      one.answers += answer, one.prefixes += prefix;
      one.bytes += uint64_t(st.st_size);
      one.used = std::max(one.used, std::chrono::system_clock::from_time_t(st.st_mtim.tv_sec));
    });
    if (struct stat st = {}; one.answers + one.prefixes == 0 && ::stat(path.c_str(), &st) == 0)
      one.used = std::chrono::system_clock::from_time_t(st.st_mtim.tv_sec);
    all.push_back(std::move(one));
  });
  std::ranges::sort(all, std::ranges::greater{}, &CachedModel::used);
  return all;
}

void drop_cached_models(const std::string& folder) {
  std::error_code none;
  for (const CachedModel& model : cached_models(folder)) {
    remove_files_of(model.folder, DiskCache::endings());
    fs::remove(fs::path(model.folder) / kNameFile, none);
    fs::remove(model.folder, none);  // fails if a server has written into it
  }
}

}  // namespace chaski
