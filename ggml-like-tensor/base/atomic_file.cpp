// Writes a file so that a crash, a full disk or Ctrl-C leaves either the old file or the new one.
// The temporary file is in the same folder, because rename() is atomic only within a file system.
#include "ggml-like-tensor/base/atomic_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <system_error>
#include <utility>

#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/base/split_name.h"

namespace chaski {

namespace fs = std::filesystem;

namespace {

constexpr mode_t kOwnerOnly = 0600, kAnyone = 0666;

// --- Open temporary files, in a table that a signal handler can read: no lock, no allocation. A
// file that finds the table full is not in it: after a signal it stays until the next writer of its
// name. ---

enum SlotState : int { kFree, kFilling, kLive };
struct Slot {
  std::atomic<int> state{kFree};
  char path[PATH_MAX];
};
// A model folder of 2 TB has 400 shards of 5 GB, which are open until all are complete. The table
// takes 2 MB of addresses; a page of memory is used only when a slot is.
constexpr int kSlots = 512;
Slot slots[kSlots];
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler reads it");

void register_temporary(const std::string& path) {
  for (Slot& slot : slots) {
    int expected = kFree;
    if (!slot.state.compare_exchange_strong(expected, kFilling)) continue;
    std::memcpy(slot.path, path.c_str(), path.size() + 1);
    slot.state = kLive;
    return;
  }
}

void unregister_temporary(const std::string& path) {
  for (Slot& slot : slots)
    if (slot.state == kLive && path == slot.path) slot.state = kFree;
}

// --- Names. ---

std::string reason(int error) {
  std::string text = std::generic_category().message(error);
  text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  return text;
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

// The path where a file of this name really is: the end of a chain of symbolic links, whether or
// not it exists yet. /dev/stdout and similar names end in /proc, where a rename makes no sense.
fs::path resolve_links(const std::string& path) {
  constexpr int kMaxLinks = 40;  // the limit of Linux
  fs::path at = path;
  std::error_code error;
  for (int i = 0; i < kMaxLinks; i++) {
    const fs::path folder = fs::canonical(folder_of(at), error);
    if (error)
      fail(Exit::io, "{}: folder {}: {}", path, folder_of(at).string(), reason(error.value()));
    if ((folder.string() + "/").starts_with("/proc/"))
      fail(Exit::usage, "{}: is not a regular file, expected a file name to write", path);
    if (!fs::is_symlink(fs::symlink_status(at, error))) return at;
    at = folder / fs::read_symlink(at, error);  // an absolute link replaces `folder`
  }
  fail(Exit::io, "{}: too many levels of symbolic links", path);
}

// Checks that there is no file or one that may be replaced. Returns its permissions, if any.
std::optional<mode_t> mode_of_old(const std::string& path) {
  struct stat st;
  if (::stat(path.c_str(), &st) != 0) return std::nullopt;
  if (S_ISDIR(st.st_mode))
    fail(Exit::usage, "{}: is a folder, expected a file name to write", path);
  if (!S_ISREG(st.st_mode))
    fail(Exit::usage, "{}: is not a regular file, expected a file name to write", path);
  return st.st_mode & 07777;
}

// --- Temporary files of writers that were killed. A living writer holds a lock on its file; the
// system releases it when the process ends in any way. So a file that can be locked has no writer.
// If a file system has no locks, nothing is removed. ---

bool is_temporary(std::string_view name, std::string_view prefix) {
  constexpr size_t kRandom = 16;
  if (!name.starts_with(prefix) || !name.ends_with(".tmp")) return false;
  const std::string_view random = name.substr(prefix.size(), name.size() - prefix.size() - 4);
  return random.size() == kRandom &&
         random.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// Lists the names in a folder, as far as they can be read. Does not use the standard library's
// iterator: it is noexcept, so it ends the program if it runs out of memory.
template <class Take>
void each_name(const fs::path& folder, Take take) {
  const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(folder.c_str()), ::closedir);
  if (!open) return;
  while (const dirent* entry = ::readdir(open.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") take(name);
  }
}

void remove_stale(const fs::path& folder, const std::string& prefix, const std::string& but = "") {
  each_name(folder, [&](std::string_view name) {
    if (!is_temporary(name, prefix) || name == but) return;
    const fs::path path = folder / name;
    const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return;
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) ::unlink(path.c_str());
    ::close(fd);
  });
}

std::string prefix_of(const fs::path& path) { return "." + path.filename().string() + "."; }

// The temporary file with the latest write; empty if there is none.
std::string latest_of(const fs::path& folder, const std::string& prefix) {
  std::string latest;
  fs::file_time_type when;
  each_name(folder, [&](std::string_view name) {
    std::error_code error;
    if (!is_temporary(name, prefix)) return;
    const auto written = fs::last_write_time(folder / name, error);
    if (!error && (latest.empty() || written > when)) latest = name, when = written;
  });
  return latest;
}

// Returns false if another process considered the new file stale, and locked or removed it first.
bool lock_new(int fd) {
  struct stat st;
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return false;
  return ::fstat(fd, &st) != 0 || st.st_nlink > 0;
}

[[noreturn]] void write_failed(const std::string& path, int error, uint64_t done) {
  fail(Exit::io, "{}: {} (wrote {} bytes)", path, reason(error), done);
}

// Writes all of `bytes` at `offset`.
void put(int fd, const std::string& path, uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) write_failed(path, n < 0 ? errno : EIO, offset);
    offset += static_cast<uint64_t>(n);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

}  // namespace

AtomicFile::AtomicFile(std::string path, Leftover leftover, Permissions permissions)
    : path_(std::move(path)), leftover_(leftover), permissions_(permissions) {
  if (fs::path(path_).filename().empty())
    fail(Exit::usage, "{}: is a folder, expected a file name to write", path_);
  path_ = resolve_links(path_).string();
  std::optional<mode_t> mode = mode_of_old(path_);
  if (permissions_ == Permissions::owner_only) mode = kOwnerOnly;
  open_temporary();
  // file systems without permissions refuse this, which does no harm
  if (mode) ::fchmod(fd_, *mode);
}

// Creates a new unique name. Its lock says that the writer is alive: see remove_stale.
void AtomicFile::open_temporary() {
  const fs::path folder = folder_of(path_);
  const std::string prefix = prefix_of(path_);
  if (leftover_ == Leftover::adopt) {
    const std::string latest = latest_of(folder, prefix);
    const bool adopted = !latest.empty() && adopt(latest);
    remove_stale(folder, prefix, adopted ? latest : "");
    if (adopted) return;
  } else {
    remove_stale(folder, prefix);
  }
  std::random_device random;
  for (;;) {
    const std::string name = fmt::format("{}{:08x}{:08x}.tmp", prefix, random(), random());
    temporary_ = (fs::path(path_).parent_path() / name).string();
    if (temporary_.size() >= PATH_MAX) fail(Exit::io, "{}: {}", path_, reason(ENAMETOOLONG));
    fd_ = ::open(temporary_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC,
                 permissions_ == Permissions::owner_only ? kOwnerOnly : kAnyone);
    if (fd_ < 0 && errno == EEXIST) continue;
    if (fd_ < 0) fail(Exit::io, "{}: cannot be written: {}", path_, reason(errno));
    if (lock_new(fd_)) break;
    ::close(fd_);  // another process took it for stale before it was locked
  }
  if (leftover_ == Leftover::remove) register_temporary(temporary_);
}

// Returns false if another process still writes the file, or if it cannot be read or locked.
bool AtomicFile::adopt(const std::string& name) {
  const std::string path = (fs::path(path_).parent_path() / name).string();
  const auto refuse = [&](const std::string& why) {
    not_adopted_ = fmt::format("{}: {}", path, why);
    return false;
  };
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return refuse("cannot be opened: " + reason(errno));
  struct stat st;
  const bool locked = ::flock(fd, LOCK_EX | LOCK_NB) == 0;
  const int error = errno;
  if (!locked || ::fstat(fd, &st) != 0 || st.st_nlink == 0 || !S_ISREG(st.st_mode)) {
    ::close(fd);
    if (locked) return refuse("is not a file of an earlier run");
    return refuse(error == EWOULDBLOCK ? "another run writes it"
                                       : "its file system has no locks (" + reason(error) +
                                             "), so another run may still write it");
  }
  temporary_ = path, fd_ = fd, size_ = static_cast<uint64_t>(st.st_size);
  return true;
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) ::close(fd_);
  if (temporary_.empty()) return;  // committed already
  if (leftover_ == Leftover::adopt && size_ > 0) return;
  ::unlink(temporary_.c_str());
  unregister_temporary(temporary_);
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  put(fd_, path_, size_, bytes);
  size_ += bytes.size();
}

void AtomicFile::write_at(uint64_t offset, std::span<const std::byte> bytes) {
  ENSURE(offset <= size_ && bytes.size() <= size_ - offset,
         "write_at() needs bytes that write() or pad_to() has made");
  put(fd_, path_, offset, bytes);
}

// Allocates the space now if the file system can. So a disk that is too small is found before the
// work, not after it.
void AtomicFile::pad_to(uint64_t offset) {
  ENSURE(offset >= size_, "pad_to() can only make the file longer");
  if (offset == size_) return;
  int result;
  do result = ::fallocate(fd_, 0, static_cast<off_t>(size_), static_cast<off_t>(offset - size_));
  while (result != 0 && errno == EINTR);
  if (result != 0 && (errno == EOPNOTSUPP || errno == ENOSYS))
    result = ::ftruncate(fd_, static_cast<off_t>(offset));
  if (result != 0) write_failed(path_, errno, size_);
  size_ = offset;
}

void AtomicFile::cut(uint64_t size) {
  ENSURE(size <= size_, "cut() can only make the file shorter");
  int result;
  do result = ::ftruncate(fd_, static_cast<off_t>(size));
  while (result != 0 && errno == EINTR);
  if (result != 0) fail(Exit::io, "{}: cannot be shortened: {}", path_, reason(errno));
  size_ = size;
}

void AtomicFile::sync() {
  while (::fsync(fd_) != 0)
    if (errno != EINTR) fail(Exit::io, "{}: cannot be written to disk: {}", path_, reason(errno));
}

void AtomicFile::drop_cached() const { ::posix_fadvise(fd_, 0, 0, POSIX_FADV_DONTNEED); }

void AtomicFile::commit() {
  sync();  // after this, close() has nothing to report
  if (::rename(temporary_.c_str(), path_.c_str()) != 0)
    fail(Exit::io, "{}: cannot be replaced: {}", path_, reason(errno));
  unregister_temporary(temporary_);
  temporary_.clear();
  ::close(std::exchange(fd_, -1));  // releases the lock, so this must come after the rename
  // Syncing the folder brings the rename to disk. A failure here needs no error: both the old name
  // and the new name are whole files.
  const int folder = ::open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return;
  ::fsync(folder);
  ::close(folder);
}

AtomicFolder::AtomicFolder(const std::string& path) : path_(path) {
  std::error_code error, ignored;
  const bool is_new = fs::create_directory(path, error);
  const fs::path above = fs::path(path + "/").parent_path().parent_path();
  if (error && !above.empty() && !fs::exists(above, ignored))
    fail(Exit::io, "{}: cannot be created: the folder {} does not exist", path, above.string());
  if (error && !fs::exists(path, ignored))
    fail(Exit::io, "{}: cannot be created: {}", path, error.message());
  if (is_new && path.size() < PATH_MAX)
    register_temporary(path_);
  else
    path_.clear();
}

AtomicFolder::~AtomicFolder() {
  if (path_.empty()) return;
  ::rmdir(path_.c_str());
  unregister_temporary(path_);
}

void AtomicFolder::keep() {
  if (!path_.empty()) unregister_temporary(path_);
  path_.clear();
}

void refuse_same_file(const std::string& in, const std::string& out) {
  std::error_code error;
  const auto refuse = [&](std::string_view what) {
    fail(Exit::usage, "{}: is {} {}, expected another name for the output", out, what, in);
  };
  const fs::path whole_in = fs::weakly_canonical(in, error),
                 whole_out = fs::weakly_canonical(out, error);
  if (!whole_in.empty() && whole_in == whole_out) refuse("the input");
  if (!fs::exists(out, error)) return;
  for (const std::string& part : names_of_parts(in))
    if (part != in && fs::equivalent(part, out, error)) refuse("a part of the input");
  if (fs::equivalent(in, out, error)) refuse("the same file as the input");
  if (!fs::is_directory(in, error)) return;
  const auto [end, rest] =
      std::mismatch(whole_in.begin(), whole_in.end(), whole_out.begin(), whole_out.end());
  if (end == whole_in.end()) refuse("a file of the input folder");
  // Download caches make folders of links into a store. The output may be the target of one of
  // these links.
  each_name(in, [&](std::string_view name) {
    if (fs::equivalent(fs::path(in) / name, out, error))
      refuse("the same file as one in the input folder");
  });
}

void remove_temporaries_now() {
  for (Slot& slot : slots)
    if (slot.state == kLive) ::unlink(slot.path);
  for (Slot& slot : slots)
    if (slot.state == kLive) ::rmdir(slot.path);
}

}  // namespace chaski
