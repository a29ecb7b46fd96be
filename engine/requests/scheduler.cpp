#include "engine/requests/scheduler.h"

#include <algorithm>
#include <chrono>

#include "engine/pages/kv_cache.h"
#include "engine/pages/page_table.h"

namespace chaski {

namespace {

// Most running requests. Beyond this number the time of a pass grows in proportion to its tokens.
constexpr size_t kMostRunning = 64;

size_t common(std::span<const TokenId> a, std::span<const TokenId> b) {
  return size_t(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

template <class List, class One>
void insert_by_turn(List& list, One one) {
  const auto at = std::ranges::upper_bound(list, one.turn, {}, &One::turn);
  list.insert(at, std::move(one));
}

}  // namespace

Scheduler::Scheduler(std::shared_ptr<Engine> engine, int budget)
    : engine_(std::move(engine)),
      budget_(budget > 0 ? std::min(budget, engine_->batch_length()) : engine_->batch_length()) {}

std::vector<int64_t> Scheduler::pages_for(size_t tokens) const {
  // One more page for the first tokens of the answer.
  const int cells = std::min(int(tokens) + kPage, engine_->context_length());
  return pages_of_session(engine_->kv_cache().states.pools, cells, engine_->batch_length());
}

void Scheduler::add(Request& request, int priority) {
  const std::vector<int64_t> need = pages_for(request.history().size());
  for (size_t i = 0; i < need.size(); ++i)
    if (const int64_t have = engine_->kv_cache().pools[i].size(); need[i] > have)
      fail(Exit::memory, "a prompt of {} tokens needs {} pages of KV cache, the engine has {}",
           request.history().size(), need[i], have);
  insert_by_turn(waiting_, Waiting{{passes_ - kAgeing * priority, added_++}, &request});
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
    if (!r.request->begun() && read > std::max(held, shared)) return nullptr;
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
  while (!full_ && !waiting_.empty() && running_.size() < most) {
    const auto [turn, next] = waiting_.front();
    std::unique_ptr<Session> session = session_for(*next);
    if (!session) return;
    insert_by_turn(running_, Running{turn, next, std::move(session)});
    waiting_.pop_front();
  }
}

// First the next tokens and draft tokens of the requests that decode, then prompts, up to the
// budget.
std::vector<Extension> Scheduler::extensions() {
  std::vector<Extension> out;
  in_pass_.clear();
  const auto decoding = int(std::count_if(running_.begin(), running_.end(),
                                          [](const Running& r) { return r.request->begun(); }));
  // No governor knows the cost of a pass in which a prompt is read: kMost turns drafting off.
  const int others = decoding == running() ? decoding - 1 : Governor::kMost;
  int left = decoding > 0 ? budget_ : engine_->batch_length(), drafted = 0;
  for (const bool begun : {true, false})
    for (Running& r : running_) {
      if (r.request->begun() != begun || left <= 0) continue;
      // Each request after this one keeps room for a token.
      const int reserved = begun ? decoding - 1 - int(out.size()) : 0;
      try {
        out.push_back(r.request->next(*r.session, left - reserved, others, drafted));
      } catch (const Error& error) {
        r.request->error = error;
        continue;
      }
      in_pass_.push_back(&r);
      left -= int(out.back().size());
      if (begun) drafted += int(out.back().size()) - 1;
    }
  return out;
}

bool Scheduler::step() {
  ended_.clear();
  remove_ended();
  admit();
  if (running_.empty()) return false;
  const std::vector<Extension> pass = extensions();
  if (pass.empty()) {  // all running requests failed
    remove_ended();
    return running() + waiting() > 0;
  }
  const auto start = std::chrono::steady_clock::now();
  ++passes_;
  try {
    draw_all(pass, draws_);
  } catch (const Error& error) {
    preempt(error);
    remove_ended();
    return running() + waiting() > 0;
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  learn(in_pass_, pass, draws_, took.count());
  for (size_t i = 0; i < pass.size(); ++i) try {
      in_pass_[i]->request->take(draws_[i], int(pass.size()));
    } catch (const Error& error) {
      in_pass_[i]->request->error = error;
    }
  remove_ended();
  return running() + waiting() > 0;
}

void Scheduler::preempt(const Error& error) {
  if (error.code != Exit::memory) throw error;
  Running last = std::move(running_.back());
  running_.pop_back();
  full_ = !running_.empty();
  if (running_.empty()) last.request->error = error;
  insert_by_turn(waiting_, Waiting{last.turn, last.request});
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
