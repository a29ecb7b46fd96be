#include "main/serve/service.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <ctime>
#include <exception>
#include <thread>

#include "engine/requests/serving.h"
#include "main/serve/conversations.h"
#include "main/serve/metrics.h"
#include "main/serve/notify.h"
#include "main/serve/page.h"
#include "main/serve/workers.h"
#include "main/terminal/output.h"
#include "main/terminal/wrapped.h"

namespace chaski {

namespace {

using Clock = std::chrono::steady_clock;

// Threads for functions that need the tokenizer only, so that no answer delays them.
constexpr int kQuickThreads = 2, kMostQuick = 1000;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The time of a line of the log, in UTC.
std::string time_text() { return fmt::format("{:%FT%TZ}", fmt::gmtime(std::time(nullptr))); }

// Thrown while the first model is awaited when the server is to stop.
struct Stopped {};

// What a request took, for the log and for the limits of its key.
struct Work {
  std::mutex mutex;
  std::string key;    // its owner; empty: the request has no key
  std::string model;  // by name
  int prompt_tokens = 0, cached_tokens = 0, answer_tokens = 0;  // of all its answers
  std::vector<std::string> finishes;                            // one an answer

  void add(const GenerateResult& result) {
    const std::scoped_lock lock(mutex);
    prompt_tokens += result.prompt_tokens, cached_tokens += result.cached_tokens;
    answer_tokens += int(result.tokens.size());
    finishes.push_back(name_of(result.finish));
  }
};

// The request that this thread answers.
struct CurrentRequest {
  Workers* workers = nullptr;  // that run it
  std::shared_ptr<Work> work;
};
thread_local CurrentRequest current_request;

// Between two comments in a stream that waits for its model.
constexpr std::chrono::seconds kComment(1);

// Connections beyond those of requests that run and wait.
constexpr int kMoreConnections = 500;

HttpOptions http_options(const ServiceOptions& o) {
  HttpOptions http = o.http;
  http.most_connections = size_t(o.most_running + o.most_waiting + kMoreConnections);
  return http;
}

// Functions that a monitor or a browser calls without a key.
bool is_open_to_all(const std::string& path) {
  return path == "/health" || path == "/v1/health" || page_file(path);
}

// Functions without a route.
bool is_answered_at_once(const std::string& path) {
  return is_open_to_all(path) || path == "/slots" || path == "/metrics";
}

}  // namespace

struct Service::Impl {
  const ServiceOptions options;
  Gate gate;
  Metrics metrics;
  const Notifier notifier;
  const int64_t started = unix_time();
  Api api;
  std::optional<Conversations> conversations;  // with --store
  std::atomic<bool> ready = false;             // the models of run() are open
  std::shared_ptr<BoundedFolder> folder;       // of --cache; null: none
  Models models;
  std::unique_ptr<Workers> quick, workers;
  HttpServer http;

  Impl(const ServiceOptions& o, std::vector<NamedModel> named)
      : options(o),
        gate(o.gate),
        folder(o.cache_folder.empty() ? nullptr
                                      : std::make_shared<BoundedFolder>(
                                            o.cache_folder, DiskCache::endings(), o.cache_bytes)),
        models(std::move(named), o.models,
               {[this](Inbox& inbox, DiskCache* cache, std::span<const TokenId> prompt,
                       const GenerateOptions& generate_options, const Sink& sink) {
                  return generate(inbox, cache, prompt, generate_options, sink);
                },
                folder ? [this](Inbox& inbox) { return open_cache(inbox); }
                       : std::function<std::unique_ptr<DiskCache>(Inbox&)>(),
                [this](const ModelEvent& event) { log_event(event); }}),
        quick(std::make_unique<Workers>(kQuickThreads, kMostQuick)),
        workers(std::make_unique<Workers>(o.most_running, o.most_waiting)),
        http(http_options(o), [this](HttpRequest request, std::shared_ptr<Exchange> exchange) {
          handle(std::move(request), std::move(exchange));
        }) {
    api.model = [this](const ModelWish& wish) { return model(wish); };
    api.models = [this] { return models.states(); };
    api.header = [this](const std::string& name) { return models.header(name); };
    api.unload = [this](const std::string& name) { return models.unload(name); };
    api.most_tokens = o.most_tokens, api.most_running = o.most_running;
    api.move_dates = o.move_dates;
    if (!o.store_folder.empty()) conversations.emplace(o.store_folder, o.store_bytes);
  }

  std::shared_ptr<const ServedModel> model(const ModelWish& wish);
  void open(const std::vector<std::string>& names,
            const std::function<void(const ServedModel*)>& on_ready);
  std::unique_ptr<DiskCache> open_cache(Inbox& inbox) {
    return std::make_unique<DiskCache>(folder, options.cache_folder, inbox, put_loud_notice);
  }
  GenerateResult generate(Inbox& inbox, DiskCache* cache, std::span<const TokenId> prompt,
                          GenerateOptions generate_options, const Sink& sink);
  void handle(HttpRequest request, std::shared_ptr<Exchange> exchange);
  void answer(HttpRequest& request, const std::shared_ptr<Exchange>& exchange,
              const std::shared_ptr<Work>& work);
  bool answer_conversations(HttpRequest& request, const std::shared_ptr<Exchange>& exchange,
                            const std::string& key);
  bool answer_at_once(const HttpRequest& request, Exchange& exchange);
  void put_page(const HttpRequest& request, Exchange& exchange);
  void put_health(Exchange& exchange);
  void put_slots(Exchange& exchange);
  void log(const HttpRequest& request, const Exchange& exchange, Clock::time_point start,
           Work& work);
  void log_event(const ModelEvent& event);
  void log_stop();
  Moment moment();
  void reload();
};

std::shared_ptr<const ServedModel> Service::Impl::model(const ModelWish& wish) {
  Reply* const reply = reply_of_thread();
  std::optional<Workers::Pause> pause;
  Clock::time_point last = Clock::now();
  const auto served = models.acquire(wish, [&](const ModelState& state) {
    if (http.stopping())
      throw ApiError(503, "unavailable_error", "stopping", "the server is being stopped");
    if (reply && reply->gone())
      throw ApiError(503, "unavailable_error", "loading",
                     fmt::format("the model {} is still being loaded", state.name), "model");
    if (!pause && current_request.workers) pause.emplace(*current_request.workers);
    if (!wish.streams || !reply || Clock::now() - last < kComment) return;
    last = Clock::now();
    reply->begin(kEventStream);
    reply->part(fmt::format(": loading the model, {:.0f}%\n\n", 100 * state.progress));
  });
  pause.reset();
  const std::shared_ptr<Work> work = current_request.work;
  if (!work) return served;
  {
    const std::scoped_lock lock(work->mutex);
    work->model = served->name;
  }
  // A copy that counts what it does, and uses the model as long as it lives.
  const auto counted = std::make_shared<ServedModel>(*served);
  counted->generate = [served, work](std::span<const TokenId> prompt, const GenerateOptions& o,
                                     const Sink& sink) {
    GenerateResult result = served->generate(prompt, o, sink);
    work->add(result);
    return result;
  };
  if (served->embed)
    counted->embed = [served, work](std::span<const std::vector<TokenId>> texts,
                                    const std::atomic<bool>& gone) {
      {
        const std::scoped_lock lock(work->mutex);
        for (const auto& text : texts) work->prompt_tokens += int(text.size());
      }
      return served->embed(texts, gone);
    };
  return counted;
}

void Service::Impl::open(const std::vector<std::string>& names,
                         const std::function<void(const ServedModel*)>& on_ready) {
  std::shared_ptr<const ServedModel> first;
  for (const std::string& name : names) {
    int percent = -1;
    auto served = models.get({.name = name}, [&](const ModelState& state) {
      if (http.stopping()) throw Stopped();
      if (std::exchange(percent, int(100 * state.progress)) != int(100 * state.progress))
        notifier.status(fmt::format("opens {}: {} %", name, percent));
    });
    if (&name == &names[0]) first = std::move(served);
    // With several models, the first one may have to leave again.
    if (names.size() > 1) first.reset();
  }
  ready = true;
  if (http.stopping()) return;
  notifier.ready(names.empty() ? "waits for requests" : names[0] + " is open");
  http.accept_waiting();
  on_ready(first.get());
}

GenerateResult Service::Impl::generate(Inbox& inbox, DiskCache* cache,
                                       std::span<const TokenId> prompt,
                                       GenerateOptions generate_options, const Sink& sink) {
  const auto on_token = generate_options.on_token;
  Clock::time_point last = Clock::now();
  bool first = true;
  TokenTimes times;
  generate_options.on_token = [&](TokenId token, const LogProbabilities* values) {
    (first ? times.first : times.between).add(seconds_since(last));
    first = false, last = Clock::now();
    if (on_token) on_token(token, values);
  };
  GenerateResult result = cache ? cache->generate(prompt, generate_options, sink)
                                : chaski::generate(inbox, prompt, generate_options, sink);
  metrics.add_answer(result, times);
  return result;
}

Moment Service::Impl::moment() {
  Moment out;
  out.running = workers->running(), out.waiting = workers->waiting();
  out.facts = models.facts(), out.models = models.figures();
  if (folder) out.cache = {models.cache_facts(), folder->facts()};
  return out;
}

void Service::Impl::put_health(Exchange& exchange) {
  const std::vector<ModelState> states = models.states();
  OrderedJson list = OrderedJson::array();
  for (const ModelState& state : states)
    list.push_back({{"name", state.name},
                    {"state", word_of(state.kind)},
                    {"progress", state.kind == ModelState::Kind::loaded ? 1 : state.progress}});
  OrderedJson json = {{"status", ready ? "ok" : "loading model"}};
  if (states.size() > 1) json["models"] = list;
  if (ready) return exchange.whole(200, kJsonType, written(json));
  json["progress"] = states[0].progress;
  json["error"] = {{"code", 503}, {"message", "Loading model"}, {"type", "unavailable_error"}};
  exchange.whole(503, kJsonType, written(json));
}

// llama-server's slots: here each is a sequence that waits or runs.
void Service::Impl::put_slots(Exchange& exchange) {
  OrderedJson list = OrderedJson::array();
  for (const Models::Figures& model : models.figures())
    for (const Inbox::Sequence& s : model.facts.sequences)
      list.push_back({{"id", s.id},
                      {"model", model.state.name},
                      {"n_ctx", model.state.facts.context},
                      {"is_processing", true},
                      {"n_prompt_tokens", s.prompt_tokens},
                      {"n_prompt_tokens_processed", s.known_tokens},
                      {"n_prompt_tokens_cache", s.cached_tokens},
                      {"n_decoded", s.tokens}});
  exchange.whole(200, kJsonType, written(list));
}

void Service::Impl::put_page(const HttpRequest& request, Exchange& exchange) {
  const PageFile file = *page_file(request.path);
  Exchange::Headers headers = {{"ETag", std::string(file.etag)}};
  for (const auto& [name, value] : page_headers()) headers.emplace_back(name, value);
  exchange.add_headers(headers);
  const bool same = request.if_none_match == file.etag;
  exchange.whole(same ? 304 : 200, std::string(file.type).c_str(),
                 same ? "" : std::string(file.bytes));
}

// What needs no thread: it is answered within a few milliseconds, whatever the engine does.
bool Service::Impl::answer_at_once(const HttpRequest& request, Exchange& exchange) {
  const std::string& path = request.path;
  if (request.method == "OPTIONS") return exchange.whole(204, "text/plain", ""), true;
  if (request.method != "GET") return false;
  if (page_file(path)) return put_page(request, exchange), true;
  if (path == "/health" || path == "/v1/health") return put_health(exchange), true;
  if (path == "/slots") return put_slots(exchange), true;
  if (path != "/metrics") return false;
  exchange.add_headers({{"Process-Start-Time-Unix", std::to_string(started)}});
  exchange.whole(200, "text/plain; version=0.0.4", metrics.text(moment()));
  return true;
}

// False if the path is another one. Only the page of this server may ask.
bool Service::Impl::answer_conversations(HttpRequest& request,
                                         const std::shared_ptr<Exchange>& exchange,
                                         const std::string& key) {
  const std::string_view path = request.path, own = Conversations::kPath;
  if (!conversations || !path.starts_with(own) || (path != own && path[own.size()] != '/'))
    return false;
  if (!gate.check_origin(request.origin, request.host).empty())
    throw ApiError(403, "permission_error", "forbidden",
                   "conversations are for the page of this server only");
  const auto shared = std::make_shared<HttpRequest>(std::move(request));
  exchange->add_headers({{"Cache-Control", "no-store"}});
  const auto run = [this, shared, exchange, key] {
    if (exchange->gone() || !exchange->take_up()) return;
    const auto refuse = [&](const ApiError& error) {
      exchange->whole(error.status, kJsonType, dialect_of(shared->path).error_body(error));
    };
    try {
      exchange->whole(200, kJsonType,
                      conversations->answer(shared->method, shared->path, shared->body, key));
    } catch (const ApiError& error) {
      refuse(error);
    } catch (const std::exception& error) {  // of the disk
      refuse({507, "server_error", "store_failed", error.what()});
    }
  };
  if (!quick->add({run, [exchange] { return exchange->gone().load(); }}))
    throw ApiError(503, "unavailable_error", "queue_full", "too many requests wait");
  return true;
}

void Service::Impl::answer(HttpRequest& request, const std::shared_ptr<Exchange>& exchange,
                           const std::shared_ptr<Work>& work) {
  if (!request.over_unix) gate.check_host(request.host);
  const std::string origin = gate.check_origin(request.origin, request.host);
  if (!origin.empty())
    exchange->add_headers({{"Access-Control-Allow-Origin", origin},
                           {"Access-Control-Allow-Methods", "GET, POST, DELETE"},
                           {"Access-Control-Allow-Headers", "*, Authorization"},
                           {"Vary", "Origin"}});
  std::string key;
  if (!is_open_to_all(request.path) && request.method != "OPTIONS")
    key = gate.check_key(request.authorization, request.x_api_key);
  work->key = key;
  if (answer_at_once(request, *exchange)) return;
  if (answer_conversations(request, exchange, key)) return;
  bool other_method = false;
  const Endpoint* const route = find_route(request.method, request.path, &other_method);
  if (!route && (other_method || is_answered_at_once(request.path))) {
    exchange->add_headers({{"Allow", other_method ? methods_of(request.path) : "GET"}});
    throw ApiError(405, "invalid_request_error", "method_not_allowed",
                   fmt::format("{} does not answer {}", escaped(request.path), request.method));
  }
  if (!route)
    throw ApiError(404, "not_found_error", "not_found",
                   "there is nothing at " + escaped(request.path));
  if (http.stopping())
    throw ApiError(503, "unavailable_error", "stopping", "the server is being stopped");
  const auto shared = std::make_shared<HttpRequest>(std::move(request));
  Workers& threads = route->generates ? *workers : *quick;
  exchange->on_late = [&threads, route](Exchange& late) {
    late.whole(503, kJsonType,
               route->dialect.error_body({503, "unavailable_error", "queue_full",
                                          "no thread was free within --max-seconds"}));
    threads.drop_over();
  };
  const auto run = [this, route, shared, exchange, key, work, &threads] {
    if (exchange->gone() || !exchange->take_up()) return;
    const std::string_view named = route->path;
    const std::string_view rest =
        named.ends_with('/') ? std::string_view(shared->path).substr(named.size()) : "";
    current_request = {&threads, work};
    answer_call(api, *route, {rest, shared->body, shared->model}, *exchange);
    current_request = {};
    if (key.empty()) return;
    const std::scoped_lock lock(work->mutex);
    if (work->answer_tokens > 0)
      http.post([this, key, n = work->answer_tokens] { gate.count_tokens(key, n); });
  };
  const bool taken = threads.add({run, [exchange] { return exchange->gone().load(); }});
  if (taken) return;
  ApiError full(503, "unavailable_error", "queue_full",
                fmt::format("{} requests run and {} wait, which is the limit of this server",
                            options.most_running, options.most_waiting));
  full.retry_seconds = threads.wait_seconds();
  throw full;
}

void Service::Impl::handle(HttpRequest request, std::shared_ptr<Exchange> exchange) {
  const Dialect& dialect = dialect_of(request.path);
  HttpRequest head;
  head.client = request.client, head.method = request.method, head.path = request.path;
  if (options.log_prompts) head.body = request.body;
  const auto work = std::make_shared<Work>();
  exchange->on_end = [this, head = std::move(head), start = Clock::now(), work](const Exchange& e) {
    metrics.add_request(e.status());
    log(head, e, start, *work);
    if (e.status() != 0) return;  // else it may still be in a queue
    quick->drop_over(), workers->drop_over();
  };
  try {
    answer(request, exchange, work);
  } catch (const ApiError& error) {
    exchange->set_retry(error.retry_seconds);
    exchange->whole(error.status, kJsonType, dialect.error_body(error));
  } catch (const std::exception& error) {  // must not cross the event loop, which is C
    exchange->whole(503, kJsonType,
                    dialect.error_body({503, "server_error", "server_error", error.what()}));
  }
}

void Service::Impl::log_event(const ModelEvent& event) {
  if (!options.log) return;
  using Kind = ModelEvent::Kind;
  OrderedJson line = {{"time", time_text()},
                      {"event", event.kind == Kind::loaded     ? "loaded"
                                : event.kind == Kind::unloaded ? "unloaded"
                                                               : "load failed"},
                      {"model", event.name}};
  if (!event.why.empty()) line[event.kind == Kind::failed ? "error" : "reason"] = event.why;
  if (event.kind != Kind::failed) line["bytes"] = event.bytes, line["seconds"] = event.seconds;
  put_whole_note(written(line));
}

void Service::Impl::log_stop() {
  const int left = workers->running() + workers->waiting();
  if (!options.log || left == 0) return;
  put_whole_note(written(OrderedJson{
      {"time", time_text()},
      {"event", "stopping"},
      {"requests", left},
      {"note", "these requests are answered first; a second signal ends them at once"}}));
}

void Service::Impl::log(const HttpRequest& request, const Exchange& exchange,
                        Clock::time_point start, Work& work) {
  if (!options.log) return;
  OrderedJson line = {{"time", time_text()},
                      {"client", request.client},
                      {"method", request.method},
                      {"path", request.path},
                      {"status", exchange.status()},
                      {"bytes", exchange.bytes()},
                      {"seconds", seconds_since(start)}};
  {
    const std::scoped_lock lock(work.mutex);
    if (work.key.starts_with("name ")) line["key"] = work.key.substr(5);
    if (!work.model.empty()) line["model"] = work.model;
    if (work.prompt_tokens > 0) line["prompt_tokens"] = work.prompt_tokens;
    if (!work.finishes.empty()) {
      line["cached_tokens"] = work.cached_tokens;
      line["answer_tokens"] = work.answer_tokens, line["finish"] = work.finishes;
    }
  }
  if (options.log_prompts && !request.body.empty()) line["body"] = request.body;
  put_whole_note(written(line));
}

void Service::Impl::reload() {
  const bool is_open = ready, ends = http.stopping();
  if (is_open && !ends) notifier.reloading();
  std::string done = options.gate.keys_file.empty() ? "there is no file of keys to read again"
                                                    : "the keys were read again";
  try {
    gate.read_keys();
  } catch (const Error& error) {
    done = "the keys stay as they were";
    put_error(error.what() + (": " + done));
  }
  if (ends) return;  // the last message is that the server stops
  is_open ? notifier.ready(done) : notifier.status(done);
}

Service::Service(const ServiceOptions& options, std::vector<NamedModel> models)
    : impl_(std::make_unique<Impl>(options, std::move(models))) {}
Service::~Service() = default;
void Service::stop() { impl_->http.stop(); }
bool Service::cache_is_usable() const { return impl_->models.cache_facts().unusable == 0; }

const std::vector<std::string>& Service::addresses() const { return impl_->http.addresses(); }

void Service::run(const std::vector<std::string>& names, int stop_descriptor,
                  const std::function<void(const ServedModel*)>& on_ready) {
  Impl& i = *impl_;
  std::exception_ptr failed;
  std::thread opener([&] {
    try {
      i.open(names, on_ready);
    } catch (const Stopped&) {
    } catch (...) {
      failed = std::current_exception();
      i.http.stop();
    }
  });
  // Without a file of keys SIGHUP ends the server, as it should when its terminal is closed. A
  // service manager asks for a reload by it.
  std::function<void()> on_hangup;
  if (!i.options.gate.keys_file.empty() || i.notifier.is_on()) on_hangup = [&i] { i.reload(); };
  i.http.run(stop_descriptor, on_hangup, [&i] {
    i.notifier.stopping();
    i.log_stop();
  });
  opener.join();
  // All answers are written, so no thread waits for a model any more.
  i.workers.reset(), i.quick.reset();
  if (failed) std::rethrow_exception(failed);
}

}  // namespace chaski
