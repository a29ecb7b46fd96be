// Conversations of the page on the server (--store), for a browser that comes from elsewhere: one
// file each, in a sub-folder for each API key. Thread-safe.
#pragma once
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "main/api/api_error.h"

namespace chaski {

class Conversations {
 public:
  static constexpr std::string_view kPath = "/page/api/conversations";
  static constexpr size_t kMostBytes = size_t(8) << 20, kMostFiles = 10'000;  // of one; of a key

  // Creates the folder if it does not exist. `most_bytes`: of all files. Throws Error(io).
  Conversations(std::string folder, uint64_t most_bytes);

  // Answers GET, POST and DELETE of kPath and kPath/ID: returns the JSON body. `owner`: of the
  // client's API key (ApiKey::owner), which sees its own conversations only. An id is 1 to 64
  // letters, digits, `-` and `_`, so no path leads out of the folder. Throws ApiError (400, 404,
  // 405, 413, 507) and Error(io).
  std::string answer(std::string_view method, std::string_view path, const std::string& body,
                     const std::string& owner);

 private:
  std::string folder_of(const std::string& owner) const;
  std::string list(const std::string& folder) const;
  void write(const std::string& folder, const std::string& id, const std::string& body);
  uint64_t bytes() const;

  const std::string folder_;
  const uint64_t most_bytes_;
  std::mutex mutex_;  // guards the files
};

}  // namespace chaski
