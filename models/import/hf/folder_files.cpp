#include "models/import/hf/folder_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <span>

#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/base/mapping.h"
#include "models/import/folder.h"

namespace chaski {

uint64_t FolderTensor::bytes() const {
  return std::accumulate(shape.begin(), shape.end(), uint64_t(item),
                         [](uint64_t all, int64_t n) { return all * uint64_t(n); });
}

namespace {

using nlohmann::ordered_json;

// The files of a folder other than weights and config.json. tokenizer.json comes after the other
// files that are made, because its presence shows that the folder has a tokenizer.
constexpr const char* kOtherFiles[] = {"tokenizer_config.json",
                                       "tokenizer.json",
                                       "tokenizer.model",
                                       "vocab.json",
                                       "merges.txt",
                                       "vocab.txt",
                                       "added_tokens.json",
                                       "chat_template.jinja",
                                       "chat_template.json",
                                       "generation_config.json",
                                       "special_tokens_map.json"};

bool is_tokenizer(std::string_view name) {
  return name.starts_with("tokenizer.") || name.starts_with("vocab.");
}

// The name of a file that is not part of a model folder; empty: there is none. Leftovers of a
// killed run are allowed: writing their file replaces them.
std::string unrelated_file_in(const std::string& folder) {
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
    const std::string name = entry.path().filename().string();
    const auto begins_with = [&](std::string_view part) { return name.starts_with(part); };
    if (!begins_with(".") && !begins_with("model.safetensors") && !begins_with("config.json") &&
        std::ranges::none_of(kOtherFiles, begins_with))
      return name;
  }
  return "";
}

class FolderWriter {
 public:
  FolderWriter(const std::string& folder, const ModelSource& source)
      : folder_(folder), source_(source), made_(folder) {}

  WrittenFolder run(std::vector<FolderTensor> tensors, const std::function<std::string()>& config,
                    const std::vector<NamedText>& tokenizer,
                    const std::function<void(uint64_t)>& done, uint64_t shard_bytes) {
    WrittenFolder made;
    for (const FolderTensor& t : tensors) made.bytes += t.bytes();
    write_shards(split(std::move(tensors), shard_bytes), made.bytes, done);
    if (!copy_other_files())
      for (const NamedText& file : tokenizer) write_other_file(file.name, file.text);
    write("config.json", config());
    for (const auto& file : files_) file->sync();
    for (const auto& file : files_) file->commit();
    made_.keep();
    for (const char* name : kOtherFiles) {
      const bool there = exists(folder_ + "/" + name);
      made.has_tokenizer = made.has_tokenizer || (there && is_tokenizer(name));
      if (there && !written_.contains(name)) made.stayed.push_back(name);
    }
    return made;
  }

 private:
  using Shard = std::vector<FolderTensor>;

  // Wide elements come first in a shard, so that all of them are aligned.
  static std::vector<Shard> split(std::vector<FolderTensor> tensors, uint64_t most) {
    std::vector<Shard> shards(1);
    uint64_t bytes = 0;
    for (FolderTensor& t : tensors) {
      if (bytes > 0 && bytes + t.bytes() > most && !t.with_previous) {
        shards.emplace_back();
        bytes = 0;
      }
      bytes += t.bytes();
      shards.back().push_back(std::move(t));
    }
    for (Shard& shard : shards)
      std::ranges::stable_sort(shard, std::greater<>(), &FolderTensor::item);
    return shards;
  }

  AtomicFile& add(const std::string& name) {
    files_.push_back(std::make_unique<AtomicFile>(folder_ + "/" + name));
    return *files_.back();
  }

  void write_shards(const std::vector<Shard>& shards, uint64_t total,
                    const std::function<void(uint64_t)>& done) {
    if (shards.size() == 1) return write_shard("model.safetensors", shards[0], done);
    ordered_json index = {{"metadata", {{"total_size", total}}}};
    for (size_t i = 0; i < shards.size(); ++i) {
      const std::string name =
          fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
      write_shard(name, shards[i], done);
      for (const FolderTensor& t : shards[i]) index["weight_map"][t.name] = name;
    }
    write("model.safetensors.index.json", index.dump(2) + "\n");
  }

  void write_shard(const std::string& name, const Shard& shard,
                   const std::function<void(uint64_t)>& done) {
    ordered_json tensors = {{"__metadata__", {{"format", "pt"}}}};
    uint64_t at = 0;
    for (const FolderTensor& t : shard) {
      tensors[t.name] = {
          {"dtype", t.dtype}, {"shape", t.shape}, {"data_offsets", {at, at + t.bytes()}}};
      at += t.bytes();
    }
    std::string header = tensors.dump();
    header.resize((header.size() + 7) / 8 * 8, ' ');
    AtomicFile& file = add(name);
    const uint64_t length = header.size();
    file.write(std::as_bytes(std::span(&length, 1)));
    file.write(std::as_bytes(std::span(header)));
    for (const FolderTensor& t : shard) {
      const uint64_t before = file.size();
      t.write(file);
      ENSURE(file.size() - before == t.bytes(), "a tensor has the bytes that the header says");
      if (done) done(t.bytes());
    }
  }

  void write(const std::string& name, std::string_view text) {
    add(name).write(std::as_bytes(std::span(text)));
    written_.insert(name);
  }

  // An existing file is kept.
  void write_other_file(const std::string& name, std::string_view text) {
    const std::string path = folder_ + "/" + name;
    if (!exists(path)) return write(name, text);
    if (!std::filesystem::is_regular_file(path)) return;
    const auto there = Mapping::open(path);
    if (std::ranges::equal(there->bytes(), std::as_bytes(std::span(text)))) written_.insert(name);
  }

  // Copies the files that packing does not change. Returns true if a tokenizer was among them.
  bool copy_other_files() {
    bool tokenizer = false;
    if (!is_folder(source_.path)) return false;
    for (const char* name : kOtherFiles) {
      const std::string from = source_.path + "/" + name;
      if (!exists(from)) continue;
      const auto text = Mapping::open(from);
      const auto bytes = text->bytes();
      write_other_file(name, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
      tokenizer = tokenizer || is_tokenizer(name);
    }
    return tokenizer;
  }

  const std::string folder_;
  const ModelSource& source_;
  AtomicFolder made_;  // before files_: a folder is removed after its files
  std::vector<std::unique_ptr<AtomicFile>> files_;
  std::set<std::string> written_;  // names of files other than the weights
};

}  // namespace

void expect_new_folder(const std::string& folder, const ModelSource& source) {
  if (exists(source.path)) refuse_same_file(source.path, folder);
  if (exists(folder + "/config.json"))
    fail(Exit::usage, "{}: folder already holds a model, expected the name of a new folder",
         folder);
  if (exists(folder) && !is_folder(folder))
    fail(Exit::usage, "{}: path is a file, expected the name of a new folder", folder);
  if (const std::string other = unrelated_file_in(folder); !other.empty())
    fail(Exit::usage, "{}: folder holds other files ({}), expected a new or an empty folder",
         folder, escaped(other));
}

WrittenFolder write_folder_files(const std::string& folder, const ModelSource& source,
                                 std::vector<FolderTensor> tensors,
                                 const std::function<std::string()>& config,
                                 const std::vector<NamedText>& tokenizer,
                                 const std::function<void(uint64_t bytes)>& done,
                                 uint64_t shard_bytes) {
  return FolderWriter(folder, source).run(std::move(tensors), config, tokenizer, done, shard_bytes);
}

}  // namespace chaski
