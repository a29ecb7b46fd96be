// The sockets on which the server accepts connections.
#pragma once
#include <event2/event.h>
#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "main/serve/http.h"

struct evhttp;
struct evhttp_bound_socket;

namespace chaski {

struct FreeEvent {
  void operator()(event* e) const { event_free(e); }
};
using EventPointer = std::unique_ptr<event, FreeEvent>;

// Made and used by the thread that runs `base`, which has no other one.
class Listeners {
 public:
  // `has_room`: whether one more connection may be accepted. Throws Error(io | usage) that names
  // the address.
  Listeners(event_base* base, evhttp* http, const HttpOptions& options,
            std::function<bool()> has_room);
  ~Listeners();  // before `http` is freed
  Listeners(const Listeners&) = delete;

  const std::vector<std::string>& addresses() const { return addresses_; }
  void accept();  // if there is room; else further connections wait in the system
  // Accepts connections to systemd's sockets. They wait in the kernel's queue until the models are
  // open: systemd may have started the program for the first of them, whose request must not fail.
  void accept_waiting();
  void stop();

 private:
  void listen_on_path();
  void take_sockets_of_systemd(int n);
  void remove_bound_file();
  void pause();

  event_base* const base_;
  evhttp* const http_;
  const HttpOptions options_;
  const std::function<bool()> has_room_;
  std::vector<evhttp_bound_socket*> sockets_;
  std::vector<std::string> addresses_;
  EventPointer pause_over_;
  bool waits_ = false;  // for accept_waiting()
  // Of the file that was bound. Another server may have put a socket at the same path since.
  std::optional<std::pair<dev_t, ino_t>> bound_file_;
};

}  // namespace chaski
