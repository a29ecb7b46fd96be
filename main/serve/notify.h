// Tells a service manager how far the server is, by the protocol of sd_notify(3): a datagram of
// lines NAME=VALUE to the socket that NOTIFY_SOCKET names.
#pragma once
#include <string>

namespace chaski {

class Notifier {
 public:
  Notifier();  // reads NOTIFY_SOCKET; without it nothing is sent
  ~Notifier();
  Notifier(const Notifier&) = delete;

  bool is_on() const { return socket_ >= 0; }
  // Any thread may call these. A message that cannot be sent is dropped: the answers go on.
  void ready(const std::string& status) const;
  void status(const std::string& status) const;
  void reloading() const;  // ready() ends it
  void stopping() const;

 private:
  void send(const std::string& lines) const;

  int socket_ = -1;
};

}  // namespace chaski
