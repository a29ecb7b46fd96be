// Maps files read-only by mmap. If a file is shortened while it is mapped, its readers get SIGBUS
// at the instruction that touches a lost page. chaski replaces its files by rename and never
// shortens them, so only another program can cause this. The table here tells a signal handler
// which file it was.
#include "ggml-like-tensor/base/mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>
#include <system_error>
#include <utility>

#include "ggml-like-tensor/base/error.h"

namespace chaski {

namespace {

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

std::string reason() { return std::generic_category().message(errno); }

std::string state_of(const struct stat& s) {
  const auto time = [](const timespec& t) { return fmt::format("{}.{:09}", t.tv_sec, t.tv_nsec); };
  return fmt::format("{} bytes, modified {}, changed {}, inode {} of device {}\n", s.st_size,
                     time(s.st_mtim), time(s.st_ctim), s.st_ino, s.st_dev);
}

// Never waits: a pipe without a writer is refused. O_NONBLOCK has no effect on regular files.
int open_regular(const std::string& path, struct stat& st) {
  Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) fail(Exit::io, "{}: cannot be opened: {}", path, reason());
  if (::fstat(file.fd, &st) != 0) fail(Exit::io, "{}: cannot be examined: {}", path, reason());
  if (S_ISDIR(st.st_mode)) fail(Exit::bad_file, "{}: is a folder, expected a file", path);
  if (!S_ISREG(st.st_mode))
    fail(Exit::bad_file, "{}: is a device or a pipe, expected a regular file", path);
  return std::exchange(file.fd, -1);
}

// --- The mapped files, in a table for a signal handler: no lock, no allocation. ---

struct MappedFile {
  std::atomic<bool> taken{false};
  std::atomic<const std::byte*> begin{nullptr};  // set last: the other fields are valid then
  size_t size = 0;
  char path[PATH_MAX];
};
// A large folder has about two hundred shards. A file without a slot is only not named.
constexpr int kMappedFiles = 256;
MappedFile mapped_files[kMappedFiles];
static_assert(std::atomic<const std::byte*>::is_always_lock_free, "a signal handler reads it");

void register_mapping(const std::byte* data, size_t size, const std::string& shown) {
  for (MappedFile& slot : mapped_files) {
    if (slot.taken.exchange(true)) continue;
    slot.size = size;
    slot.path[shown.copy(slot.path, sizeof slot.path - 1)] = '\0';
    slot.begin = data;
    return;
  }
}

void unregister_mapping(const std::byte* data) {
  for (MappedFile& slot : mapped_files)
    if (slot.begin == data) slot.begin = nullptr, slot.taken = false;
}

}  // namespace

std::shared_ptr<const Mapping> Mapping::open(const std::string& path) {
  // Everything that allocates comes first: nothing may throw between mmap and the owner of its
  // result.
  const std::shared_ptr<Mapping> mapping(new Mapping(path));
  const std::string shown = escaped(path);
  struct stat st;
  const Descriptor file{open_regular(path, st)};
  if (st.st_size == 0) fail(Exit::bad_file, "{}: is empty", path);
  std::string state = state_of(st);
  const auto size = static_cast<size_t>(st.st_size);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (data == MAP_FAILED)
    fail(errno == ENOMEM ? Exit::memory : Exit::io, "{}: {} bytes cannot be mapped: {}", path, size,
         reason());
  mapping->state_ = std::move(state);
  mapping->data_ = static_cast<const std::byte*>(data), mapping->size_ = size;
  register_mapping(mapping->data_, size, shown);
  return mapping;
}

Mapping::~Mapping() {
  if (!data_) return;
  unregister_mapping(data_);
  ::munmap(const_cast<std::byte*>(data_), size_);
}

void Mapping::drop_pages() const { ::madvise(const_cast<std::byte*>(data_), size_, MADV_DONTNEED); }

void Mapping::prefer_huge_pages(std::span<const std::byte> part) const {
  const size_t page = size_t(::sysconf(_SC_PAGESIZE)), before = size_t(part.data() - data_) % page;
  ::madvise(const_cast<std::byte*>(part.data()) - before, part.size() + before, MADV_HUGEPAGE);
}

int Mapping::open_again() const {
  for (const int direct : {O_DIRECT, 0}) {
    Descriptor file{::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | direct)};
    struct stat st;
    if (file.fd < 0) continue;
    if (::fstat(file.fd, &st) != 0 || state_of(st) != state_) return -1;
    return std::exchange(file.fd, -1);
  }
  return -1;
}

std::string beginning_of(const std::string& path, size_t most) {
  std::string bytes(most, '\0');
  struct stat st;
  const Descriptor file{open_regular(path, st)};
  size_t size = 0;
  while (size < most) {
    const ssize_t n = ::read(file.fd, bytes.data() + size, most - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(Exit::io, "{}: cannot be read: {}", path, reason());
    if (n == 0) break;
    size += static_cast<size_t>(n);
  }
  bytes.resize(size);
  return bytes;
}

const char* mapped_file_at(const void* address) {
  const auto* at = static_cast<const std::byte*>(address);
  for (const MappedFile& slot : mapped_files) {
    const std::byte* begin = slot.begin;
    if (begin && at >= begin && at - begin < static_cast<ptrdiff_t>(slot.size)) return slot.path;
  }
  return nullptr;
}

}  // namespace chaski
