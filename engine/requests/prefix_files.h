// Pages of prefixes in the files of a folder. A file has the pages [first, end) of a text, and all
// tokens up to their end, so that a page is never taken for that of another text. The files of a
// long text follow each other; each text that begins in the same way uses the first ones.
// Thread-safe. Several programs may share a folder.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/text/tokenizer/tokenizer.h"
#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/base/mapping.h"

namespace chaski {

class PrefixFiles {
 public:
  static constexpr const char* kEnding = ".prefix";

  // Reads the tokens of all files, but no pages. A file whose tokens cannot be read is passed over;
  // `skipped` is called with its path and the reason. The folder must exist.
  using Skipped = std::function<void(const std::string& path, const Error& error)>;
  explicit PrefixFiles(std::string folder, const Skipped& skipped = {});

  // Pages [first, end) of a text that a file has; it may have more.
  struct Part {
    std::string path;
    int first = 0, end = 0;
    uint64_t sum = 0;         // of all tokens up to the end
    bool whole_file = false;  // the file has no page after the end
  };
  // The parts that cover the beginning of `text`, without gaps and from page 0 on. Forgets files
  // that are gone.
  std::vector<Part> find(std::span<const TokenId> text);

  // The pages of a part, which live as long as `file`.
  struct Pages {
    std::shared_ptr<const Mapping> file;
    std::vector<std::span<const std::byte>> pages;
  };
  // Throws Error(io), and Error(bad_file) if the file is damaged.
  static Pages read(const Part& part, std::span<const TokenId> text);

  // The bytes of a file with these pages.
  static uint64_t file_bytes(std::span<const TokenId> text, std::span<const std::string> pages);
  // Writes the last pages of `text`, whose tokens are whole pages. One thread may call this. Throws
  // Error(io).
  void write(std::span<const TokenId> text, std::span<const std::string> pages);
  // Forgets a file that is gone or damaged.
  void forget(const std::string& path);
  // Forgets all files that are gone, and returns how many. write() calls this whenever twice as
  // many files are known as existed the last time, so the memory follows the files of the folder.
  size_t forget_missing();

 private:
  static constexpr size_t kLeastFiles = 64;  // are known before write() looks for missing ones
  struct File {
    std::vector<TokenId> tokens;
    int first = 0;
    std::chrono::steady_clock::time_point marked = {};  // as used
  };
  void add(const std::string& path, std::vector<TokenId> tokens, int first);
  std::vector<Part> find_known(std::span<const TokenId> text);

  const std::string folder_;
  std::mutex mutex_;                   // guards what follows
  std::map<std::string, File> files_;  // by path
  size_t most_files_ = kLeastFiles;    // known ones, before missing ones are looked for
  // By the sum of all tokens up to the end of a page: the files that have the page.
  std::unordered_multimap<uint64_t, const std::pair<const std::string, File>*> by_sum_;
};

}  // namespace chaski
