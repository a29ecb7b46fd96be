#include "engine/machine/bounded_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <tuple>

#include "ggml-like-tensor/base/error.h"

namespace chaski {

namespace fs = std::filesystem;

namespace {

// Other programs write too, so the folder is read again after as many files of this one.
constexpr int kMostUnread = 64;
constexpr mode_t kPrivate = 0700, kOfOthers = 0077;

// A living writer holds a lock on its temporary file (atomic_file.h).
bool remove_if_unlocked(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return false;
  const bool removed = ::flock(fd, LOCK_EX | LOCK_NB) == 0 && ::unlink(path.c_str()) == 0;
  ::close(fd);
  return removed;
}

bool has_ending(const std::string& name, const std::vector<std::string>& endings) {
  return std::ranges::any_of(endings,
                             [&](const std::string& ending) { return name.ends_with(ending); });
}

// True for the name of a temporary file of a file that has_ending().
bool is_temporary(const std::string& name, const std::vector<std::string>& endings) {
  return name.starts_with('.') && name.ends_with(".tmp") &&
         std::ranges::any_of(endings, [&](const std::string& ending) {
           return name.find(ending + ".") != std::string::npos;
         });
}

}  // namespace

void mark_used(const std::string& path) { ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0); }

void remove_files_of(const std::string& folder, const std::vector<std::string>& endings) {
  std::error_code none;
  std::vector<fs::path> found;
  for (auto at = fs::directory_iterator(folder, none); at != fs::directory_iterator();
       at.increment(none))
    found.push_back(at->path());
  for (const fs::path& path : found) {
    const std::string name = path.filename().string();
    if (is_temporary(name, endings))
      remove_if_unlocked(path);
    else if (has_ending(name, endings) && !fs::is_directory(fs::symlink_status(path, none)))
      fs::remove(path, none);
  }
}

struct BoundedFolder::File {
  fs::file_time_type time;
  fs::path path;
  uint64_t bytes;
};

BoundedFolder::BoundedFolder(std::string folder, std::vector<std::string> endings,
                             uint64_t most_bytes)
    : folder_(std::move(folder)), endings_(std::move(endings)) {
  facts_.most_bytes = most_bytes;
  make_room(0);
}

// The files, and facts_.bytes of them. Reads the folder without mutex_, and counts what was added
// meanwhile once more: too much until the next reading, never too little.
std::vector<BoundedFolder::File> BoundedFolder::list() {
  std::vector<File> all;
  uint64_t bytes = 0;
  {
    const std::scoped_lock lock(mutex_);
    added_ = 0, added_bytes_ = 0;
  }
  std::error_code none;
  for (auto in = fs::directory_iterator(folder_, none); in != fs::directory_iterator();
       in.increment(none))
    for (auto at = fs::directory_iterator(in->path(), none); at != fs::directory_iterator();
         at.increment(none)) {
      const std::string name = at->path().filename().string();
      const bool temporary = is_temporary(name, endings_);
      if (temporary ? remove_if_unlocked(at->path()) : !has_ending(name, endings_)) continue;
      std::error_code gone;
      const uint64_t size = at->file_size(gone);
      const fs::file_time_type time = at->last_write_time(gone);
      if (gone) continue;
      bytes += size;
      if (!temporary) all.push_back({time, at->path(), size});
    }
  const std::scoped_lock lock(mutex_);
  facts_.bytes = bytes + added_bytes_;
  return all;
}

bool BoundedFolder::fits(uint64_t more) const {
  const std::scoped_lock lock(mutex_);
  return facts_.bytes + more <= facts_.most_bytes;
}

bool BoundedFolder::make_room(uint64_t more) {
  const auto is_new = [&] {
    const std::scoped_lock lock(mutex_);
    return more > 0 && added_ < kMostUnread;
  };
  if (more > facts_.most_bytes) return false;
  if (is_new() && fits(more)) return true;
  const std::scoped_lock reading(reading_);
  if (is_new() && fits(more)) return true;  // another thread has made room
  std::vector<File> all = list();
  std::ranges::sort(all, [](const File& a, const File& b) {
    return std::tie(a.time, b.path) < std::tie(b.time, a.path);
  });
  for (const File& file : all) {
    if (fits(more)) break;
    std::error_code failed;
    fs::remove(file.path, failed);  // false without a failure: another program has removed it
    if (failed) continue;
    const std::scoped_lock lock(mutex_);
    facts_.bytes -= std::min(file.bytes, facts_.bytes), ++facts_.removed;
  }
  return fits(more);
}

void BoundedFolder::add(uint64_t bytes) {
  const std::scoped_lock lock(mutex_);
  facts_.bytes += bytes, added_bytes_ += bytes, ++added_;
}

void BoundedFolder::remove(const std::string& path) {
  std::error_code none;
  const uint64_t bytes = fs::file_size(path, none);
  if (none || !fs::remove(path, none)) return;
  const std::scoped_lock lock(mutex_);
  facts_.bytes -= std::min(bytes, facts_.bytes);
}

BoundedFolder::Facts BoundedFolder::facts() const {
  const std::scoped_lock lock(mutex_);
  return facts_;
}

void make_private_folder(const std::string& path) {
  const auto refuse = [&](const std::string& why) { fail(Exit::io, "{}: {}", path, why); };
  const auto reason = [] { return std::generic_category().message(errno); };
  if (::mkdir(path.c_str(), kPrivate) == 0) return;
  if (errno != EEXIST) refuse("cannot be created as a folder: " + reason());
  struct stat st = {};
  if (::lstat(path.c_str(), &st) != 0) refuse("cannot be read: " + reason());
  if (!S_ISDIR(st.st_mode)) refuse("is a file or a symbolic link, expected a folder");
  if (st.st_uid != ::geteuid())
    refuse(fmt::format("belongs to user {}, expected user {}", st.st_uid, ::geteuid()));
  if ((st.st_mode & kOfOthers) != 0 && ::chmod(path.c_str(), kPrivate) != 0)
    refuse("others may read it, and that cannot be changed: " + reason());
}

}  // namespace chaski
