// A file from the network, whole and proven, or not there: what has come so far lies beside it in
// FILE.part, with what the server calls this version of it in FILE.part.tag, and whoever asks again
// goes on from there. A file that changed meanwhile begins again. Where no sum is known, FILE.tag
// keeps the version, the URL and the sum of what came. Another file of the name is never replaced.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

namespace chaski {

struct RemoteFile {
  std::string url, path;
  std::string sha256;  // empty: as the server says, if it does
  uint64_t bytes = 0;  // 0: not known before
};

struct FetchOptions {
  std::string token;                                            // empty: none
  const std::atomic<bool>* stop = nullptr;                      // may be null
  std::function<void(uint64_t done, uint64_t total)> progress;  // bytes; 0: the total is not known
  std::function<void(const std::string& line)> notice;
};

struct FetchedFile {
  uint64_t bytes = 0;    // of the file; of its part when stopped
  uint64_t fetched = 0;  // of them, now
  std::string sha256;    // of what is there
  bool proven = false;   // against a sum that was known before
  bool stopped = false;
};

// Throws Error(io) where the server, the network or the disk fails, Error(bad_file) for another sum
// than expected, Error(usage) where another file is in the way.
FetchedFile fetch_file(const RemoteFile& file, const FetchOptions& options);

bool is_sha256(const std::string& text);  // 64 small hexadecimal digits

// A text of at most 16 MB, such as a list of files.
std::string fetch_text(const std::string& url, const FetchOptions& options);

}  // namespace chaski
