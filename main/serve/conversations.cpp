#include "main/serve/conversations.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "engine/machine/bounded_folder.h"
#include "engine/machine/temporaries.h"    // for AtomicFile
#include "engine/requests/answer_cache.h"  // for Sha256
#include "main/api/fields.h"
#include "main/terminal/output.h"

namespace chaski {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnding = ".json";
constexpr size_t kMostId = 64, kOwnerDigits = 16;
constexpr double kMostTime = 1e15;  // milliseconds since 1970
constexpr int64_t kThousand = 1000, kMillion = 1'000'000;

[[noreturn]] void refuse(int status, const char* code, const std::string& message) {
  throw ApiError(status, "invalid_request_error", code, message);
}

bool is_id(std::string_view id) {
  return !id.empty() && id.size() <= kMostId &&
         id.find_first_not_of("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_") ==
             id.npos;
}

// Of a file whose time of modification is that of the last change of its conversation.
int64_t milliseconds_of(const std::string& path) {
  struct stat st = {};
  ::stat(path.c_str(), &st);
  return int64_t(st.st_mtim.tv_sec) * kThousand + st.st_mtim.tv_nsec / kMillion;
}

void make_folder(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    fail(Exit::io, "{}: cannot be created as a folder: {}", path,
         std::generic_category().message(errno));
  struct stat st = {};
  if (::stat(path.c_str(), &st) == 0 && !S_ISDIR(st.st_mode))
    fail(Exit::io, "{}: is not a folder", path);
}

// Calls take(path, id, bytes) for each conversation in a folder.
template <class Take>
void each_file(const std::string& folder, Take take) {
  std::error_code none;
  for (auto at = fs::directory_iterator(folder, none); at != fs::directory_iterator();
       at.increment(none)) {
    const std::string name = at->path().filename().string();
    std::error_code gone;
    const uint64_t bytes = at->file_size(gone);
    if (gone || !name.ends_with(kEnding)) continue;
    if (const std::string id = name.substr(0, name.size() - kEnding.size()); is_id(id))
      take(at->path().string(), id, bytes);
  }
}

}  // namespace

Conversations::Conversations(std::string folder, uint64_t most_bytes)
    : folder_(std::move(folder)), most_bytes_(most_bytes) {
  std::error_code none;
  fs::create_directories(fs::path(folder_).parent_path(), none);
  make_folder(folder_);
  if (::access(folder_.c_str(), W_OK | X_OK) != 0)
    fail(Exit::io, "{}: cannot be written: {}", folder_, std::generic_category().message(errno));
}

std::string Conversations::folder_of(const std::string& owner) const {
  Sha256 sum;
  sum.add(std::as_bytes(std::span(owner)));
  const std::string path = (fs::path(folder_) / sum.finish().substr(0, kOwnerDigits)).string();
  make_private_folder(path);
  return path;
}

std::string Conversations::list(const std::string& folder) const {
  OrderedJson all = OrderedJson::array();
  each_file(folder, [&](const std::string& path, const std::string& id, uint64_t bytes) {
    all.push_back({{"id", id}, {"changed", milliseconds_of(path)}, {"bytes", bytes}});
  });
  return written({{"conversations", all}, {"most_bytes", most_bytes_}});
}

uint64_t Conversations::bytes() const {
  uint64_t sum = 0;
  std::error_code none;
  for (auto at = fs::directory_iterator(folder_, none); at != fs::directory_iterator();
       at.increment(none))
    each_file(at->path().string(),
              [&](const std::string&, const std::string&, uint64_t bytes) { sum += bytes; });
  return sum;
}

void Conversations::write(const std::string& folder, const std::string& id,
                          const std::string& body) {
  if (body.size() > kMostBytes)
    refuse(
        413, "too_large",
        fmt::format("the conversation has {} bytes, expected at most {}", body.size(), kMostBytes));
  Body parsed(body);
  if (const Field given = parsed.fields()["id"]; given.text() != id)
    given.wrong(id + ", as in the path");
  const auto time = int64_t(parsed.fields()["changed"].number(from_to(0, kMostTime)));
  const std::string path = (fs::path(folder) / (id + std::string(kEnding))).string();
  std::error_code none;
  const uint64_t size = fs::file_size(path, none);
  const bool is_new = bool(none);
  const uint64_t before = is_new ? 0 : size;
  size_t files = 0;
  each_file(folder, [&](const std::string&, const std::string&, uint64_t) { ++files; });
  if (is_new && files >= kMostFiles)
    refuse(507, "store_full",
           fmt::format("{} conversations are stored, which is the limit", files));
  if (const uint64_t all = bytes(); all - std::min(before, all) + body.size() > most_bytes_)
    refuse(507, "store_full",
           fmt::format("the conversations would have {} bytes, expected at most {} (--store-size)",
                       all - std::min(before, all) + body.size(), most_bytes_));
  AtomicFile file(path);
  file.write(std::as_bytes(std::span(body)));
  file.commit();
  const timespec at = {.tv_sec = time / kThousand, .tv_nsec = time % kThousand * kMillion};
  const timespec both[] = {at, at};
  ::utimensat(AT_FDCWD, path.c_str(), both, 0);
}

std::string Conversations::answer(std::string_view method, std::string_view path,
                                  const std::string& body, const std::string& owner) {
  const std::scoped_lock lock(mutex_);
  const std::string folder = folder_of(owner);
  if (path == kPath) {
    if (method != "GET")
      refuse(405, "method_not_allowed", "the list of conversations is read only");
    return list(folder);
  }
  const std::string id(path.substr(std::min(path.size(), kPath.size() + 1)));
  if (!is_id(id))
    refuse(400, "invalid_value",
           fmt::format("the id {} is not possible, expected 1 to {} letters, digits, - or _",
                       escaped(id), kMostId));
  const std::string file = (fs::path(folder) / (id + std::string(kEnding))).string();
  std::error_code none;
  if (method == "POST") {
    write(folder, id, body);
    return "{}";
  }
  if (!fs::is_regular_file(file, none)) refuse(404, "not_found", "there is no conversation " + id);
  if (method == "GET") return read_text(file);
  if (method != "DELETE")
    refuse(405, "method_not_allowed", "a conversation accepts GET, POST and DELETE");
  fs::remove(file, none);
  if (none) fail(Exit::io, "{}: {}", file, none.message());
  return "{}";
}

}  // namespace chaski
