// Downloads a file. FILE appears only when it is complete and its checksum matches. Until then the
// bytes are in FILE.part and the server's name of this version (entity tag or date) is in
// FILE.part.tag. The next call continues from there, or starts again if the version has changed. If
// no checksum is known, FILE.tag keeps the version, the URL and the computed checksum. A different
// file with the same name is never replaced.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

namespace chaski {

struct RemoteFile {
  std::string url, path;
  std::string sha256;  // empty: the checksum that the server sends, if any
  uint64_t bytes = 0;  // expected size; 0: unknown
};

struct FetchOptions {
  std::string token;                                            // access token; empty: none
  const std::atomic<bool>* stop = nullptr;                      // may be null
  std::function<void(uint64_t done, uint64_t total)> progress;  // bytes; total 0: unknown
  std::function<void(const std::string& line)> notice;
};

struct FetchedFile {
  uint64_t bytes = 0;    // size of the file, or of its part when stopped
  uint64_t fetched = 0;  // bytes that this call downloaded
  std::string sha256;    // computed checksum of the file
  bool proven = false;   // the checksum equals one that was known before
  bool stopped = false;
};

// Throws Error(io) if the server, the network or the disk fails, Error(bad_file) for a wrong
// checksum, Error(usage) if a different file with the name exists.
FetchedFile fetch_file(const RemoteFile& file, const FetchOptions& options);

bool is_sha256(const std::string& text);  // 64 hexadecimal digits in lower case

// Downloads a text of at most 16 MB, such as a list of files.
std::string fetch_text(const std::string& url, const FetchOptions& options);

}  // namespace chaski
