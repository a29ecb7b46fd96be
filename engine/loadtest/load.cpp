#include "engine/loadtest/load.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <utility>

#include "engine/shelf/curl.h"
#include "engine/shelf/http.h"
#include "engine/text/ordered_json.h"
#include "ggml-like-tensor/base/error.h"

namespace chaski {

namespace {

constexpr size_t kMostRefusal = 4096;  // bytes of an error's body that are read
constexpr int kMostWait = 100;         // ms until `stop` is looked at again
constexpr long kConnectSeconds = 30;

// A conversation between two of its requests.
struct Talk {
  std::vector<LoadTurn> turns;
  int next = 0;
  std::vector<std::string> messages;  // so far, as JSON
  std::string text;                   // so far, for /v1/completions
};

struct Stream {
  CURL* easy = nullptr;
  curl_slist* fields = nullptr;
  std::string body, refusal;
  char why[CURL_ERROR_SIZE] = "";
  std::function<double()> now;
  AnswerReader reader;
  LoadRecord record;
  Talk talk;

  Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() {
    if (easy) curl().easy_cleanup(easy);
    curl().slist_free_all(fields);
  }
};

size_t on_stream_data(char* data, size_t, size_t size, void* to) {
  auto& stream = *static_cast<Stream*>(to);
  long status = 0;
  curl().easy_getinfo(stream.easy, CURLINFO_RESPONSE_CODE, &status);
  if (status == 200)
    stream.reader.add({data, size}, stream.now());
  else
    stream.refusal.append(
        data, std::min(size, kMostRefusal - std::min(kMostRefusal, stream.refusal.size())));
  return size;
}

std::string body_of(const LoadTarget& target, const Talk& talk) {
  const LoadTurn& turn = talk.turns[size_t(talk.next)];
  OrderedJson body = {{"stream", true}, {"stream_options", {{"include_usage", true}}}};
  if (!target.model.empty()) body["model"] = target.model;
  if (target.chat) {
    OrderedJson& messages = body["messages"] = OrderedJson::array();
    for (const std::string& one : talk.messages) messages.push_back(parsed_json(one));
  } else {
    body["prompt"] = talk.text;
  }
  const OrderedJson fields =
      target.fields.empty() ? OrderedJson::object() : parsed_json(target.fields);
  if (!fields.contains("max_completion_tokens")) body["max_tokens"] = turn.answer_tokens;
  body.merge_patch(fields);
  return written(body);
}

std::string kind_of(CURLcode code) {
  switch (code) {
    case CURLE_COULDNT_CONNECT:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION:
      return "no connection";
    case CURLE_OPERATION_TIMEDOUT:
      return "timeout";
    default:
      return "cut";
  }
}

// A server's refusal in its own words, if it is OpenAI's {"error": {"message": ...}}.
std::string words_of_refusal(const std::string& body) {
  const OrderedJson object = maybe_json(body);
  if (!object.is_object() || !object.contains("error")) return body;
  const OrderedJson& error = object["error"];
  if (error.is_string()) return error.get<std::string>();
  const bool has_message =
      error.is_object() && error.contains("message") && error["message"].is_string();
  return has_message ? error["message"].get<std::string>() : body;
}

const char* content_type(CURL* easy) {
  char* type = nullptr;
  curl().easy_getinfo(easy, CURLINFO_CONTENT_TYPE, &type);
  return type;
}
bool is_event_stream(const char* type) {
  return type && std::string_view(type).starts_with("text/event-stream");
}

// Each stream needs a file descriptor.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

class Load {
 public:
  Load(const LoadTarget& target, const Workload& workload, const LoadOptions& options,
       const std::function<void(const LoadRecord&)>& on_end)
      : target_(target),
        workload_(workload),
        options_(options),
        on_end_(on_end),
        this_machine_(read_url(target.url, PlainHttp::anywhere).is_this_machine()),
        multi_(curl().multi_init(), curl().multi_cleanup),
        arrivals_(options.rate, options.seed) {
    if (!multi_) fail(Exit::memory, "not enough memory for libcurl");
    raise_descriptor_limit();
  }
  ~Load() {
    for (auto& [easy, stream] : open_) curl().multi_remove_handle(multi_.get(), easy);
  }
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

  LoadRun run(const std::atomic<bool>* stop) {
    if (options_.rate > 0)
      schedule_arrival();
    else
      for (int i = 0; i < options_.clients; ++i) schedule_conversation(0);
    while ((!open_.empty() || !due_.empty()) && !(stop && *stop)) {
      while (!due_.empty() && due_.begin()->first <= now()) {
        auto first = due_.extract(due_.begin());
        const bool begins = first.mapped().next == 0;
        start(first.key(), std::move(first.mapped()));
        if (begins && options_.rate > 0) schedule_arrival();
      }
      int running = 0;
      check(curl().multi_perform(multi_.get(), &running));
      int left = 0;
      while (const CURLMsg* message = curl().multi_info_read(multi_.get(), &left))
        if (message->msg == CURLMSG_DONE) finish(message->easy_handle, message->data.result);
      wait();
    }
    return {std::move(records_), last_end_};
  }

 private:
  using Clock = std::chrono::steady_clock;
  double now() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  static void check(CURLMcode code) {
    if (code != CURLM_OK) fail(Exit::io, "{}: {}", kCurl, curl().multi_strerror(code));
  }

  // Until data arrives or a request is due.
  void wait() {
    double most = kMostWait;
    if (!due_.empty()) most = std::min(most, std::ceil(1e3 * (due_.begin()->first - now())));
    if (most > 0) check(curl().multi_poll(multi_.get(), nullptr, 0, int(most), nullptr));
  }

  void schedule_conversation(double at) {
    if (options_.duration > 0 && at >= options_.duration) return;
    const auto turns = uint64_t(options_.requests);
    if (options_.requests > 0 && promised_ >= turns) return;
    Talk talk;
    talk.turns = workload_.conversation(conversations_++);
    if (options_.requests > 0) talk.turns.resize(std::min(talk.turns.size(), turns - promised_));
    promised_ += talk.turns.size();
    due_.emplace(at, std::move(talk));
  }
  // The rate counts requests, so conversations of n turns arrive at a rate n times lower.
  void schedule_arrival() {
    const size_t turns = workload_.conversation(conversations_).size();
    schedule_conversation(arrivals_.next() * double(turns));
  }

  void start(double at, Talk talk) {
    const LoadTurn& turn = talk.turns[size_t(talk.next)];
    talk.messages.insert(talk.messages.end(), turn.messages.begin(), turn.messages.end());
    if (!talk.text.empty()) talk.text += "\n\n";
    talk.text += turn.text;
    auto owner = std::make_unique<Stream>();
    Stream& stream = *owner;
    stream.record.number = started_++;
    stream.record.turn = talk.next;
    stream.record.scheduled = at;
    stream.body = body_of(target_, talk);
    stream.talk = std::move(talk);
    stream.now = [this] { return now(); };
    open(stream);
    stream.record.sent = now();
    CURL* const easy = stream.easy;
    open_.emplace(easy, std::move(owner));
    check(curl().multi_add_handle(multi_.get(), easy));
  }

  void open(Stream& stream) {
    const Curl& c = curl();
    stream.easy = c.easy_init();
    if (!stream.easy) fail(Exit::memory, "not enough memory for libcurl");
    // "Expect:" stops libcurl from waiting for a "100 Continue" before a long prompt.
    for (const char* field :
         {"Content-Type: application/json", "Accept: text/event-stream", "Expect:"})
      stream.fields = c.slist_append(stream.fields, field);
    if (!target_.key.empty())
      stream.fields =
          c.slist_append(stream.fields, ("Authorization: Bearer " + target_.key).c_str());
    const auto set = [&](CURLoption option, auto value) {
      if (const CURLcode code = c.easy_setopt(stream.easy, option, value); code != CURLE_OK)
        fail(Exit::io, "{}: {}", kCurl, c.easy_strerror(code));
    };
    set(CURLOPT_URL, target_.url.c_str());
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_USERAGENT, "chaski");
    set(CURLOPT_HTTPHEADER, stream.fields);
    set(CURLOPT_POSTFIELDS, stream.body.data());
    set(CURLOPT_POSTFIELDSIZE_LARGE, curl_off_t(stream.body.size()));
    set(CURLOPT_ERRORBUFFER, stream.why);
    set(CURLOPT_WRITEFUNCTION, on_stream_data), set(CURLOPT_WRITEDATA, &stream);
    set(CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
    set(CURLOPT_TIMEOUT_MS, long(target_.timeout * 1e3));
    set(CURLOPT_NOSIGNAL, 1L);
    if (this_machine_) set(CURLOPT_NOPROXY, "*");
  }

  void finish(CURL* easy, CURLcode code) {
    auto node = open_.extract(easy);
    Stream& stream = *node.mapped();
    curl().multi_remove_handle(multi_.get(), easy);
    LoadRecord& record = stream.record;
    record.end = last_end_ = now();
    long status = 0;
    curl().easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    record.status = int(status);
    LoadAnswer& answer = stream.reader.answer();
    if (status != 0 && status != 200)
      answer.refuse("status " + std::to_string(status), words_of_refusal(stream.refusal));
    else if (code != CURLE_OK)
      answer.refuse(kind_of(code), *stream.why ? stream.why : curl().easy_strerror(code));
    else if (const char* type = content_type(easy); answer.times.empty() && !is_event_stream(type))
      answer.refuse("not a stream", fmt::format("Content-Type is {}, expected text/event-stream",
                                                type ? type : "missing"));
    else
      stream.reader.end(record.end);
    record.answer = std::move(answer);
    records_.push_back(std::move(record));
    on_end_(records_.back());
    go_on(std::move(stream.talk), records_.back());
  }

  // The next turn, or in a closed loop the client's next conversation.
  void go_on(Talk talk, const LoadRecord& record) {
    ++talk.next;
    const double at = record.end + options_.pause;
    const bool late = options_.duration > 0 && at >= options_.duration;
    if (record.answer.whole() && size_t(talk.next) < talk.turns.size() && !late) {
      talk.messages.push_back(written({{"role", "assistant"}, {"content", record.answer.text}}));
      talk.text += record.answer.text;
      due_.emplace(at, std::move(talk));
      return;
    }
    promised_ -= talk.turns.size() - size_t(talk.next);  // a failed conversation ends
    if (options_.rate == 0) schedule_conversation(record.end);
  }

  const LoadTarget& target_;
  const Workload& workload_;
  const LoadOptions& options_;
  const std::function<void(const LoadRecord&)>& on_end_;
  const bool this_machine_;
  const std::unique_ptr<CURLM, decltype(Curl::multi_cleanup)> multi_;
  PoissonArrivals arrivals_;
  const Clock::time_point start_ = Clock::now();
  uint64_t conversations_ = 0, promised_ = 0;  // promised_: requests of the conversations so far
  int started_ = 0;
  std::multimap<double, Talk> due_;
  std::map<CURL*, std::unique_ptr<Stream>> open_;
  std::vector<LoadRecord> records_;
  double last_end_ = 0;
};

}  // namespace

std::string endpoint_url(const std::string& text, bool chat, bool has_key) {
  const Url url = read_url(text, PlainHttp::anywhere);
  if (has_key && url.scheme == "http" && !url.is_this_machine())
    fail(Exit::usage,
         "{}: is not encrypted, so the API key is not sent there; expected https://, or no key",
         without_query(text));
  if (text.find_first_of("?#") != std::string::npos)
    fail(Exit::usage, "{}: has a query, expected the address of a server", without_query(text));
  std::string base = text;
  while (base.ends_with('/')) base.pop_back();
  const std::string end = chat ? "/chat/completions" : "/completions";
  if (base.ends_with(end) && (chat || !base.ends_with("/chat/completions"))) return base;
  if (base.ends_with("/completions"))
    fail(Exit::usage, "{}: is not the endpoint of --endpoint {}, expected a path that ends with {}",
         base, chat ? "chat" : "completions", end);
  return base + (base.ends_with("/v1") ? "" : "/v1") + end;
}

std::string first_model_of(const LoadTarget& target, const std::atomic<bool>* stop) {
  const std::string end = target.chat ? "/chat/completions" : "/completions";
  GetRequest request{
      target.url.substr(0, target.url.size() - end.size()) + "/models", target.key, {}};
  request.plain = PlainHttp::anywhere;
  std::string body;
  const HttpAnswer answer = http_get(
      request,
      [&](const HttpAnswer&, std::string_view part) {
        body += part;
        return body.size() < EventStream::kMostBytes;
      },
      stop);
  const std::string name = without_query(request.url);
  if (answer.end == HttpAnswer::End::stopped) return "";
  if (answer.status == 0) fail(Exit::io, "{}: cannot be read: {}", name, answer.why);
  if (answer.status == 401 || answer.status == 403)
    fail(Exit::io, "{}: the server denies access ({}), expected a key in CHASKI_API_KEY", name,
         answer.status);
  const OrderedJson list = maybe_json(body);
  if (list.is_object() && list.contains("data") && list["data"].is_array())
    for (const OrderedJson& model : list["data"])
      if (model.is_object() && model.contains("id") && model["id"].is_string())
        return model["id"].get<std::string>();
  const std::string said =
      answer.status == 200 ? "" : words_of_refusal(body.substr(0, kMostRefusal));
  fail(Exit::io, "{}: lists no model (status {}{}{}), expected --model-name NAME", name,
       answer.status, said.empty() ? "" : ": ", escaped(said));
}

LoadRun run_load(const LoadTarget& target, const Workload& workload, const LoadOptions& options,
                 const std::function<void(const LoadRecord&)>& on_end,
                 const std::atomic<bool>* stop) {
  return Load(target, workload, options, on_end).run(stop);
}

}  // namespace chaski
