// mmap, read-only. A file that somebody else shortens while it is mapped ends the program with
// SIGBUS: the files chaski writes are replaced by rename, never shortened, so this needs a foreign
// hand.
#include "ggml-like-tensor/base/mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

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

}  // namespace

std::shared_ptr<const Mapping> Mapping::open(const std::string& path) {
  // O_NONBLOCK: a pipe without a writer is refused below instead of waited for; regular files do
  // not notice.
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) fail(Exit::io, "{}: cannot be opened: {}", path, reason());
  struct stat st;
  if (::fstat(file.fd, &st) != 0) fail(Exit::io, "{}: cannot be examined: {}", path, reason());
  if (S_ISDIR(st.st_mode)) fail(Exit::bad_file, "{}: is a folder, expected a file", path);
  if (!S_ISREG(st.st_mode))
    fail(Exit::bad_file, "{}: is a device or a pipe, expected a regular file", path);
  if (st.st_size == 0) fail(Exit::bad_file, "{}: is empty", path);
  const auto size = static_cast<size_t>(st.st_size);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (data == MAP_FAILED) fail(Exit::io, "{}: {} bytes cannot be mapped: {}", path, size, reason());
  return std::shared_ptr<const Mapping>(
      new Mapping(path, static_cast<const std::byte*>(data), size));
}

Mapping::~Mapping() { ::munmap(const_cast<std::byte*>(data_), size_); }

}  // namespace chaski
