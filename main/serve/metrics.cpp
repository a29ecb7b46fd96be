#include "main/serve/metrics.h"

#include <fmt/format.h>

#include <algorithm>

namespace chaski {

namespace {

class Writer {
 public:
  template <class T>
  void put(const char* name, const char* type, const char* help, T value) {
    head(name, type, help);
    text += fmt::format("{} {}\n", name, value);
  }
  void put(const char* name, const char* help, const Histogram& h) {
    head(name, "histogram", help);
    uint64_t sum = 0;
    for (size_t i = 0; i < h.counts.size(); ++i) {
      sum += h.counts[i];
      const std::string bound =
          i < h.kBounds.size() ? fmt::format("{}", h.kBounds[i]) : std::string("+Inf");
      text += fmt::format("{}_bucket{{le=\"{}\"}} {}\n", name, bound, sum);
    }
    text += fmt::format("{}_sum {}\n{}_count {}\n", name, h.sum, name, sum);
  }
  void head(const char* name, const char* type, const char* help) {
    text += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  }
  std::string text;
};

// A label's value: quotes, backslashes and line ends are escaped.
std::string label(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    c == '\n' ? void(out += "\\n") : out.push_back(c);
  }
  return out;
}

void put_models(Writer& w, const std::vector<Models::Figures>& models) {
  using Figures = Models::Figures;
  const auto put = [&](const char* name, const char* type, const char* help, auto value) {
    w.head(name, type, help);
    for (const Figures& m : models)
      w.text += fmt::format("{}{{model=\"{}\"}} {}\n", name, label(m.state.name), value(m));
  };
  constexpr const char *kCounter = "counter", *kGauge = "gauge";
  put("chaski_model_loaded", kGauge, "1 if the model is loaded",
      [](const Figures& m) { return int(m.state.kind == ModelState::Kind::loaded); });
  put("chaski_model_bytes", kGauge, "Memory of the loaded model",
      [](const Figures& m) { return m.state.bytes; });
  put("chaski_model_pages_used", kGauge, "Pages of its KV cache that sequences hold",
      [](const Figures& m) { return m.facts.pages.used; });
  put("chaski_model_requests_processing", kGauge, "Its requests that run",
      [](const Figures& m) { return m.facts.counts.running; });
  put("chaski_model_loads_total", kCounter, "Times that it was loaded",
      [](const Figures& m) { return m.loads; });
  put("chaski_model_unloads_total", kCounter, "Times that it was unloaded",
      [](const Figures& m) { return m.unloads; });
  put("chaski_model_load_failures_total", kCounter, "Times that it could not be loaded",
      [](const Figures& m) { return m.failures; });
}

void put_cache(Writer& w, const CacheFigures& figures) {
  const DiskCache::Facts& c = figures.files;
  const BoundedFolder::Facts& folder = figures.folder;
  constexpr const char *kCounter = "counter", *kGauge = "gauge";
  w.put("chaski_cache_bytes", kGauge, "Bytes of the files of --cache", folder.bytes);
  w.put("chaski_cache_most_bytes", kGauge, "Value of --cache-size", folder.most_bytes);
  w.put("chaski_cache_evictions_total", kCounter, "Files removed to make room", folder.removed);
  w.put("chaski_cache_answer_hits_total", kCounter, "Answers that were stored", c.answer_hits);
  w.put("chaski_cache_answer_misses_total", kCounter,
        "Answers that were generated although the seed is given", c.answer_misses);
  w.put("chaski_cache_prefix_hits_total", kCounter, "Prompts whose beginning came from files",
        c.prefix_hits);
  w.put("chaski_cache_prefix_misses_total", kCounter,
        "Prompts of more than 64 tokens without a file of their beginning", c.prefix_misses);
  w.put("chaski_cache_prefix_tokens_total", kCounter, "Prompt tokens whose pages came from files",
        c.prefix_tokens);
  w.put("chaski_cache_writes_total", kCounter, "Files written", c.writes);
  w.put("chaski_cache_written_bytes_total", kCounter, "Bytes written", c.written_bytes);
  w.put("chaski_cache_faults_total", kCounter, "Failures of the disk and damaged files", c.faults);
}

double rate(double amount, double seconds) { return seconds > 0 ? amount / seconds : 0; }

}  // namespace

void Histogram::add(double value) {
  ++counts[size_t(std::ranges::lower_bound(kBounds, value) - kBounds.begin())];
  sum += value;
}

Histogram& Histogram::operator+=(const Histogram& other) {
  for (size_t i = 0; i < counts.size(); ++i) counts[i] += other.counts[i];
  sum += other.sum;
  return *this;
}

void Metrics::add_request(int status) {
  const std::scoped_lock lock(mutex_);
  status == 0 ? ++gone_ : ++requests_[status];
}

void Metrics::add_answer(const GenerateResult& r, const TokenTimes& times) {
  const std::scoped_lock lock(mutex_);
  cached_tokens_ += uint64_t(r.cached_tokens);
  if (r.cached) return;  // nothing was generated
  first_token_ += times.first, between_tokens_ += times.between;
  prompt_tokens_ += uint64_t(std::max(0, r.known_tokens - r.cached_tokens));
  tokens_ += r.tokens.size();
  drafted_ += uint64_t(r.drafted), accepted_ += uint64_t(r.accepted);
  if (!r.drafted_at.empty()) drafts_ += uint64_t(r.drafted_at[0]);
  longest_ = std::max(longest_, uint64_t(r.known_tokens) + r.tokens.size());
  prompt_seconds_ += r.prompt_seconds, decode_seconds_ += r.decode_seconds;
}

std::string Metrics::text(const Moment& m) const {
  const std::scoped_lock lock(mutex_);
  constexpr const char *kCounter = "counter", *kGauge = "gauge";
  Writer w;
  const Inbox::Counts& counts = m.facts.counts;
  const uint64_t prompt_tokens = prompt_tokens_ + uint64_t(counts.aside_tokens);
  const double prompt_seconds = prompt_seconds_ + counts.aside_seconds;
  w.put("llamacpp:prompt_tokens_total", kCounter,
        "Prompt tokens read, including embeddings and scored prompts", prompt_tokens);
  w.put("llamacpp:prompt_tokens_cached_total", kCounter, "Prompt tokens that were not read",
        cached_tokens_);
  w.put("llamacpp:prompt_seconds_total", kCounter, "Time for prompts", prompt_seconds);
  w.put("llamacpp:tokens_predicted_total", kCounter, "Tokens generated", tokens_);
  w.put("llamacpp:tokens_predicted_seconds_total", kCounter, "Time for generation",
        decode_seconds_);
  w.put("llamacpp:n_decode_total", kCounter, "Passes", counts.passes + counts.aside_passes);
  w.put("llamacpp:n_tokens_max", kCounter, "Tokens of the longest sequence", longest_);
  w.put("llamacpp:spec_decode_num_drafts_total", kCounter, "Drafts that were verified", drafts_);
  w.put("llamacpp:spec_decode_num_draft_tokens_total", kCounter, "Draft tokens", drafted_);
  w.put("llamacpp:spec_decode_num_accepted_tokens_total", kCounter,
        "Draft tokens that were accepted", accepted_);
  w.put("llamacpp:n_busy_slots_per_decode", kGauge, "Requests in a pass, on average",
        rate(double(m.facts.totals.widths), double(m.facts.totals.passes)));
  w.put("llamacpp:prompt_tokens_seconds", kGauge, "Prompt tokens per second",
        rate(double(prompt_tokens), prompt_seconds));
  w.put("llamacpp:predicted_tokens_seconds", kGauge, "Generated tokens per second of an answer",
        rate(double(tokens_), decode_seconds_));
  w.put("llamacpp:requests_processing", kGauge, "Requests that run", counts.running);
  w.put("llamacpp:requests_deferred", kGauge, "Requests that wait", counts.waiting + m.waiting);
  const Inbox::Pages& pages = m.facts.pages;
  w.put("llamacpp:kv_cache_usage_ratio", kGauge, "Used part of the KV cache",
        rate(double(pages.used), double(pages.total)));
  w.put("chaski_queue", kGauge, "Requests that no thread has begun", m.waiting);
  w.put("chaski_batch_width", kGauge, "Requests in the last pass", m.facts.totals.width);
  w.put("chaski_pages", kGauge, "Pages of the KV cache", pages.total);
  w.put("chaski_pages_used", kGauge, "Pages that sequences hold", pages.used);
  w.put("chaski_pages_shared", kGauge, "Pages that several sequences hold", pages.shared);
  w.put("chaski_pages_idle", kGauge, "Pages of the prefix cache that no sequence holds",
        pages.idle);
  w.put("chaski_prefix_bytes", kGauge, "Memory of these pages", pages.idle_bytes);
  w.put("chaski_prefix_most_bytes", kGauge,
        "Memory of the KV cache beyond which these pages are reused first", pages.most_idle_bytes);
  w.put("chaski_pages_evicted_total", kCounter, "Pages evicted from the prefix cache",
        pages.evicted);
  w.put("chaski_prefix_tokens_total", kCounter, "Prompt tokens that the prefix cache had",
        m.facts.totals.prefix_tokens);
  w.put("chaski_cached_tokens_total", kCounter, "Prompt tokens of answers that were not read",
        cached_tokens_);
  w.put("chaski_aside_tokens_total", kCounter,
        "Tokens read for embeddings and for log probabilities of prompts", counts.aside_tokens);
  w.put("chaski_preempted_total", kCounter, "Requests that lost their pages and continued later",
        m.facts.totals.preempted);
  w.put("chaski_draft_tokens_total", kCounter, "Draft tokens", drafted_);
  w.put("chaski_draft_tokens_accepted_total", kCounter, "Draft tokens that were accepted",
        accepted_);
  w.put("chaski_time_to_first_token_seconds", "Time to the first token of an answer", first_token_);
  w.put("chaski_time_between_tokens_seconds", "Time between two tokens of an answer",
        between_tokens_);
  if (m.cache) put_cache(w, *m.cache);
  w.head("chaski_responses_total", kCounter, "Responses by status");
  for (const auto& [status, n] : requests_)
    w.text += fmt::format("chaski_responses_total{{status=\"{}\"}} {}\n", status, n);
  put_models(w, m.models);
  w.put("chaski_gone_total", kCounter, "Requests whose client left before the response", gone_);
  return w.text;
}

}  // namespace chaski
