#include "main/serve/listeners.h"

#include <event2/http.h>
#include <event2/listener.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "main/flags/environment.h"
#include "main/flags/values.h"

namespace chaski {

namespace {

constexpr int kFirstSystemdSocket = 3;
// Until the server tries again to accept a connection when no descriptor was free.
constexpr timeval kPause{0, 100'000};

// libevent calls the error callback of a listener with evhttp's argument.
thread_local Listeners* of_thread = nullptr;

std::string address_of(int fd) {
  sockaddr_storage at{};
  socklen_t size = sizeof at;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&at), &size) != 0) return "unknown";
  if (at.ss_family == AF_UNIX)
    return std::string("unix:") + reinterpret_cast<const sockaddr_un&>(at).sun_path;
  char text[INET6_ADDRSTRLEN] = "";
  if (at.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(at);
    evutil_inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
    return fmt::format("http://[{}]:{}", text, ntohs(v6.sin6_port));
  }
  const auto& v4 = reinterpret_cast<const sockaddr_in&>(at);
  evutil_inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
  return fmt::format("http://{}:{}", text, ntohs(v4.sin_port));
}

// Throws Error(io) if the name has no address. evhttp reports that as an invalid argument. Keeps
// errno.
void expect_resolved(const std::string& host) {
  const int error = errno;
  evutil_addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (const int why = evutil_getaddrinfo(host.c_str(), nullptr, &hints, &found))
    fail(Exit::io, "--host {} cannot be resolved: {}", host, evutil_gai_strerror(why));
  evutil_freeaddrinfo(found);
  errno = error;
}

}  // namespace

Listeners::Listeners(event_base* base, evhttp* http, const HttpOptions& options,
                     std::function<bool()> has_room)
    : base_(base), http_(http), options_(options), has_room_(std::move(has_room)) {
  of_thread = this;
  pause_over_.reset(event_new(
      base_, -1, 0,
      [](evutil_socket_t, short, void* all) { static_cast<Listeners*>(all)->accept(); }, this));
  const char *n = std::getenv("LISTEN_FDS"), *pid = std::getenv("LISTEN_PID");
  const bool ours = n && pid && number_of<int>(pid) == ::getpid();
  if (ours && number_of<int>(n).value_or(0) > 0) {
    take_sockets_of_systemd(*number_of<int>(n));
  } else if (!options_.socket_path.empty()) {
    listen_on_path();
  } else {
    evhttp_bound_socket* const socket =
        evhttp_bind_socket_with_handle(http_, options_.host.c_str(), uint16_t(options_.port));
    if (!socket) expect_resolved(options_.host);
    if (!socket)
      fail(Exit::io, "cannot listen on {}, port {}: {}", options_.host, options_.port,
           std::strerror(errno));
    sockets_.push_back(socket);
  }
  for (evhttp_bound_socket* socket : sockets_) {
    addresses_.push_back(address_of(evhttp_bound_socket_get_fd(socket)));
    evconnlistener_set_error_cb(evhttp_bound_socket_get_listener(socket),
                                [](evconnlistener*, void*) { of_thread->pause(); });
  }
}

Listeners::~Listeners() {
  remove_bound_file();
  of_thread = nullptr;
}

void Listeners::remove_bound_file() {
  struct stat found {};
  if (bound_file_ && ::lstat(options_.socket_path.c_str(), &found) == 0 &&
      *bound_file_ == std::pair(found.st_dev, found.st_ino))
    ::unlink(options_.socket_path.c_str());
  bound_file_.reset();
}

void Listeners::listen_on_path() {
  const std::string& path = options_.socket_path;
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  if (path.size() >= sizeof at.sun_path)
    fail(Exit::usage, "--socket has {} bytes, expected at most {}", path.size(),
         sizeof at.sun_path - 1);
  std::memcpy(at.sun_path, path.c_str(), path.size() + 1);
  struct stat found {};
  if (::lstat(path.c_str(), &found) == 0) {
    if (!S_ISSOCK(found.st_mode))
      fail(Exit::io, "{}: exists and is not a socket, expected another name", path);
    // A socket that a dead server left is replaced, one that answers is in use.
    const int probe = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool used = ::connect(probe, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0;
    ::close(probe);
    if (used) fail(Exit::io, "{}: another server listens there", path);
    ::unlink(path.c_str());
  }
  evconnlistener* const listener = evconnlistener_new_bind(
      base_, nullptr, nullptr, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, -1,
      reinterpret_cast<sockaddr*>(&at), sizeof at);
  if (!listener) fail(Exit::io, "{}: {}", path, std::strerror(errno));
  if (::lstat(path.c_str(), &found) == 0) bound_file_.emplace(found.st_dev, found.st_ino);
  sockets_.push_back(evhttp_bind_listener(http_, listener));
}

void Listeners::take_sockets_of_systemd(int n) {
  for (int fd = kFirstSystemdSocket; fd < kFirstSystemdSocket + n; ++fd) {
    evutil_make_socket_nonblocking(fd);
    evutil_make_socket_closeonexec(fd);
    sockets_.push_back(evhttp_accept_socket_with_handle(http_, fd));
    if (!sockets_.back()) fail(Exit::io, "LISTEN_FDS: descriptor {} is not a socket", fd);
  }
  waits_ = true;
  accept();
}

void Listeners::accept_waiting() {
  waits_ = false;
  accept();
}

void Listeners::accept() {
  const bool now = !waits_ && has_room_();
  for (evhttp_bound_socket* socket : sockets_) {
    evconnlistener* const listener = evhttp_bound_socket_get_listener(socket);
    now ? evconnlistener_enable(listener) : evconnlistener_disable(listener);
  }
}

void Listeners::pause() {
  for (evhttp_bound_socket* socket : sockets_)
    evconnlistener_disable(evhttp_bound_socket_get_listener(socket));
  event_add(pause_over_.get(), &kPause);
}

void Listeners::stop() {
  remove_bound_file();  // while it listens: a new server replaces a socket that does not answer
  for (evhttp_bound_socket* socket : sockets_) evhttp_del_accept_socket(http_, socket);
  sockets_.clear();
  event_del(pause_over_.get());
}

}  // namespace chaski
