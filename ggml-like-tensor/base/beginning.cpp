#include "ggml-like-tensor/base/beginning.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "ggml-like-tensor/base/error.h"

namespace chaski {

namespace {

std::string reason() { return std::generic_category().message(errno); }

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

}  // namespace

std::string beginning_of(const std::string& path, size_t n) {
  // O_NONBLOCK: a pipe without a writer opens at once, and is refused.
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) fail(Exit::io, "{}: cannot be opened: {}", path, reason());
  struct stat st;
  if (::fstat(file.fd, &st) != 0) fail(Exit::io, "{}: cannot be examined: {}", path, reason());
  if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
    fail(Exit::bad_file, "{}: is a device or a pipe, expected a regular file", path);
  std::string bytes(n, '\0');
  size_t have = 0;
  while (have < n) {
    const ssize_t got = ::read(file.fd, bytes.data() + have, n - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(Exit::io, "{}: cannot be read: {}", path, reason());
    if (got == 0) break;
    have += size_t(got);
  }
  bytes.resize(have);
  return bytes;
}

}  // namespace chaski
