#include "main/serve/http.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/http_struct.h>
#include <event2/keyvalq_struct.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "main/serve/listeners.h"

namespace chaski {

namespace {

// Bytes buffered of the next request while the current one is being answered.
constexpr size_t kMostEarly = size_t(64) << 10;

// Requests of this many times the largest body are held at once. A connection that sends more is
// closed.
constexpr size_t kMostHeldBodies = 8;

constexpr double kMostRetrySeconds = 600;  // clients should not wait longer without asking

// Turns off Nagle's algorithm, by which TCP keeps an event of a stream until the client has
// acknowledged the one before it: up to 40 ms. Unix sockets have no such option.
void send_at_once(evutil_socket_t socket) {
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

std::string header(evhttp_request* request, const char* name) {
  const char* value = evhttp_find_header(evhttp_request_get_input_headers(request), name);
  return value ? value : "";
}

std::string method_of(evhttp_request* request) {
  switch (evhttp_request_get_command(request)) {
    case EVHTTP_REQ_GET:
    case EVHTTP_REQ_HEAD:
      return "GET";
    case EVHTTP_REQ_POST:
      return "POST";
    case EVHTTP_REQ_DELETE:
      return "DELETE";
    case EVHTTP_REQ_PUT:
      return "PUT";
    case EVHTTP_REQ_PATCH:
      return "PATCH";
    case EVHTTP_REQ_TRACE:
      return "TRACE";
    default:
      return "OPTIONS";
  }
}

std::string decoded(const char* path) {
  size_t size = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(evhttp_uridecode(path, 0, &size),
                                                         &std::free);
  return text ? std::string(text.get(), size) : "";
}

bufferevent* buffers_of(evhttp_connection* connection) {
  return evhttp_connection_get_bufferevent(connection);
}

bool is_unix(int fd) {
  sockaddr_storage at{};
  socklen_t size = sizeof at;
  return ::getsockname(fd, reinterpret_cast<sockaddr*>(&at), &size) == 0 && at.ss_family == AF_UNIX;
}

}  // namespace

// Where a stream waits for its receiver.
struct Exchange::Waiting {
  std::mutex mutex;
  std::condition_variable drained;
  size_t bytes = 0;
};

struct Exchange::State {
  evhttp_request* request = nullptr;  // null: answered, or gone
  evhttp_connection* connection = nullptr;
  EventPointer time_over;
};

struct HttpServer::Impl {
  struct Link {  // an open connection
    Impl& impl;
    bufferevent* buffers;
    Exchange* exchange = nullptr;  // whose response is not written yet
    // Bytes of its requests: what was read since the last response, or the body of the current one
    // and what came early.
    size_t held = 0;
  };

  HttpServer& server;
  HttpOptions options;
  Handler handler;
  event_base* base = nullptr;
  evhttp* http = nullptr;
  EventPointer calls_event, stop_event, hangup_event;
  int calls_descriptor = -1;
  std::mutex mutex;  // guards `calls`
  std::vector<std::function<void()>> calls;
  std::map<Exchange*, std::shared_ptr<Exchange>> open;  // not written yet
  std::unique_ptr<Listeners> listeners;
  std::map<bufferevent*, Link> links;
  size_t held = 0;  // the sum over `links`
  std::function<void()> on_hangup, on_stop;
  std::atomic<bool> stopping = false;

  Impl(HttpServer& server, const HttpOptions& options, Handler handler)
      : server(server), options(options), handler(std::move(handler)) {}
  ~Impl();

  void run_calls();
  bufferevent* new_link();
  void hold(Link& link, size_t bytes);
  void closed(bufferevent* buffers);
  void take(evhttp_request* request);
  void end_late(Exchange& exchange);
  void finish(Exchange& exchange);
  void send_whole(Exchange& exchange, int status, const std::string& type, const std::string& body);
  void send_begin(Exchange& exchange, const std::string& type);
  void send_part(Exchange& exchange, const std::string& text);
  void send_end(Exchange& exchange);
  void add_headers(Exchange& exchange, const std::string& type);
  void stop();
  void leave_if_done();
};

HttpServer::Impl::~Impl() {
  stopping = true;
  calls_event.reset(), stop_event.reset(), hangup_event.reset();
  listeners.reset();
  if (http) evhttp_free(http);
  if (base) event_base_free(base);
  if (calls_descriptor >= 0) ::close(calls_descriptor);
}

HttpServer::HttpServer(const HttpOptions& options, Handler handler)
    : impl_(std::make_unique<Impl>(*this, options, std::move(handler))) {
  Impl& i = *impl_;
  // Each connection takes a descriptor.
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);
  }
  event_set_log_callback([](int, const char*) {});
  i.base = event_base_new();
  i.http = i.base ? evhttp_new(i.base) : nullptr;
  if (!i.http) fail(Exit::memory, "the event loop of the server cannot be made");
  i.calls_descriptor = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  i.calls_event.reset(event_new(
      i.base, i.calls_descriptor, EV_READ | EV_PERSIST,
      [](evutil_socket_t, short, void* impl) { static_cast<Impl*>(impl)->run_calls(); }, &i));
  event_add(i.calls_event.get(), nullptr);
  evhttp_set_allowed_methods(i.http, EVHTTP_REQ_GET | EVHTTP_REQ_HEAD | EVHTTP_REQ_POST |
                                         EVHTTP_REQ_DELETE | EVHTTP_REQ_OPTIONS | EVHTTP_REQ_PUT |
                                         EVHTTP_REQ_PATCH | EVHTTP_REQ_TRACE);
  evhttp_set_max_headers_size(i.http, ssize_t(options.most_head));
  evhttp_set_max_body_size(i.http, ssize_t(options.most_body));
  evhttp_set_timeout(i.http, options.idle_seconds);
  evhttp_set_default_content_type(i.http, nullptr);
  evhttp_set_bevcb(
      i.http, [](event_base*, void* impl) { return static_cast<Impl*>(impl)->new_link(); }, &i);
  evhttp_set_gencb(
      i.http, [](evhttp_request* r, void* impl) { static_cast<Impl*>(impl)->take(r); }, &i);
  i.listeners = std::make_unique<Listeners>(
      i.base, i.http, i.options, [&i] { return i.links.size() < i.options.most_connections; });
}

HttpServer::~HttpServer() = default;

const std::vector<std::string>& HttpServer::addresses() const {
  return impl_->listeners->addresses();
}
bool HttpServer::stopping() const { return impl_->stopping; }

void HttpServer::post(std::function<void()> call) {
  {
    const std::scoped_lock lock(impl_->mutex);
    impl_->calls.push_back(std::move(call));
  }
  ::eventfd_write(impl_->calls_descriptor, 1);
}

void HttpServer::Impl::run_calls() {
  eventfd_t ignored;
  ::eventfd_read(calls_descriptor, &ignored);
  std::vector<std::function<void()>> now;
  {
    const std::scoped_lock lock(mutex);
    now.swap(calls);
  }
  for (const std::function<void()>& call : now) call();
}

void HttpServer::Impl::stop() {
  if (!stopping.exchange(true) && on_stop) on_stop();
  listeners->stop();
  leave_if_done();
}

// Ends the loop after the calls that wait, because they free the requests of clients that have
// gone.
void HttpServer::Impl::leave_if_done() {
  if (!stopping || !open.empty()) return;
  server.post([this] {
    if (open.empty()) event_base_loopexit(base, nullptr);  // else finish() comes here again
  });
}

void HttpServer::stop() {
  post([this] { impl_->stop(); });
}

void HttpServer::accept_waiting() {
  post([this] {
    if (!impl_->stopping) impl_->listeners->accept_waiting();
  });
}

void HttpServer::run(int stop_descriptor, const std::function<void()>& on_hangup,
                     const std::function<void()>& on_stop) {
  Impl& i = *impl_;
  i.on_hangup = on_hangup, i.on_stop = on_stop;
  if (stop_descriptor >= 0) {
    i.stop_event.reset(event_new(
        i.base, stop_descriptor, EV_READ,
        [](evutil_socket_t, short, void* impl) { static_cast<Impl*>(impl)->stop(); }, &i));
    event_add(i.stop_event.get(), nullptr);
  }
  if (on_hangup) {
    i.hangup_event.reset(evsignal_new(
        i.base, SIGHUP,
        [](evutil_socket_t, short, void* impl) { static_cast<Impl*>(impl)->on_hangup(); }, &i));
    event_add(i.hangup_event.get(), nullptr);
  }
  event_base_dispatch(i.base);
}

void HttpServer::Impl::hold(Link& link, size_t bytes) {
  held = held - link.held + bytes;
  link.held = bytes;
}

void HttpServer::Impl::closed(bufferevent* buffers) {
  const auto found = links.find(buffers);
  if (found == links.end()) return;
  Exchange* const exchange = found->second.exchange;
  hold(found->second, 0);
  links.erase(found);
  if (!stopping) listeners->accept();
  if (!exchange) return;
  exchange->state_->connection = nullptr;
  finish(*exchange);
}

// Makes the buffers of a connection that has just been accepted.
bufferevent* HttpServer::Impl::new_link() {
  bufferevent* const buffers = bufferevent_socket_new(base, -1, 0);
  if (!buffers) return nullptr;
  Link& link = links.emplace(buffers, Link{*this, buffers}).first->second;
  evbuffer_add_cb(
      bufferevent_get_input(buffers),
      [](evbuffer*, const evbuffer_cb_info* info, void* of) {
        Link& link = *static_cast<Link*>(of);
        if (info->n_added == 0) return;
        link.impl.hold(link, link.held + info->n_added);
        if (link.impl.held > kMostHeldBodies * link.impl.options.most_body)
          ::shutdown(bufferevent_getfd(link.buffers), SHUT_RDWR);
      },
      &link);
  // evhttp makes its connection after this function has returned, and reads nothing before this
  // event. The event finds the connection as the argument of the callbacks that evhttp has set.
  event_base_once(
      base, -1, EV_TIMEOUT,
      [](evutil_socket_t, short, void* of) {
        bufferevent* const buffers = static_cast<Link*>(of)->buffers;
        send_at_once(bufferevent_getfd(buffers));
        void* connection = nullptr;
        bufferevent_getcb(buffers, nullptr, nullptr, nullptr, &connection);
        evhttp_connection_set_closecb(
            static_cast<evhttp_connection*>(connection),
            [](evhttp_connection* gone, void* impl) {
              static_cast<Impl*>(impl)->closed(buffers_of(gone));
            },
            &static_cast<Link*>(of)->impl);
      },
      &link, nullptr);
  listeners->accept();
  return buffers;
}

// A request with its whole body has come.
void HttpServer::Impl::take(evhttp_request* request) {
  evhttp_connection* const connection = evhttp_request_get_connection(request);
  auto exchange = std::make_shared<Exchange>(server);
  exchange->state_->request = request, exchange->state_->connection = connection;
  open.emplace(exchange.get(), exchange);
  // evhttp stops reading here, and so would not notice that the client goes. Reading continues
  // without its callback: what comes early stays in the buffer for the next request.
  bufferevent* const buffers = buffers_of(connection);
  bufferevent_data_cb on_write = nullptr;
  bufferevent_event_cb on_event = nullptr;
  void* argument = nullptr;
  bufferevent_getcb(buffers, nullptr, &on_write, &on_event, &argument);
  bufferevent_setcb(buffers, nullptr, on_write, on_event, argument);
  const timeval most{options.idle_seconds, 0};
  bufferevent_set_timeouts(buffers, nullptr, &most);
  bufferevent_setwatermark(buffers, EV_READ, 0, kMostEarly);
  bufferevent_enable(buffers, EV_READ);
  if (options.most_seconds > 0) {
    const timeval longest{options.most_seconds, 0};
    exchange->state_->time_over.reset(event_new(
        base, -1, 0,
        [](evutil_socket_t, short, void* over) {
          Exchange& e = *static_cast<Exchange*>(over);
          e.server_.impl_->end_late(e);
        },
        exchange.get()));
    event_add(exchange->state_->time_over.get(), &longest);
  }
  evhttp_request_set_on_complete_cb(
      request,
      [](evhttp_request*, void* written) {
        Exchange& e = *static_cast<Exchange*>(written);
        e.server_.impl_->finish(e);
      },
      exchange.get());

  HttpRequest out;
  out.method = method_of(request);
  const evhttp_uri* const uri = evhttp_request_get_evhttp_uri(request);
  if (const char* path = uri ? evhttp_uri_get_path(uri) : nullptr) out.path = decoded(path);
  if (const char* query = uri ? evhttp_uri_get_query(uri) : nullptr) {
    out.query = query;
    evkeyvalq parameters{};
    if (evhttp_parse_query_str(query, &parameters) == 0)
      if (const char* model = evhttp_find_header(&parameters, "model")) out.model = model;
    evhttp_clear_headers(&parameters);
  }
  char* client = nullptr;
  uint16_t port = 0;
  evhttp_connection_get_peer(connection, &client, &port);
  out.client = client ? client : "";
  out.over_unix = is_unix(bufferevent_getfd(buffers));
  out.host = header(request, "Host"), out.origin = header(request, "Origin");
  out.authorization = header(request, "Authorization");
  out.x_api_key = header(request, "x-api-key");
  out.if_none_match = header(request, "If-None-Match");
  evbuffer* const body = evhttp_request_get_input_buffer(request);
  out.body.resize(evbuffer_get_length(body));
  evbuffer_remove(body, out.body.data(), out.body.size());
  Link& link = links.at(buffers);
  link.exchange = exchange.get();
  hold(link, out.body.size() + evbuffer_get_length(bufferevent_get_input(buffers)));
  handler(std::move(out), std::move(exchange));
}

// The time of the answer is over. Its receiver has as long as an idle connection for the rest.
void HttpServer::Impl::end_late(Exchange& exchange) {
  if (exchange.ended_ && exchange.status_ != 0) {
    // evhttp sees this as a client that has gone.
    if (exchange.state_->connection)
      ::shutdown(bufferevent_getfd(buffers_of(exchange.state_->connection)), SHUT_RDWR);
    return;
  }
  const timeval rest{options.idle_seconds, 0};
  event_add(exchange.state_->time_over.get(), &rest);
  if (exchange.ended_) return;
  {
    const std::scoped_lock lock(exchange.waiting_->mutex);
    exchange.ended_ = true;
  }
  exchange.waiting_->drained.notify_all();
  if (exchange.on_late && exchange.take_up()) exchange.on_late(exchange);
}

// The response is written, or the client has gone.
void HttpServer::Impl::finish(Exchange& exchange) {
  const auto found = open.find(&exchange);
  if (found == open.end()) return;
  const std::shared_ptr<Exchange> kept = found->second;
  open.erase(found);
  Exchange::State& state = *exchange.state_;
  if (state.connection) {
    bufferevent* const buffers = buffers_of(state.connection);
    Link& link = links.at(buffers);
    link.exchange = nullptr;
    hold(link, evbuffer_get_length(bufferevent_get_input(buffers)));
    const timeval most{options.idle_seconds, 0};
    bufferevent_set_timeouts(buffers, &most, &most);
    bufferevent_setwatermark(buffers, EV_READ, 0, 0);
  }
  {
    const std::scoped_lock lock(exchange.waiting_->mutex);
    exchange.gone_ = exchange.ended_ = true;
  }
  state.time_over.reset();
  exchange.waiting_->drained.notify_all();
  // When its connection is gone, evhttp no longer frees a request. evhttp_send_reply_end() does.
  if (evhttp_request* const request = std::exchange(state.request, nullptr))
    server.post([request] { evhttp_send_reply_end(request); });
  if (exchange.on_end) exchange.on_end(exchange);
  leave_if_done();
}

void HttpServer::Impl::add_headers(Exchange& exchange, const std::string& type) {
  evkeyvalq* const headers = evhttp_request_get_output_headers(exchange.state_->request);
  evhttp_add_header(headers, "Content-Type", type.c_str());
  for (const auto& [name, value] : exchange.headers_)
    evhttp_add_header(headers, name.c_str(), value.c_str());
  if (exchange.status_ == 503 || exchange.status_ == 429) {
    const double seconds = std::clamp(exchange.retry_seconds_, 1.0, kMostRetrySeconds);
    evhttp_add_header(headers, "Retry-After", std::to_string(int(std::ceil(seconds))).c_str());
  }
  if (stopping) evhttp_add_header(headers, "Connection", "close");
}

void HttpServer::Impl::send_whole(Exchange& exchange, int status, const std::string& type,
                                  const std::string& body) {
  if (!exchange.state_->request) return;
  add_headers(exchange, type);
  evbuffer* const buffer = evbuffer_new();
  evbuffer_add(buffer, body.data(), body.size());
  evhttp_send_reply(std::exchange(exchange.state_->request, nullptr), status, nullptr, buffer);
  evbuffer_free(buffer);
}

void HttpServer::Impl::send_begin(Exchange& exchange, const std::string& type) {
  if (!exchange.state_->request) return;
  add_headers(exchange, type);
  evkeyvalq* const headers = evhttp_request_get_output_headers(exchange.state_->request);
  evhttp_add_header(headers, "Cache-Control", "no-cache");
  // HTTP/1.0 has no chunks: the end of the connection ends the stream. evhttp would promise
  // "Content-Length: 0" to a client that asked to keep it open.
  if (evhttp_request* const request = exchange.state_->request; request->minor == 0)
    evhttp_remove_header(evhttp_request_get_input_headers(request), "Connection");
  evhttp_send_reply_start(exchange.state_->request, 200, nullptr);
}

void HttpServer::Impl::send_part(Exchange& exchange, const std::string& text) {
  if (!exchange.state_->request || text.empty()) return;
  evbuffer* const buffer = evbuffer_new();
  evbuffer_add(buffer, text.data(), text.size());
  evhttp_send_reply_chunk_with_cb(
      exchange.state_->request, buffer,
      [](evhttp_connection*, void* written) {
        Exchange& e = *static_cast<Exchange*>(written);
        {
          const std::scoped_lock lock(e.waiting_->mutex);
          e.waiting_->bytes = 0;
        }
        e.waiting_->drained.notify_all();
      },
      &exchange);
  evbuffer_free(buffer);
}

void HttpServer::Impl::send_end(Exchange& exchange) {
  if (exchange.state_->request)
    evhttp_send_reply_end(std::exchange(exchange.state_->request, nullptr));
}

Exchange::Exchange(HttpServer& server)
    : server_(server), state_(std::make_unique<State>()), waiting_(std::make_unique<Waiting>()) {}
Exchange::~Exchange() = default;

void Exchange::add_headers(const Headers& headers) {
  headers_.insert(headers_.end(), headers.begin(), headers.end());
}

void Exchange::whole(int status, const char* type, const std::string& body) {
  status_ = status, bytes_ = body.size();
  server_.post([self = shared_from_this(), status, type = std::string(type), body] {
    self->server_.impl_->send_whole(*self, status, type, body);
  });
}

void Exchange::begin(const char* type) {
  status_ = 200;
  server_.post([self = shared_from_this(), type = std::string(type)] {
    self->server_.impl_->send_begin(*self, type);
  });
}

void Exchange::part(const std::string& text) {
  {
    std::unique_lock lock(waiting_->mutex);
    waiting_->drained.wait(lock, [&] { return ended_ || waiting_->bytes < kMostWaiting; });
    if (gone_) return;
    waiting_->bytes += text.size();
  }
  bytes_ += text.size();
  server_.post([self = shared_from_this(), text] { self->server_.impl_->send_part(*self, text); });
}

void Exchange::end() {
  server_.post([self = shared_from_this()] { self->server_.impl_->send_end(*self); });
}

}  // namespace chaski
