// A network server inside a test; the test sets every byte of its answers.
#pragma once
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/kit/support.h"

namespace chaski::test {

class Connection {
 public:
  Connection(int fd, const std::atomic<bool>& over) : fd_(fd), over_(over) {}
  ~Connection() { ::close(fd_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  std::string head() {  // of the request; empty if there was none
    std::string head;
    char part[4096];
    const timeval most{5, 0};  // a client that sends nothing is dropped
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
    while (head.find("\r\n\r\n") == std::string::npos) {
      const ssize_t n = ::read(fd_, part, sizeof part);
      if (n <= 0 || part[0] == 0x16) return "";  // the client begins to encrypt
      head.append(part, size_t(n));
    }
    return head;
  }
  // The body of the request with this head, which may already contain a part of it.
  std::string body(const std::string& head) {
    const size_t length = head.find("Content-Length: "), begin = head.find("\r\n\r\n") + 4;
    std::string body = head.substr(begin);
    const size_t size = length == head.npos ? 0 : std::stoul(head.substr(length + 16));
    char part[4096];
    while (body.size() < size) {
      const ssize_t n = ::read(fd_, part, sizeof part);
      if (n <= 0) break;
      body.append(part, size_t(n));
    }
    return body;
  }
  void put(std::string_view text) {
    while (!text.empty()) {
      const ssize_t n = ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
      if (n <= 0) return;
      text.remove_prefix(size_t(n));
    }
  }
  void hang() {  // until the client or the test ends
    while (!over_) {
      pollfd at{fd_, POLLIN | POLLRDHUP, 0};
      if (::poll(&at, 1, 50) > 0) return;
    }
  }

 private:
  int fd_;
  const std::atomic<bool>& over_;
};

class Server {
 public:
  using Answer = std::function<void(const std::string& path, const std::string& head, Connection&)>;
  enum class Connections { in_turn, at_once };
  explicit Server(Answer answer, Connections connections = Connections::in_turn)
      : answer_(std::move(answer)), connections_(connections) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET, at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    REQUIRE(::bind(listener_, reinterpret_cast<sockaddr*>(&at), size) == 0);
    REQUIRE(::listen(listener_, 64) == 0);
    REQUIRE(::getsockname(listener_, reinterpret_cast<sockaddr*>(&at), &size) == 0);
    port_ = ntohs(at.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~Server() {
    over_ = true;
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    for (std::thread& one : serving_) one.join();
    ::close(listener_);
  }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  std::vector<std::string> heads() {  // of all requests so far
    const std::lock_guard lock(mutex_);
    return heads_;
  }

 private:
  void serve() {
    for (;;) {
      const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0 || over_) return void(fd >= 0 && ::close(fd));
      if (connections_ == Connections::in_turn)
        serve(fd);
      else
        serving_.emplace_back([this, fd] { serve(fd); });
    }
  }
  void serve(int fd) {
    Connection connection(fd, over_);
    const std::string head = connection.head();
    if (head.empty()) return;
    {
      const std::lock_guard lock(mutex_);
      heads_.push_back(head);
    }
    const size_t begin = head.find(' ') + 1;
    answer_(head.substr(begin, head.find(' ', begin) - begin), head, connection);
  }

  Answer answer_;
  const Connections connections_;
  int listener_ = -1, port_ = 0;
  std::atomic<bool> over_ = false;
  std::mutex mutex_;
  std::vector<std::string> heads_;
  std::thread thread_;
  std::vector<std::thread> serving_;
};

}  // namespace chaski::test
