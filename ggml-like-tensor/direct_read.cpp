#include "ggml-like-tensor/direct_read.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace chaski {

bool read_direct(int fd, uint64_t from, uint64_t to, uint64_t needed, std::byte* memory) {
  const uint64_t begin = from;
  const auto flags = [&] { return ::fcntl(fd, F_GETFL); };
  bool refused = false;
  while (from < to) {
    const ssize_t n = ::pread(fd, memory, to - from, off_t(from));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EINVAL && from == begin && !refused) {
      refused = true;  // the file system has no O_DIRECT
      ::fcntl(fd, F_SETFL, flags() & ~O_DIRECT);
      continue;
    }
    if (n <= 0) break;
    from += uint64_t(n), memory += n;
  }
  // Through the system's cache: it must not keep what the caller keeps.
  if (to > begin && !(flags() & O_DIRECT))
    ::posix_fadvise(fd, off_t(begin), off_t(to - begin), POSIX_FADV_DONTNEED);
  return from >= needed;
}

}  // namespace chaski
