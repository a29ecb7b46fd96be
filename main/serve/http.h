// The sockets of the server: one thread accepts connections, parses HTTP (libevent's evhttp) and
// writes responses. It never waits: other threads make the answers.
#pragma once
#include <sys/types.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "main/api/request.h"

namespace chaski {

struct HttpOptions {
  std::string host = "127.0.0.1";
  int port = 8080;          // 0: any free one
  std::string socket_path;  // a Unix socket instead; empty: none
  int idle_seconds = 60;    // until a connection without a byte in either direction is closed
  int most_seconds = 0;     // longest time of an answer, including its wait in the queue; 0: none
  size_t most_connections = 1000;  // open ones; further ones wait until the system accepts them
  size_t most_body = size_t(32) << 20, most_head = size_t(64) << 10;  // bytes
};

struct HttpRequest {
  std::string method, path, query, client;
  std::string model;  // the parameter of the query; may be empty
  std::string host, origin, authorization, x_api_key, if_none_match;  // headers; may be empty
  std::string body;
  bool over_unix = false;  // the client is on this machine, so no site can have redirected it
};

class HttpServer;

// The response to one request. The functions of Reply may be called by any thread; after the client
// has gone they do nothing.
class Exchange : public Reply, public std::enable_shared_from_this<Exchange> {
 public:
  // Bytes of a stream that wait for a slow receiver. A part() beyond them waits.
  static constexpr size_t kMostWaiting = size_t(256) << 10;

  using Headers = std::vector<std::pair<std::string, std::string>>;
  explicit Exchange(HttpServer& server);
  ~Exchange() override;

  // Both before the response begins. `seconds`: when a client that gets 429 or 503 should try
  // again.
  void add_headers(const Headers& headers);
  void set_retry(double seconds) { retry_seconds_ = seconds; }
  void whole(int status, const char* type, const std::string& body) override;
  void begin(const char* type) override;
  void part(const std::string& text) override;
  void end() override;
  // Also set when the time of the answer is over: it then ends with what it has, and part() no
  // longer waits.
  const std::atomic<bool>& gone() const override { return ended_; }
  // A thread takes up the work on the response. False: the client has gone, or the time was over
  // and on_late has been called. Any thread, once.
  bool take_up() { return !taken_up_.exchange(true); }
  int status() const { return status_; }     // 0: no response yet
  uint64_t bytes() const { return bytes_; }  // of the body
  // Called in the thread of the sockets when the response is written or the client has gone.
  std::function<void(Exchange&)> on_end;
  // Called in the thread of the sockets if the time is over before take_up(). It responds.
  std::function<void(Exchange&)> on_late;

 private:
  friend HttpServer;
  struct State;  // of the thread of the sockets

  HttpServer& server_;
  std::unique_ptr<State> state_;
  std::atomic<bool> gone_ = false, ended_ = false, taken_up_ = false;
  std::atomic<int> status_ = 0;
  std::atomic<uint64_t> bytes_ = 0;
  Headers headers_;
  double retry_seconds_ = 0;
  struct Waiting;
  std::unique_ptr<Waiting> waiting_;
};

class HttpServer {
 public:
  // Called in the thread of run(). It must not wait.
  using Handler = std::function<void(HttpRequest request, std::shared_ptr<Exchange> exchange)>;

  // Begins to listen. Uses the sockets of systemd (LISTEN_FDS) if there are some. Throws Error(io)
  // that names the address.
  HttpServer(const HttpOptions& options, Handler handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;

  // "http://127.0.0.1:8080", "unix:/run/chaski.sock"
  const std::vector<std::string>& addresses() const;
  // Runs until stop() was called and all responses are written. `stop_descriptor`: becomes readable
  // when the server is to stop, which begins with a call of on_stop; on_hangup is called at SIGHUP.
  // Without it SIGHUP keeps its effect.
  void run(int stop_descriptor, const std::function<void()>& on_hangup,
           const std::function<void()>& on_stop);
  // Any thread: connections to systemd's sockets are accepted from now on. Before, they wait.
  void accept_waiting();
  // Any thread: accepts no more connections and ends run() after the last response.
  void stop();
  bool stopping() const;
  // Any thread: calls the function in the thread of run().
  void post(std::function<void()> call);

 private:
  friend Exchange;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace chaski
