#include "engine/requests/scheduler.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <ranges>
#include <utility>

#include "engine/pages/kv_cache.h"
#include "engine/pages/page_table.h"

namespace chaski {

namespace {

// Most running requests. Beyond this number the time of a pass grows in proportion to its tokens.
constexpr size_t kMostRunning = 64;

size_t common(std::span<const TokenId> a, std::span<const TokenId> b) {
  return size_t(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

// Calls work() and returns its error, if it has one. Memory that malloc refuses is an Error too.
template <class Work>
std::optional<Error> error_of(Work work) {
  try {
    work();
    return std::nullopt;
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return Error(Exit::memory, "no memory is left for the request");
  }
}

template <class List, class One>
void insert_by_turn(List& list, One one) {
  const auto at = std::ranges::upper_bound(list, one.turn, {}, &One::turn);
  list.insert(at, std::move(one));
}

}  // namespace

Scheduler::Scheduler(std::shared_ptr<Engine> engine, int budget, double most_slowdown,
                     const std::atomic<bool>* abandon)
    : engine_(std::move(engine)),
      budget_(budget > 0 ? std::min(budget, engine_->batch_length()) : engine_->batch_length()),
      portion_(most_slowdown),
      abandon_(abandon) {}

// After a preemption or when tokens were dropped, the text is read again, like a prompt.
Scheduler::Part Scheduler::part_of(const Running& r) {
  if (r.request->held()) return Part::none;
  if (!r.request->begun()) return Part::reads;
  const size_t held = r.session->common_prefix(r.request->history());
  return r.request->history().size() - held > size_t(Governor::kMost) + 1 ? Part::reads
                                                                          : Part::decodes;
}

Scheduler::Totals Scheduler::Totals::operator+(const Totals& later) const {
  Totals sum = later;
  sum.passes += passes, sum.prompt_tokens += prompt_tokens, sum.prefix_tokens += prefix_tokens;
  sum.widths += widths;
  sum.drafted += drafted, sum.accepted += accepted, sum.preempted += preempted;
  return sum;
}

std::vector<int64_t> Scheduler::pages_for(size_t tokens) const {
  // One more page for the first tokens of the answer.
  const int cells = std::min(int(tokens) + kPage, engine_->context_length());
  return pages_of_session(engine_->kv_cache().states.pools, cells, engine_->batch_length());
}

void Scheduler::add(Request& request, int priority) {
  const size_t tokens = request.history().size();
  const auto suffice = [&](size_t n) {
    const std::vector<int64_t> need = pages_for(n);
    const std::vector<KvPool>& pools = engine_->kv_cache().pools;
    return std::equal(need.begin(), need.end(), pools.begin(),
                      [](int64_t pages, const KvPool& pool) { return pages <= pool.size(); });
  };
  if (!suffice(tokens)) {
    const auto all = std::views::iota(size_t(1), tokens);
    const auto most = int64_t(std::ranges::partition_point(all, suffice) - all.begin());
    throw Error(Exit::memory,
                fmt::format("the prompt has {} tokens, but the pages of the KV cache hold {}",
                            tokens, most),
                int64_t(tokens), most);
  }
  insert_by_turn(waiting_,
                 Waiting{{totals_.passes - kAgeing * priority, added_++}, &request, Clock::now()});
}

// If another request still reads the same prefix, the request waits for it and then forks its
// session.
std::unique_ptr<Session> Scheduler::session_for(const Request& request) {
  const std::span<const TokenId> text = request.history();
  const Running* similar = nullptr;
  size_t shared = kPage - 1;  // less than a page is not worth a fork
  for (const Running& r : running_) {
    const size_t held = std::min(r.session->common_prefix(text), text.size() - 1),
                 read = std::min(common(text, r.request->history()), text.size() - 1);
    if (!r.request->begun() && read > std::max(held, shared)) {
      prefix_is_read_ = true;
      return nullptr;
    }
    if (held > shared) shared = held, similar = &r;
  }
  std::vector<int64_t> need = pages_for(text.size());
  for (size_t i = 0; i < need.size(); ++i) {
    const KvPool& pool = engine_->kv_cache().pools[i];
    if (similar && !engine_->kv_cache().states.pools[i].recurrent)
      need[i] = std::max<int64_t>(need[i] - int64_t(shared / kPage), 1);
    // Leaves one page for each running request.
    if (pool.size() - pool.in_use() < need[i] + running() && running() > 0) return nullptr;
  }
  return similar ? similar->session->fork() : engine_->session();
}

void Scheduler::admit() {
  const size_t most = std::min(kMostRunning, size_t(budget_));
  prefix_is_read_ = false;
  for (;;) {
    const auto next =
        std::ranges::find_if(waiting_, [](const Waiting& w) { return !w.request->held(); });
    if (next == waiting_.end()) return;
    std::unique_ptr<Session> session;
    if (!full_ && running_.size() < most)
      next->request->error = error_of([&] { session = session_for(*next->request); });
    if (next->request->error) {
      remove_ended();
      continue;
    }
    if (session) {
      insert_by_turn(running_, Running{next->turn, next->request, next->added, std::move(session)});
      waiting_.erase(next);
    } else if (!preempt_held()) {
      return;
    }
  }
}

// Releases the pages of a held request. False if none is running.
bool Scheduler::preempt_held() {
  const auto held = std::find_if(running_.rbegin(), running_.rend(),
                                 [](const Running& r) { return r.request->held(); });
  if (held == running_.rend()) return false;
  insert_by_turn(waiting_, Waiting{held->turn, held->request, held->added});
  running_.erase(std::next(held).base());
  ++totals_.preempted;
  full_ = false;
  return true;
}

// First the next tokens and draft tokens of the requests that decode, unless the pass is one of
// prompts alone; then prompts, up to the budget.
std::vector<Extension> Scheduler::extensions() {
  std::vector<Extension> out;
  in_pass_.clear();
  int decoding = 0, reading = 0;
  for (Running& r : running_) {
    r.part = part_of(r);
    decoding += r.part == Part::decodes, reading += r.part == Part::reads;
  }
  // No governor knows the cost of a pass in which a prompt is read: kMost turns drafting off.
  const int others = reading == 0 ? decoding - 1 : Governor::kMost;
  int left = decoding > 0 ? budget_ : engine_->batch_length(), drafted = 0;
  PromptPortion::Choice choice = {0, true};
  if (reading > 0) choice = choose(decoding, reading, std::max(left - decoding, 0));
  for (const Part part : {Part::decodes, Part::reads}) {
    const bool reads = part == Part::reads;
    if (!reads && !choice.decodes) continue;
    if (reads) left = std::min(left, choice.prompt);
    for (Running& r : running_) {
      if (r.part != part || left <= 0) continue;
      // Each request after this one keeps room for a token.
      const int reserved = reads ? 0 : decoding - 1 - int(out.size());
      r.request->error = error_of(
          [&] { out.push_back(r.request->next(*r.session, left - reserved, others, drafted)); });
      if (r.request->error) continue;
      in_pass_.push_back(&r);
      left -= int(out.back().size());
      if (!reads) drafted += int(out.back().size()) - 1;
    }
  }
  if (abandon_ && choice.prompt > 0 && reading > 0 && !abandoned_)
    for (Extension& one : out) one.interrupt = abandon_;
  return out;
}

// The request that is latest, measured by the length of its prompt, counts more.
PromptPortion::Choice Scheduler::choose(int decoding, int reading, int most) const {
  const auto now = Clock::now();
  int late = 0;
  for (const Running& r : running_) {
    if (r.request->begun() || r.part != Part::reads) continue;
    const int tokens = int(r.request->history().size()) - r.request->so_far().cached_tokens;
    const std::chrono::duration<double> waited = now - r.added;
    late = std::max(late, portion_.how_late(decoding, std::max(tokens, 1), waited.count()));
  }
  return portion_.next(decoding, reading + late + (prefix_is_read_ ? waiting() : 0), most, shared_);
}

int Scheduler::portion_aside() const {
  int decoding = 0, reading = 1;
  for (const Running& r : running_)
    decoding += r.part == Part::decodes, reading += r.part == Part::reads;
  return std::max(portion_.next(decoding, reading, engine_->batch_length(), true).prompt,
                  PromptPortion::kLeast);
}

void Scheduler::learn_aside(int tokens, double seconds) {
  if (tokens > 0) portion_.learn(0, tokens, seconds);
}

bool Scheduler::step() {
  ended_.clear();
  remove_ended();
  admit();
  stalled_ = running_.empty() && !waiting_.empty();
  if (running_.empty()) return stalled_;
  const std::vector<Extension> pass = extensions();
  if (pass.empty()) {  // all running requests failed or are held
    remove_ended();
    stalled_ = ended_.empty();
    return running() + waiting() > 0;
  }
  const auto start = Clock::now();
  ++totals_.passes;
  if (const auto error = error_of([&] { Pass(pass).draw(draws_); })) {
    preempt(*error);
    remove_ended();
    return running() + waiting() > 0;
  }
  const std::chrono::duration<double> took = Clock::now() - start;
  learn(in_pass_, pass, draws_, took.count());
  count(pass, took.count());
  for (size_t i = 0; i < pass.size(); ++i)
    in_pass_[i]->request->error =
        error_of([&] { in_pass_[i]->request->take(draws_[i], int(pass.size())); });
  remove_ended();
  return running() + waiting() > 0;
}

void Scheduler::preempt(const Error& error) {
  if (error.code != Exit::memory) throw error;
  if (preempt_held()) return;
  Running last = std::move(running_.back());
  running_.pop_back();
  ++totals_.preempted;
  full_ = !running_.empty();
  if (running_.empty()) last.request->error = error;
  insert_by_turn(waiting_, Waiting{last.turn, last.request, last.added});
}

// The governors learn the cost of passes in which all requests decode.
void Scheduler::learn(const std::vector<Running*>& running, const std::vector<Extension>& pass,
                      const std::vector<Draws>& draws, double seconds) {
  size_t tokens = 0, made = 0;
  for (size_t i = 0; i < pass.size(); ++i) {
    if (!running[i]->request->begun() || pass[i].wanted == 0 || draws[i].abandoned) return;
    tokens += pass[i].size(), made += draws[i].tokens.size();
  }
  std::vector<Governor*> done;
  for (const Running* r : running) {
    Governor* const governor = r->request->governor();
    if (!governor || std::count(done.begin(), done.end(), governor)) continue;
    governor->learn_pass(int(tokens), int(pass.size()), int(made), seconds);
    done.push_back(governor);
  }
}

// Of a pass that was made, before its draws are taken.
void Scheduler::count(const std::vector<Extension>& pass, double seconds) {
  abandoned_ = draws_[0].abandoned;
  if (abandoned_) return;
  int decoding = 0, prompt = 0;
  for (size_t i = 0; i < pass.size(); ++i) {
    Running& r = *in_pass_[i];
    if (!std::exchange(r.counted, true)) totals_.prefix_tokens += r.request->so_far().cached_tokens;
    (r.part == Part::decodes ? decoding : prompt) += int(pass[i].size());
    totals_.drafted += int64_t(pass[i].draft.size());
    if (pass[i].wanted > 0)
      totals_.accepted += std::max(int64_t(draws_[i].tokens.size()) - 1, int64_t(0));
  }
  totals_.prompt_tokens += prompt;
  totals_.width = int(pass.size()), totals_.widths += int64_t(pass.size());
  totals_.tokens = decoding + prompt;
  totals_.seconds = seconds;
  portion_.learn(decoding, prompt, seconds);
}

void Scheduler::remove_ended() {
  const auto has_ended = [&](const auto& one) {
    if (one.request->goes_on()) return false;
    ended_.push_back(one.request);
    return true;
  };
  std::erase_if(waiting_, has_ended);
  if (std::erase_if(running_, has_ended) > 0) full_ = false;
}

}  // namespace chaski
