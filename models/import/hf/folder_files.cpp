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
                                       "special_tokens_map.json",
                                       "preprocessor_config.json",
                                       "processor_config.json",
                                       "video_preprocessor_config.json",
                                       "spiece.model",
                                       "tiktoken.model"};

bool is_tokenizer(std::string_view name) {
  return name.starts_with("tokenizer.") || name.starts_with("vocab.");
}

// The name of a file that is neither a tokenizer file nor hidden; empty: there is none. Weights are
// such files: readers prefer model.safetensors to shards, so old weights could win over new ones.
// Temporary files of a killed run are hidden.
std::string unrelated_file_in(const std::string& folder) {
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
    const std::string name = entry.path().filename().string();
    const auto begins_with = [&](std::string_view part) { return name.starts_with(part); };
    if (!begins_with(".") && std::ranges::none_of(kOtherFiles, begins_with)) return name;
  }
  return "";
}

class FolderWriter {
 public:
  FolderWriter(const std::string& folder, const ModelSource& source)
      : folder_(folder), source_(source), made_(folder) {}

  WrittenFolder run(std::vector<FolderTensor> tensors, const std::string& config,
                    const std::vector<NamedText>& tokenizer, const OnWritten& done,
                    uint64_t shard_bytes) {
    WrittenFolder made;
    for (const FolderTensor& t : tensors) made.bytes += t.bytes();
    total_ = made.bytes;
    write_shards(split(std::move(tensors), shard_bytes), done);
    if (!copy_other_files())
      for (const NamedText& file : tokenizer) write_other_file(file.name, file.text);
    write("config.json", config);
    for (const auto& file : files_) file->sync();
    commit();
    made_.keep();
    made.left_out = files_left_out();
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
    for (size_t i = 0, end = 0; i < tensors.size(); i = end) {
      uint64_t together = 0;  // of a tensor and those that belong to it
      for (end = i; end < tensors.size() && (end == i || tensors[end].with_previous); ++end)
        together += tensors[end].bytes();
      if (bytes > 0 && bytes + together > most) {
        shards.emplace_back();
        bytes = 0;
      }
      bytes += together;
      std::move(tensors.begin() + int64_t(i), tensors.begin() + int64_t(end),
                std::back_inserter(shards.back()));
    }
    for (Shard& shard : shards)
      std::ranges::stable_sort(shard, std::greater<>(), &FolderTensor::item);
    return shards;
  }

  AtomicFile& add(const std::string& name) {
    files_.push_back(std::make_unique<AtomicFile>(folder_ + "/" + name));
    names_.push_back(name);
    return *files_.back();
  }

  // Gives all files their names. After an error it removes those that have one; all were new.
  void commit() {
    size_t n = 0;
    try {
      for (; n < files_.size(); ++n) files_[n]->commit();
    } catch (const Error&) {
      std::error_code ignored;
      while (n > 0) std::filesystem::remove(folder_ + "/" + names_[--n], ignored);
      throw;
    }
  }

  std::vector<std::string> files_left_out() const {
    std::vector<std::string> names;
    std::error_code none;
    if (!is_folder(source_.path)) return names;
    for (const auto& entry : std::filesystem::directory_iterator(source_.path, none)) {
      const std::string name = entry.path().filename().string();
      const auto is = [&](std::string_view other) { return name == other; };
      const auto ends = [&](std::string_view end) { return name.ends_with(end); };
      if ((ends(".py") || ends(".model") || ends(".tiktoken")) &&
          std::ranges::none_of(kOtherFiles, is))
        names.push_back(name);
    }
    std::ranges::sort(names);
    return names;
  }

  void write_shards(const std::vector<Shard>& shards, const OnWritten& done) {
    if (shards.size() == 1) return write_shard("model.safetensors", shards[0], done);
    // Names are appended: the library would search all earlier ones for each.
    ordered_json::object_t files;
    for (size_t i = 0; i < shards.size(); ++i) {
      const std::string name =
          fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
      write_shard(name, shards[i], done);
      for (const FolderTensor& t : shards[i]) files.emplace_back(t.name, name);
    }
    const ordered_json index = {{"metadata", {{"total_size", total_}}},
                                {"weight_map", std::move(files)}};
    write("model.safetensors.index.json", index.dump(2) + "\n");
  }

  void write_shard(const std::string& name, const Shard& shard, const OnWritten& done) {
    ordered_json::object_t tensors;
    tensors.emplace_back("__metadata__", ordered_json{{"format", "pt"}});
    uint64_t at = 0;
    for (const FolderTensor& t : shard) {
      tensors.emplace_back(t.name, ordered_json{{"dtype", t.dtype},
                                                {"shape", t.shape},
                                                {"data_offsets", {at, at + t.bytes()}}});
      at += t.bytes();
    }
    std::string header = ordered_json(std::move(tensors)).dump();
    header.resize((header.size() + 7) / 8 * 8, ' ');
    AtomicFile& file = add(name);
    const uint64_t length = header.size();
    file.write(std::as_bytes(std::span(&length, 1)));
    file.write(std::as_bytes(std::span(header)));
    for (const FolderTensor& t : shard) {
      const uint64_t before = file.size();
      t.write(file);
      ENSURE(file.size() - before == t.bytes(), "a tensor has the bytes that the header says");
      bytes_written_ += t.bytes();
      if (done) done(bytes_written_, total_);
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
  std::vector<std::string> names_;          // of files_
  uint64_t bytes_written_ = 0, total_ = 0;  // of tensors
  std::set<std::string> written_;           // names of files other than the weights
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
                                 std::vector<FolderTensor> tensors, const std::string& config,
                                 const std::vector<NamedText>& tokenizer, const OnWritten& done,
                                 uint64_t shard_bytes) {
  return FolderWriter(folder, source).run(std::move(tensors), config, tokenizer, done, shard_bytes);
}

}  // namespace chaski
