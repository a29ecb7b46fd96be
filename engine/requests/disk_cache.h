// What an inbox remembers over restarts: answers and prefixes, in a folder. An answer that was made
// with a seed that the request names is made once; the same request gets the stored bytes. The
// pages of a prefix that was used again are written in the background, and read when a text begins
// with them. Every text is the one that the inbox makes alone.
//
// Nothing on the disk costs an answer: a damaged file is dropped, a full disk stores nothing, and
// each reason is noted once. Files have the checksum of their bytes, and are in a sub-folder named
// by the model, its KV format and the program, so those of another one are never read. Several
// programs may share the folder; one sees the answers of the others at once, and their prefixes
// after a restart.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "engine/machine/bounded_folder.h"
#include "engine/requests/answer_cache.h"
#include "engine/requests/prefix_files.h"
#include "engine/requests/serving.h"

namespace chaski {

class DiskCache {
 public:
  // A prefix is worth a file if a later text began with at least kAgain tokens of it. Of prompts
  // that came once, those of at least kLong tokens are written at the end, if their pages are still
  // in memory and kMostAtEnd suffices.
  static constexpr int kAgain = 64, kLong = 512;
  static constexpr std::chrono::seconds kMostAtEnd{5};
  // Of the SHA-256 of the model, in the name of its folder.
  static constexpr size_t kFolderDigits = 32;
  // Between two passes at most this many bytes of pages are copied.
  static constexpr size_t kMostBetween = size_t(8) << 20;

  using Note = std::function<void(const std::string& line)>;
  // Opens the cache of the inbox's model in `folder`, whose files are shared by the caches of other
  // models. `note` is called by any thread. Reads all weights if the model file has no checksums.
  // The inbox must outlive this.
  DiskCache(std::shared_ptr<BoundedFolder> bound, const std::string& folder, Inbox& inbox,
            Note note);
  ~DiskCache();  // writes what is left to write
  DiskCache(const DiskCache&) = delete;

  // For BoundedFolder.
  static std::vector<std::string> endings();

  // generate() of serving.h; a stored answer gets the same events. Any thread may call this.
  GenerateResult generate(std::span<const TokenId> prompt, const GenerateOptions& options,
                          const Sink& sink);

  struct Facts {
    int64_t answer_hits = 0, answer_misses = 0;  // requests whose answer may be stored
    int64_t prefix_hits = 0, prefix_misses = 0;  // requests that read a prefix from files, or that
                                                 // have more than kAgain tokens and found none
    int64_t prefix_tokens = 0;                   // read from files
    int64_t writes = 0, written_bytes = 0;       // files
    int64_t faults = 0;                          // of the disk, damaged files, and writes that
                                                 // found no memory
    int unusable = 0;                            // caches that cannot use the folder
    Facts operator+(const Facts& other) const;
  };
  Facts facts() const;

 private:
  // What the thread writes: an answer with its key, or the prefix `text`.
  struct Work {
    std::string key;
    std::optional<GenerateResult> answer;
    std::vector<TokenId> text;
    bool is_last = false;  // the server ends: the prefix does not grow
  };
  void open(const std::string& folder);
  void make_own_folder() const;
  std::optional<GenerateResult> find(const std::string& key, std::span<const TokenId> prompt,
                                     const GenerateOptions& options,
                                     std::vector<std::string>& pieces);
  void read_prefix(std::span<const TokenId> prompt, const GenerateOptions& options);
  int put(const PrefixFiles::Part& part, std::span<const TokenId> text);
  void remember(std::span<const TokenId> prompt, const GenerateResult& result);
  void add(Work work);
  void work();
  void write(const Work& work);
  void write_answer(const Work& work);
  void write_prefix(std::span<const TokenId> text, bool is_last);
  void write_rest();
  // Counts it. Of several faults with the same `what`, the first one is noted.
  void fault(const std::string& line, const std::string& what);

  const std::shared_ptr<BoundedFolder> bound_;
  Inbox& inbox_;
  const Note note_;
  std::string own_;  // the folder of the model
  std::optional<AnswerKeys> keys_;
  std::optional<AnswerCache> answers_;
  std::unique_ptr<PrefixFiles> prefixes_;  // null: the pages of this engine cannot be kept

  mutable std::mutex mutex_;  // guards what follows, up to the blank line
  std::condition_variable changed_;
  Facts facts_;
  std::set<std::string> noted_;
  std::deque<Work> works_;
  // Long prompts that came once, the last one at the end.
  std::deque<std::vector<TokenId>> once_;
  // By the sum of a prefix that is in memory: how many pages had been evicted then.
  std::unordered_map<uint64_t, int64_t> in_memory_;
  // By the sum of a prefix of which the last pages were not written: how many pages files had then.
  std::unordered_map<uint64_t, int> left_;
  bool over_ = false;
  std::chrono::steady_clock::time_point end_;  // of the time for prefixes, when it is over

  std::thread thread_;
};

}  // namespace chaski
