#include "main/serve/notify.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "engine/session/engine.h"  // for escaped()
#include "main/terminal/output.h"

namespace chaski {

Notifier::Notifier() {
  const char* const named = std::getenv("NOTIFY_SOCKET");
  if (!named || !*named) return;
  const std::string name = named;
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  if (name.size() >= sizeof at.sun_path) {
    put_error(fmt::format("NOTIFY_SOCKET has {} bytes, expected at most {}", name.size(),
                          sizeof at.sun_path - 1));
    return;
  }
  std::memcpy(at.sun_path, name.data(), name.size());
  if (name[0] == '@') at.sun_path[0] = 0;  // a name that is no file
  socket_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const auto size = socklen_t(offsetof(sockaddr_un, sun_path) + name.size());
  if (socket_ >= 0 && ::connect(socket_, reinterpret_cast<sockaddr*>(&at), size) == 0) return;
  put_error(fmt::format("NOTIFY_SOCKET: {}: {}", escaped(name), std::strerror(errno)));
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
}

Notifier::~Notifier() {
  if (socket_ >= 0) ::close(socket_);
}

void Notifier::send(const std::string& lines) const {
  // A manager that reads nothing must not stop the server.
  if (is_on()) (void)::send(socket_, lines.data(), lines.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

void Notifier::ready(const std::string& status) const { send("READY=1\nSTATUS=" + status); }
void Notifier::status(const std::string& status) const { send("STATUS=" + status); }
void Notifier::stopping() const { send("STOPPING=1\nSTATUS=ends the running answers"); }

void Notifier::reloading() const {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  send(fmt::format("RELOADING=1\nMONOTONIC_USEC={}{:06}", now.tv_sec, now.tv_nsec / 1000));
}

}  // namespace chaski
