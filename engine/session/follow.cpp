#include "engine/session/follow.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <thread>

#include "engine/pages/kv_cache.h"
#include "engine/passes/message.h"
#include "engine/passes/pipeline.h"
#include "engine/session/session_impl.h"
#include "ggml-like-tensor/base/mapping.h"

namespace chaski {

namespace {

// How often the ranks tell each other that they still open a model.
constexpr std::chrono::milliseconds kStillOpening{20};

// Every field of an opening that is sent, for Put or Take.
template <class Each>
void each_field(RankOpening& opening, Each each) {
  EngineOptions& o = opening.options;
  each(o.model), each(o.tokenizer), each(o.rope_scaling), each(o.threads), each(o.threads_fixed);
  each(o.context), each(o.sessions), each(o.outputs), each(o.most_idle_bytes);
  each(o.most_state_bytes), each(o.kv), each(o.verify), each(o.copy), each(o.keep_converted),
      each(o.rank_speeds);
  bool has_shape = opening.shape.has_value();
  each(has_shape);
  if (!has_shape) return;
  ShapeOptions& shape = opening.shape ? *opening.shape : opening.shape.emplace();
  each(shape.shape), each(shape.format);
}

std::string message_of_opening(RankOpening& opening) {
  std::string m = message_of(RankMessage::open, opening.options.link_engine);
  each_field(opening, Put{m});
  return m;
}

RankOpening opening_of(const std::string& message) {
  Cursor in = cursor_of(message);
  RankOpening opening;
  each_field(opening, Take{in});
  opening.options.link_engine = engine_of(message), opening.options.device = "cpu";
  return opening;
}

// Calls `open` while the ranks ask each other whether they are still there. A rank may have to
// convert the model for minutes, so the time that it takes has no limit.
template <class Open>
void watched(Link& link, Open open) {
  std::mutex mutex;
  std::condition_variable over;
  bool is_over = false;
  std::exception_ptr lost;
  std::thread watch([&] {
    std::vector<std::byte> all(size_t(link.ranks()));
    try {
      while (!std::ranges::all_of(all, [](std::byte done) { return done == std::byte{1}; })) {
        std::unique_lock lock(mutex);
        over.wait_for(lock, kStillOpening, [&] { return is_over; });
        const std::byte mine{is_over};
        lock.unlock();
        link.gather({&mine, 1}, std::vector<size_t>(all.size(), 1), all.data());
      }
    } catch (...) {
      lost = std::current_exception();
    }
  });
  std::exception_ptr error;
  try {
    open();
  } catch (...) {
    error = std::current_exception();
  }
  {
    const std::scoped_lock lock(mutex);
    is_over = true;
  }
  over.notify_one();
  watch.join();
  for (const std::exception_ptr& e : {lost, error})
    if (e) std::rethrow_exception(e);
}

// What each rank tells the others after it has opened a model, or has failed to.
struct RankOpened {
  static constexpr size_t kMostPools = 64;
  uint64_t model = 0, pools = 0;
  int32_t failed = 0;  // the status of the error
  int64_t pages[kMostPools] = {};
  char error[1024] = {};
};

RankOpened failed_with(const std::exception& why) {
  RankOpened o;
  const auto* const error = dynamic_cast<const Error*>(&why);
  o.failed = int32_t(error ? error->code : Exit::io);
  std::string(why.what()).copy(o.error, sizeof o.error - 1);
  return o;
}

RankOpened opened_of(const Engine* engine) {
  RankOpened o;
  o.model = sum_of_model(*engine);
  // The samples, and what --verify has read: a rank needs only its rows in memory.
  if (const auto& mapping = engine->weights()->mapping) mapping->drop_pages();
  const std::vector<KvPool>& pools = engine->kv_cache().pools;
  ENSURE(pools.size() <= RankOpened::kMostPools, "a model has few kinds of states");
  o.pools = pools.size();
  for (size_t i = 0; i < pools.size(); ++i) o.pages[i] = pools[i].size();
  return o;
}

std::vector<RankOpened> tell_all(Link& link, const RankOpened& mine) {
  std::vector<RankOpened> all(size_t(link.ranks()));
  all[size_t(link.rank())] = mine;
  std::vector<Link::Out> out;
  std::vector<Link::In> in;
  for (int r = 0; r < link.ranks(); ++r)
    if (r != link.rank()) {
      out.push_back({r, std::as_bytes(std::span(&mine, 1))});
      in.push_back({r, std::as_writable_bytes(std::span(&all[size_t(r)], 1))});
    }
  link.transfer(out, in, link.silence());
  return all;
}

// Throws if another rank is not like rank 0.
void expect_alike(const Link& link, const std::vector<RankOpened>& all) {
  for (size_t r = 1; r < all.size(); ++r) {
    const std::string host = link.host(int(r));
    if (all[r].failed) throw Error(Exit(all[r].failed), fmt::format("{}: {}", host, all[r].error));
    if (all[0].failed == 0 && all[r].model != all[0].model)
      fail(Exit::usage, "{} (rank {}) has another model file there, expected that of {}", host, r,
           link.host(0));
  }
}

RankStage& stage_of(Engine& engine) {
  auto* const stage = dynamic_cast<RankStage*>(engine.pipeline().stages()[0].get());
  ENSURE(stage, "an engine of ranks has their stage");
  return *stage;
}

// Opens the engine of an opening message, if all ranks can.
std::shared_ptr<Engine> open_follower(const std::shared_ptr<Link>& link, const std::string& message,
                                      const OpenRank& open) {
  RankOpening opening = opening_of(message);
  opening.options.link = link;
  std::shared_ptr<Engine> engine;
  RankOpened mine;
  try {
    watched(*link, [&] {
      engine = open(opening);
      mine = opened_of(engine.get());
    });
  } catch (const std::exception& error) {
    if (link->given_up()) throw;
    mine = failed_with(error);
  }
  const std::vector<RankOpened> all = tell_all(*link, mine);
  try {
    if (all[0].failed) return nullptr;
    expect_alike(*link, all);
  } catch (const Error&) {  // rank 0 throws it too
    return nullptr;
  }
  stage_of(*engine).reserve_as_first(std::span(all[0].pages).first(all[0].pools));
  return engine;
}

// Rank 0 closes the link only after it has heard from every rank: closing MPI waits without end for
// a rank that is lost.
void answer_end(Link& link) {
  const std::byte here{1};
  std::vector<std::byte> all(size_t(link.ranks()));
  link.gather({&here, 1}, std::vector<size_t>(all.size(), 1), all.data(), true);
}

}  // namespace

std::shared_ptr<Engine> open_rank(const RankOpening& opening) {
  return opening.shape ? Engine::random(*opening.shape, opening.options)
                       : Engine::open(opening.options);
}

std::shared_ptr<Engine> open_on_all(RankOpening opening, const OpenRank& open) {
  Link& link = *opening.options.link;
  const std::scoped_lock lock(link.in_use);
  opening.options.link_engine = link.engines++;
  std::string message = message_of_opening(opening);
  link.broadcast(message);
  std::shared_ptr<Engine> engine;
  RankOpened mine;
  std::exception_ptr error;
  try {
    watched(link, [&] {
      engine = open(opening);
      mine = opened_of(engine.get());
    });
  } catch (const std::exception& e) {
    if (link.given_up()) throw;
    mine = failed_with(e), error = std::current_exception();
  }
  const std::vector<RankOpened> all = tell_all(link, mine);
  if (error) std::rethrow_exception(error);
  expect_alike(link, all);
  stage_of(*engine).set_open();
  return engine;
}

void follow(const std::shared_ptr<Link>& link, const OpenRank& open) {
  std::map<int, std::shared_ptr<Engine>> engines;
  for (std::string message;;) {
    link->broadcast(message);
    const int number = engine_of(message);
    switch (kind_of(message)) {
      case RankMessage::open:
        if (auto engine = open_follower(link, message, open)) engines[number] = std::move(engine);
        break;
      case RankMessage::run:
      case RankMessage::copy_page: {
        Engine& engine = *engines.at(number);
        stage_of(engine).follow(message, engine.pipeline());
        break;
      }
      case RankMessage::close:
        engines.erase(number);
        break;
      case RankMessage::end:
        answer_end(*link);
        return;
    }
  }
}

void end_followers(Link& link) {
  std::string message = message_of(RankMessage::end, 0);
  link.broadcast(message);
  answer_end(link);
}

}  // namespace chaski
