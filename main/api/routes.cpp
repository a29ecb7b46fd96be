#include "main/api/routes.h"

#include <chrono>
#include <random>
#include <system_error>
#include <utility>

#include "main/api/openai_parts.h"

namespace chaski {

namespace {

// Remembers whether a stream has begun. After that, an error can only be sent as an event, because
// the status has been sent.
class WatchedReply : public Reply {
 public:
  explicit WatchedReply(Reply& reply) : reply_(reply) {}
  void whole(int status, const char* type, const std::string& body) override {
    if (!begun) return reply_.whole(status, type, body);
    part(body);
    reply_.end();
  }
  void begin(const char* type) override {
    if (!std::exchange(begun, true)) reply_.begin(type);
  }
  void part(const std::string& text) override {
    if (!text.starts_with(':')) ++parts;  // else a comment
    reply_.part(text);
  }
  void end() override { reply_.end(); }
  const std::atomic<bool>& gone() const override { return reply_.gone(); }
  bool begun = false;
  int parts = 0;

 private:
  Reply& reply_;
};

thread_local Reply* reply_of_this_thread = nullptr;

void report(const Dialect& dialect, const ApiError& error, WatchedReply& reply) {
  if (!reply.begun) return reply.whole(error.status, kJsonType, dialect.error_body(error));
  reply.part(dialect.stream_error(error, reply.parts));
  reply.end();
}

class ReplyOfThread {
 public:
  explicit ReplyOfThread(Reply& reply) { reply_of_this_thread = &reply; }
  ~ReplyOfThread() { reply_of_this_thread = nullptr; }
  ReplyOfThread(const ReplyOfThread&) = delete;
};

// Calls `take` for each route of this path, whatever its method.
template <class Take>
void each_route(std::string_view path, Take take) {
  for (const auto& routes : all_routes())
    for (const Endpoint& route : routes) {
      const std::string_view here = route.path;
      if (here == path || (here.ends_with('/') && path.starts_with(here) && path != here))
        take(route);
    }
}

}  // namespace

void StoredResponses::erase(std::map<std::string, Entry>::iterator at) {
  bytes_ -= at->second.bytes;
  by_order_.erase(at->second.order);
  entries_.erase(at);
}

void StoredResponses::keep(const std::string& id, std::vector<ChatMessage> messages,
                           std::string response) {
  size_t bytes = sizeof(Entry) + 2 * id.size() + response.size();
  for (const ChatMessage& m : messages) {
    bytes += sizeof m + m.role.size() + m.content.size() + m.name.size() + m.call_id.size();
    for (const ToolCall& call : m.calls)
      bytes += sizeof call + call.id.size() + call.name.size() + call.arguments.size();
  }
  const std::scoped_lock lock(mutex_);
  bytes_ += bytes;
  by_order_[++added_] = id;
  entries_[id] = {std::move(messages), std::move(response), bytes, added_};
  while (entries_.size() > kMost || (bytes_ > kMostBytes && entries_.size() > 1))
    erase(entries_.find(by_order_.begin()->second));
}

std::optional<std::vector<ChatMessage>> StoredResponses::messages(const std::string& id) {
  const std::scoped_lock lock(mutex_);
  const auto at = entries_.find(id);
  return at == entries_.end() ? std::nullopt : std::optional(at->second.messages);
}

std::optional<std::string> StoredResponses::response(const std::string& id) {
  const std::scoped_lock lock(mutex_);
  const auto at = entries_.find(id);
  return at == entries_.end() ? std::nullopt : std::optional(at->second.response);
}

bool StoredResponses::remove(const std::string& id) {
  const std::scoped_lock lock(mutex_);
  const auto at = entries_.find(id);
  if (at == entries_.end()) return false;
  erase(at);
  return true;
}

std::array<std::span<const Endpoint>, 5> all_routes() {
  return {openai_routes(), llama_server_routes(), anthropic_routes(), ollama_routes(),
          openapi_routes()};
}

const Endpoint* find_route(std::string_view method, std::string_view path, bool* other_method) {
  *other_method = false;
  const Endpoint* found = nullptr;
  each_route(path, [&](const Endpoint& route) {
    if (method != route.method)
      *other_method = true;
    else if (!found || std::string_view(route.path).size() > std::string_view(found->path).size())
      found = &route;
  });
  return found;
}

std::string methods_of(std::string_view path) {
  std::string all;
  each_route(path, [&](const Endpoint& route) {
    if (all.find(route.method) == all.npos)
      all += (all.empty() ? "" : ", ") + std::string(route.method);
  });
  return all;
}

const Dialect& dialect_of(std::string_view path) {
  const Dialect* found = &kOpenAi;
  each_route(path, [&](const Endpoint& route) { found = &route.dialect; });
  return *found;
}

Reply* reply_of_thread() { return reply_of_this_thread; }

void answer_call(Api& api, const Endpoint& route, const Call& call, Reply& to) {
  WatchedReply reply(to);
  const ReplyOfThread current(reply);
  try {
    route.answer(api, call, reply);
  } catch (const ApiError& error) {
    report(route.dialect, error, reply);
  } catch (const Error& error) {
    report(route.dialect, api_error_of(error), reply);
  } catch (const std::bad_alloc&) {
    report(route.dialect, {503, "server_error", "out_of_memory", "the server has no memory left"},
           reply);
  } catch (const std::system_error& error) {
    report(route.dialect,
           {503, "server_error", "out_of_threads",
            std::string("the server has no thread for the request: ") + error.what()},
           reply);
  } catch (const std::exception& error) {
    report(route.dialect, {500, "server_error", "internal_error", error.what()}, reply);
  }
}

std::string new_id(const char* prefix) {
  constexpr std::string_view kLetters = "0123456789abcdefghijklmnopqrstuvwxyz";
  constexpr int kLength = 24;
  thread_local std::random_device device;
  std::string id = prefix;
  for (int i = 0; i < kLength; ++i) id += kLetters[device() % kLetters.size()];
  return id;
}

int64_t unix_time() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace chaski
