// Ranks that compute a model together: the same bits as one rank, a part of the memory each, and an
// error when one of them is lost.
#include <atomic>
#include <chrono>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "engine/measure/fleet_forecast.h"
#include "engine/pages/kv_cache.h"
#include "engine/passes/pipeline.h"
#include "engine/passes/rank_stage.h"
#include "engine/session/follow.h"
#include "engine/session/memory_need.h"
#include "engine/session/pass.h"
#include "ggml-like-tensor/rank_share.h"
#include "tests/kit/engine_support.h"
#include "tests/kit/expert_model.h"
#include "tests/kit/scratch_model.h"
#include "tests/kit/support.h"
#include "tests/kit/thread_link.h"

namespace chaski::test {
namespace {

EngineOptions one_thread(const std::string& model, Format kv = Format::f16) {
  EngineOptions o;
  o.model = model, o.device = "cpu", o.threads = 1, o.kv = kv;
  return o;
}

// Ranks of threads. Rank 0 is the caller; its engines must be destroyed before this.
class Ranks {
 public:
  // `open` opens a model on the other ranks.
  explicit Ranks(int n, std::vector<double> speeds = {}, const OpenRank& open = open_rank,
                 double silence = kSilence)
      : links_(thread_links(n, silence)), speeds_(std::move(speeds)), ended_(size_t(n)) {
    for (int r = 1; r < n; ++r)
      threads_.emplace_back([this, r, open] {
        try {
          follow(links_[size_t(r)], open);
        } catch (const Error& error) {
          ended_[size_t(r)] = error.what();
        }
        links_[size_t(r)].reset();
      });
  }
  ~Ranks() {
    if (!links_[0]->given_up()) end_followers(*links_[0]);
    for (std::thread& t : threads_) t.join();
    for (const std::string& error : ended_) CHECK(error == "");
  }

  std::shared_ptr<Engine> open(EngineOptions o) {
    o.link = links_[0], o.rank_speeds = speeds_;
    return open_on_all({o});
  }
  Link& link() { return *links_[0]; }

 private:
  std::vector<std::shared_ptr<Link>> links_;
  const std::vector<double> speeds_;
  std::vector<std::string> ended_;
  std::vector<std::thread> threads_;
};

std::vector<float> kept(std::span<const float> rows) { return {rows.begin(), rows.end()}; }

// Prompts in portions, decode steps, a fork, a batch, drafts with branches, a rewind, the prefix
// cache and hidden states, in a context of 32 tokens.
std::vector<std::vector<float>> rows_of(Engine& e) {
  std::vector<std::vector<float>> rows;
  const std::vector<TokenId> text = tokens_for(e, 60);
  const std::span<const TokenId> all = text;
  const auto session = e.session();
  rows.push_back(kept(session->extend(all.first(19), 19)));
  rows.push_back(kept(session->decode(all[19])));
  const auto fork = session->fork();
  const auto other = e.session();
  const Extension batch[] = {{.session = fork.get(), .tokens = all.subspan(30, 5), .wanted = 2},
                             {.session = session.get(), .tokens = all.subspan(20, 4)},
                             {.session = other.get(), .tokens = all.first(11)}};
  rows.push_back(kept(extend_all(batch)));
  Sampler sampler({}, nullptr);
  Draft draft;
  draft.add(all.first(3));
  if (session->branches(3) > 0) draft.add(all.subspan(9, 2));
  for (const TokenId t : session->draw(all.subspan(24, 2), sampler, draft.nodes))
    rows.push_back({float(t)});
  session->rewind(18);
  rows.push_back(kept(session->extend(all.subspan(size_t(session->position()), 10))));
  const auto again = e.session();
  rows.push_back(kept(again->extend(again->reuse(all.first(30)))));
  if (e.hidden_size() > 0) rows.push_back(kept(again->hidden(all.subspan(30, 2), 2)));
  return rows;
}

bool same_rows(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
  return std::ranges::equal(a, b, [](const auto& x, const auto& y) { return same(x, y); });
}

std::vector<std::string> every_model() {
  std::vector<std::string> out{"", golden("gguf/tiny_llama_q4_0.gguf"),
                               golden("gguf/tiny_llama_mixed.gguf"),
                               golden("gguf/tiny_llama_floats.gguf")};
  for (const std::string& model : golden_models()) out.push_back(model);
  return out;
}

TEST_CASE("ranks: any number of them computes the same bits, with every architecture") {
  for (const std::string& m : every_model()) {
    CAPTURE(m);
    const auto want = rows_of(*Engine::open(one_thread(m)));
    for (const int n : {2, 3}) {
      CAPTURE(n);
      Ranks ranks(n);
      CHECK(same_rows(want, rows_of(*ranks.open(one_thread(m)))));
    }
  }
}

TEST_CASE("ranks: 1 to 7 of them, equal or not, with every KV format") {
  const TempFolder temp;
  const std::string experts = write_expert_model(temp / "experts.quipu"),
                    mixed = write_scratch_model(temp / "scratch.quipu");
  for (const std::string& m : {std::string(), experts, mixed, golden("models/llama_gqa_untied"),
                               golden("models/gpt_oss"), golden("models/qwen3")})
    for (const KvType& kv : kKvTypes) {
      CAPTURE(m);
      CAPTURE(kv.name);
      const EngineOptions o = one_thread(m, kv.format);
      const auto want = rows_of(*Engine::open(o));
      for (const std::vector<double>& speeds : {std::vector<double>{1},
                                                {1, 1},
                                                {1, 2.5},
                                                {1, 1, 1},
                                                {0.3, 0, 2},
                                                {1, 1, 1, 1},
                                                {1, 1, 1, 1, 1, 1, 1}}) {
        CAPTURE(speeds.size());
        Ranks ranks(int(speeds.size()), speeds);
        CHECK(same_rows(want, rows_of(*ranks.open(o))));
      }
    }
}

TEST_CASE("ranks: each has its part of the states, and four gathers a layer") {
  Ranks ranks(2);
  const auto alone = Engine::open(one_thread(""));
  const auto e = ranks.open(one_thread(""));
  const auto& stage = dynamic_cast<const RankStage&>(*e->pipeline().stages()[0]);
  CHECK(e->device() == "cpu, 2 ranks");
  // One of three key heads.
  CHECK(stage.context().states.page_bytes() * 3 == alone->kv_cache().states.page_bytes());
  const auto session = e->session();
  session->extend(tokens_for(*e, 5));
  const uint64_t before = ranks.link().gathers();
  session->decode(3);
  CHECK(ranks.link().gathers() - before == 4 * uint64_t(e->model().n_layers) + 1);
  Profile profile;
  e->pipeline().profile = &profile;
  session->decode(3);
  e->pipeline().profile = nullptr;
  const StepProfile& gathers = profile.steps.at({"gather", ""});
  CHECK(gathers.calls == 4 * int(e->model().n_layers) + 1);
  CHECK(gathers.seconds > 0);
  CHECK_THROWS_WITH_AS(session->save("/tmp/never"),
                       "/tmp/never: keys and values on cpu, 2 ranks cannot be saved, expected "
                       "--device cpu and one rank",
                       Error);
}

TEST_CASE("ranks: the matrices that a rank reads are its part of them") {
  const TempFolder temp;
  const auto e = Engine::open(one_thread(write_expert_model(temp / "experts.quipu")));
  const auto bytes_of = [&](RankShare* share) {
    const ImaginedPass pass(e->model(), int(e->model().n_layers), Format::f16, 8, 9, 1, share);
    uint64_t bytes = 0;
    for (const Weight* w : weights_of(pass.plan().graph()))
      if (w->info.tiled() && !w->info.name.starts_with("token_embd")) bytes += w->info.bytes();
    return bytes;
  };
  const uint64_t whole = bytes_of(nullptr);
  for (int r = 0; r < 2; ++r) {
    CAPTURE(r);
    RankShare share(r, {1, 1}, 0);
    CHECK(double(bytes_of(&share)) < 1.1 * double(whole) / 2);
  }
}

TEST_CASE("ranks: an abandoned pass ends on all of them, and the next one is exact") {
  Ranks ranks(3);
  const auto e = ranks.open(one_thread(""));
  const std::vector<TokenId> text = tokens_for(*e, 30);
  const auto want = kept(Engine::open(one_thread(""))->session()->extend(text));
  const auto session = e->session();
  const std::atomic<bool> stop = true;
  const Extension one{.session = session.get(), .tokens = text, .interrupt = &stop};
  Pass pass({&one, 1});
  CHECK(!pass.run());
  CHECK(session->position() == 0);
  CHECK(same(want, session->extend(text)));
}

TEST_CASE("ranks: two engines share them") {
  Ranks ranks(2);
  const auto a = ranks.open(one_thread("")), b = ranks.open(one_thread(golden("models/qwen3")));
  CHECK(same_rows(rows_of(*a), rows_of(*Engine::open(one_thread("")))));
  CHECK(same_rows(rows_of(*b), rows_of(*Engine::open(one_thread(golden("models/qwen3"))))));
}

TEST_CASE("ranks: another model or an error on one rank is reported with its host") {
  {
    Ranks ranks(2, {}, [](const RankOpening& opening) {
      RankOpening other = opening;
      other.options.model = golden("models/qwen3");
      return open_rank(other);
    });
    CHECK_THROWS_WITH_AS(
        ranks.open(one_thread("")),
        "thread 1 (rank 1) has another model file there, expected that of thread 0", Error);
    CHECK_THROWS_WITH_AS(ranks.open(one_thread("missing.quipu")),
                         doctest::Contains("missing.quipu"), Error);
  }
  Ranks ranks(3, {}, [](const RankOpening& opening) -> std::shared_ptr<Engine> {
    if (opening.options.link->rank() == 2) fail(Exit::io, "story.quipu: cannot be opened");
    return open_rank(opening);
  });
  CHECK_THROWS_WITH_AS(ranks.open(one_thread("")), "thread 2: story.quipu: cannot be opened",
                       Error);
}

TEST_CASE("ranks: an exception of any type while rank 0 opens a model leaves them in step") {
  Ranks ranks(2);
  EngineOptions o = one_thread(golden("gguf/tiny_llama_q4_0.gguf"));
  o.notice = [](const std::string&) { throw std::runtime_error("abandoned"); };
  CHECK_THROWS_WITH_AS(ranks.open(o), "abandoned", std::runtime_error);
  CHECK(same_rows(rows_of(*ranks.open(one_thread(""))), rows_of(*Engine::open(one_thread("")))));
}

TEST_CASE("ranks: the memory that is checked before the start is that of a rank") {
  const auto e = Engine::open(one_thread(""));
  RankShare share(1, {2, 1}, 0);  // one of three key heads
  const Footprint whole(e->model(), int(e->model().n_layers), Format::f16, 1),
      part(e->model(), int(e->model().n_layers), Format::f16, 1, &share);
  CHECK(part.states(256) < whole.states(256) / 2);
  CHECK(part.activations(256) <= whole.activations(256));
}

TEST_CASE("ranks: every rank needs a speed") {
  Ranks ranks(2, {1, 2, 3});
  CHECK_THROWS_WITH_AS(ranks.open(one_thread("")),
                       "--rank-speeds has 3 numbers, expected 2, one for each machine", Error);
}

TEST_CASE("ranks: flags for one rank are refused") {
  Ranks ranks(2);
  EngineOptions layers = one_thread(""), experts = layers, memory = layers, weights = layers;
  layers.gpu_layers = 2, experts.cpu_experts = true, memory.expert_memory = 1 << 20;
  weights.weight_memory = 1 << 20;
  for (const EngineOptions& o : {layers, experts, memory, weights})
    CHECK_THROWS_AS(ranks.open(o), Error);
}

TEST_CASE("ranks: one that ends or says nothing is named, and the run ends") {
  for (const bool ends : {true, false}) {
    CAPTURE(ends);
    auto links = thread_links(2, 0.2);
    std::thread other([&] {
      std::string message;
      links[1]->broadcast(message);
      CHECK(message == "x");
      if (ends) links[1].reset();
    });
    std::string message = "x";
    links[0]->broadcast(message);
    other.join();
    const std::vector<size_t> sizes{4, 4};
    std::byte own[4] = {}, all[8];
    int given_up = 0;
    links[0]->when_given_up = [&] { ++given_up; };
    CHECK_THROWS_WITH_AS(
        links[0]->gather(own, sizes, all),
        ends ? "thread 1 (rank 1) has ended" : "thread 1 (rank 1) has not answered for 0.2 s",
        Error);
    CHECK(given_up == 1);
    CHECK_THROWS_WITH_AS(links[0]->broadcast(message), "the other ranks have ended after an error",
                         Error);
    CHECK(given_up == 1);
  }
}

TEST_CASE("ranks: opening a model may take longer than a rank may be silent") {
  const std::chrono::milliseconds silence{2000}, longer{4000};
  const auto slow = [&](const RankOpening& opening) {
    std::this_thread::sleep_for(longer);
    return open_rank(opening);
  };
  Ranks ranks(2, {}, slow, std::chrono::duration<double>(silence).count());
  CHECK(same_rows(rows_of(*ranks.open(one_thread(""))), rows_of(*Engine::open(one_thread("")))));
}

TEST_CASE("ranks: one that is lost while a model is opened is named at once") {
  const auto links = thread_links(2, 0.2);
  std::thread silent([&] {
    std::string message;
    links[1]->broadcast(message);
  });
  std::atomic<bool> named = false;
  links[0]->when_given_up = [&] { named = true; };
  EngineOptions o = one_thread("");
  o.link = links[0];
  const OpenRank wait = [&](const RankOpening&) -> std::shared_ptr<Engine> {
    for (int i = 0; i < 1000 && !named; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    fail(Exit::io, "no rank was named");
  };
  CHECK_THROWS_WITH_AS(open_on_all({o}, wait), "thread 1 (rank 1) has not answered for 0.2 s",
                       Error);
  silent.join();
}

TEST_CASE("ranks: a slow link divides less") {
  CHECK(least_bytes_of(80e-6, 2) == 1'600'000);
  CHECK(least_bytes_of(80e-6, 4) < least_bytes_of(80e-6, 2));
  CHECK(least_bytes_of(80e-6, 1) == 0);
  const auto e = Engine::open(one_thread(""));
  const auto with = [&](double latency) {
    return forecast_fleet(e->model(), Format::f16, 64, 2, {1e9, latency}, std::nullopt);
  };
  const FleetForecast fast = with(1e-9), slow = with(1);
  CHECK(fast.gathers > slow.gathers);
  CHECK(fast.weights < slow.weights);
}

TEST_CASE("ranks: work is cut in proportion to speeds") {
  const auto cut = [](std::vector<double> speeds, int64_t n) {
    return RankShare(0, std::move(speeds), 0).cut(n);
  };
  CHECK(cut({1, 1, 1}, 3) == std::vector<int64_t>{0, 1, 2, 3});
  CHECK(cut({1, 1}, 3) == std::vector<int64_t>{0, 1, 3});
  CHECK(cut({3, 1}, 8) == std::vector<int64_t>{0, 6, 8});
  CHECK(cut({1, 1, 1}, 1) == std::vector<int64_t>{0, 0, 0, 1});
  CHECK(cut({1, 0, 1}, 4) == std::vector<int64_t>{0, 2, 2, 4});
}

}  // namespace
}  // namespace chaski::test
