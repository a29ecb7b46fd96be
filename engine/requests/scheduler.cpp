#include "engine/requests/scheduler.h"

#include <algorithm>
#include <chrono>

#include "engine/pages/page_table.h"
#include "engine/session/engine_impl.h"

namespace chaski {

namespace {

// At once, at most: beyond, passes grow as their tokens do.
constexpr size_t kMostRunning = 64;

size_t common(std::span<const TokenId> a, std::span<const TokenId> b) {
  return size_t(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

template <class List, class One>
void take_turn(List& list, One one) {
  const auto at = std::ranges::upper_bound(list, one.turn, {}, &One::turn);
  list.insert(at, std::move(one));
}

}  // namespace

Scheduler::Scheduler(std::shared_ptr<Engine> engine, int budget)
    : engine_(std::move(engine)),
      budget_(budget > 0 ? std::min(budget, engine_->batch_length()) : engine_->batch_length()) {}

std::vector<int64_t> Scheduler::pages_for(size_t tokens) const {
  // one page more, to begin with
  const int cells = std::min(int(tokens) + kPage, engine_->context_length());
  return pages_of_session(engine_->impl().states.pools, cells, engine_->batch_length());
}

void Scheduler::add(Request& request, int priority) {
  const std::vector<int64_t> need = pages_for(request.history().size());
  for (size_t i = 0; i < need.size(); ++i)
    if (const int64_t have = engine_->impl().pools[i].size(); need[i] > have)
      fail(Exit::memory, "a prompt of {} tokens needs {} pages of keys and values, there are {}",
           request.history().size(), need[i], have);
  take_turn(waiting_, Waiting{{passes_ - kAgeing * priority, added_++}, &request});
}

// Who begins as another does who still reads that beginning waits for him, and then has it too.
std::unique_ptr<Session> Scheduler::session_for(const Request& request) {
  const std::span<const TokenId> text = request.history();
  const Running* like = nullptr;
  size_t shared = kPage - 1;  // a page is worth it
  for (const Running& r : running_) {
    const size_t held = std::min(r.session->common_prefix(text), text.size() - 1),
                 read = std::min(common(text, r.request->history()), text.size() - 1);
    if (!r.request->begun() && read > std::max(held, shared)) return nullptr;
    if (held > shared) shared = held, like = &r;
  }
  std::vector<int64_t> need = pages_for(text.size());
  for (size_t i = 0; i < need.size(); ++i) {
    const KvPool& pool = engine_->impl().pools[i];
    if (like && !engine_->impl().states.pools[i].recurrent)
      need[i] = std::max<int64_t>(need[i] - int64_t(shared / kPage), 1);
    // and one for everybody who runs
    if (pool.size() - pool.in_use() < need[i] + running() && running() > 0) return nullptr;
  }
  return like ? like->session->fork() : engine_->session();
}

void Scheduler::admit() {
  const size_t most = std::min(kMostRunning, size_t(budget_));
  while (!full_ && !waiting_.empty() && running_.size() < most) {
    const auto [turn, next] = waiting_.front();
    if (next->goes_on()) {
      std::unique_ptr<Session> session = session_for(*next);
      if (!session) return;
      take_turn(running_, Running{turn, next, std::move(session)});
    }
    waiting_.pop_front();
  }
}

// First everybody's next token and guesses, then prompts, as far as the budget goes.
std::vector<Extension> Scheduler::extensions() {
  std::vector<Extension> out;
  in_pass_.clear();
  const auto decoding = int(std::count_if(running_.begin(), running_.end(),
                                          [](const Running& r) { return r.request->begun(); }));
  // What a pass costs in which somebody reads, no governor knows.
  const int others = decoding == running() ? decoding - 1 : Governor::kMost;
  int left = decoding > 0 ? budget_ : engine_->batch_length(), guessed = 0;
  for (const bool begun : {true, false})
    for (Running& r : running_) {
      if (r.request->begun() != begun || left <= 0) continue;
      // who comes behind has room for a token
      const int behind = begun ? decoding - 1 - int(out.size()) : 0;
      try {
        out.push_back(r.request->next(*r.session, left - behind, others, guessed));
      } catch (const Error& error) {
        r.request->error = error;
        continue;
      }
      in_pass_.push_back(&r);
      left -= int(out.back().size());
      if (begun) guessed += int(out.back().size()) - 1;
    }
  return out;
}

bool Scheduler::step() {
  leave();
  admit();
  if (running_.empty()) return false;
  const std::vector<Extension> pass = extensions();
  if (pass.empty()) return true;  // all who ran failed
  const auto start = std::chrono::steady_clock::now();
  ++passes_;
  try {
    draw_all(pass, draws_);
  } catch (const Error& error) {
    preempt(error);
    return true;
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  learn(in_pass_, pass, draws_, took.count());
  for (size_t i = 0; i < pass.size(); ++i) try {
      in_pass_[i]->request->take(draws_[i], int(pass.size()));
    } catch (const Error& error) {
      in_pass_[i]->request->error = error;
    }
  leave();
  return running() + waiting() > 0;
}

void Scheduler::preempt(const Error& error) {
  if (error.code != Exit::memory) throw error;
  Running last = std::move(running_.back());
  running_.pop_back();
  full_ = !running_.empty();
  if (running_.empty())
    last.request->error = error;
  else
    take_turn(waiting_, Waiting{last.turn, last.request});
}

// A pass in which nobody read teaches what passes cost.
void Scheduler::learn(const std::vector<Running*>& who, const std::vector<Extension>& pass,
                      const std::vector<Draws>& draws, double seconds) {
  size_t tokens = 0, made = 0;
  for (size_t i = 0; i < pass.size(); ++i) {
    if (!who[i]->request->begun() || pass[i].wanted == 0 || draws[i].abandoned) return;
    tokens += pass[i].size(), made += draws[i].tokens.size();
  }
  std::vector<Governor*> told;
  for (const Running* r : who) {
    Governor* const governor = r->request->governor();
    if (!governor || std::count(told.begin(), told.end(), governor)) continue;
    governor->learn_pass(int(tokens), int(pass.size()), int(made), seconds);
    told.push_back(governor);
  }
}

void Scheduler::leave() {
  if (std::erase_if(running_, [](const Running& r) { return !r.request->goes_on(); }) > 0)
    full_ = false;
}

}  // namespace chaski
