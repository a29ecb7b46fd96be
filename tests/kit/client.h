// chaski serve inside a test, and a client that speaks to it over a raw socket.
#pragma once
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/kit/program.h"

namespace chaski::test {

struct HttpResponse {
  int status = 0;
  std::string head, body;  // the body without its chunks
  nlohmann::json json() const { return nlohmann::json::parse(body, nullptr, false); }
  // The data of a stream's events; "[DONE]" is left out.
  std::vector<nlohmann::json> events() const {
    std::vector<nlohmann::json> all;
    for (const std::string& line : lines_of(body))
      if (line.starts_with("data: ") && line != "data: [DONE]")
        all.push_back(nlohmann::json::parse(line.substr(6)));
    return all;
  }
};

class Client {
 public:
  explicit Client(int port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET, at.sin_port = htons(uint16_t(port));
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval most{20, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0;
  }
  ~Client() { close(); }
  Client(const Client&) = delete;
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  bool connected() const { return connected_; }
  void put(std::string_view text) {
    while (!text.empty()) {
      const ssize_t n = ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
      if (n <= 0) return;
      text.remove_prefix(size_t(n));
    }
  }
  // Reads until `mark` has come; false if the server closed before.
  bool read_until(const std::string& mark) {
    while (read_.find(mark) == std::string::npos)
      if (!read_more()) return false;
    return true;
  }
  HttpResponse response() {
    HttpResponse out;
    if (!read_until("\r\n\r\n")) return out;
    const size_t end = read_.find("\r\n\r\n") + 4;
    out.head = read_.substr(0, end);
    read_.erase(0, end);
    out.status = std::stoi(out.head.substr(out.head.find(' ') + 1));
    std::string lower = out.head;
    std::ranges::transform(lower, lower.begin(), [](char c) { return char(std::tolower(c)); });
    if (const size_t at = lower.find("content-length: "); at != std::string::npos) {
      const size_t size = std::stoul(lower.substr(at + 16));
      while (read_.size() < size && read_more()) {
      }
      out.body = read_.substr(0, size);
      read_.erase(0, size);
    } else if (lower.find("transfer-encoding: chunked") != std::string::npos) {
      for (size_t size = 1; size > 0;) {
        if (!read_until("\r\n")) break;
        size = std::stoul(read_, nullptr, 16);
        read_.erase(0, read_.find("\r\n") + 2);
        while (read_.size() < size + 2 && read_more()) {
        }
        out.body += read_.substr(0, size);
        read_.erase(0, size + 2);
      }
    }
    return out;
  }

 private:
  bool read_more() {
    char part[8192];
    const ssize_t n = ::recv(fd_, part, sizeof part, 0);
    if (n > 0) read_.append(part, size_t(n));
    return n > 0;
  }

  int fd_;
  bool connected_ = false;
  std::string read_;
};

inline std::string request_text(const std::string& method, const std::string& path,
                                const std::string& body = "", const std::string& headers = "") {
  return method + " " + path + " HTTP/1.1\r\nHost: localhost\r\n" + headers +
         (body.empty() && method == "GET" ? std::string()
                                          : "Content-Type: application/json\r\nContent-Length: " +
                                                std::to_string(body.size()) + "\r\n") +
         "\r\n" + body;
}

// The program on a free port. Its model is ready when the constructor returns.
class Serving {
 public:
  explicit Serving(const Arguments& more = {}, const std::string& model = kStory)
      : program_(std::make_unique<Program>(arguments(more, model), "")) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (std::chrono::steady_clock::now() < end) {
      const std::string out = program_->out_so_far();
      const size_t colon = out.rfind(':');
      if (out.ends_with('\n') && colon != std::string::npos) {
        port_ = std::stoi(out.substr(colon + 1));
        if (get("/health").status == 200) return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    FAIL("the server is not ready after 30 s");
  }

  int port() const { return port_; }
  HttpResponse send(const std::string& text) const {
    Client client(port_);
    client.put(text);
    return client.response();
  }
  HttpResponse get(const std::string& path, const std::string& headers = "") const {
    return send(request_text("GET", path, "", headers));
  }
  HttpResponse post(const std::string& path, const nlohmann::json& body,
                    const std::string& headers = "") const {
    return send(request_text("POST", path, body.dump(), headers));
  }
  Program& program() { return *program_; }

 private:
  static Arguments arguments(const Arguments& more, const std::string& model) {
    Arguments all = {"serve", "-m", model, "--port", "0", "-t", "1"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  std::unique_ptr<Program> program_;
  int port_ = 0;
};

// The bundled model, for all cases that change nothing of their server.
inline const Serving& story_server() {
  static const Serving server({"--no-log"});
  return server;
}

// A value of /metrics.
inline double metric(const Serving& server, const std::string& name) {
  const std::string text = server.get("/metrics").body;
  const size_t at = text.find("\n" + name + " ");
  REQUIRE_MESSAGE(at != std::string::npos, name);
  return std::stod(text.substr(at + name.size() + 2));
}

// Whether the condition holds within half a minute: the machine may be busy.
template <class Condition>
bool soon(Condition holds) {
  for (int i = 0; i < 6000; ++i) {
    if (holds()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

}  // namespace chaski::test
