// The memory that sessions of a server may take, and the pools that keep to it.
#include "engine/session/session_room.h"

#include "engine/pages/kv_cache.h"
#include "engine/pages/page_table.h"
#include "engine/passes/placement.h"
#include "engine/passes/random_model.h"
#include "engine/session/memory_need.h"
#include "engine/session/session.h"
#include "engine/shelf/model_file.h"
#include "models/architecture.h"
#include "tests/kit/engine_support.h"
#include "tests/kit/program.h"
#include "tests/kit/support.h"

namespace chaski::test {
namespace {

EngineOptions of_story(int context = 0) {
  EngineOptions o;
  o.model = kStory, o.device = "cpu", o.threads = 2, o.threads_fixed = true, o.context = context;
  return o;
}

// Of a context that is 64 times the model's own.
EngineOptions stretched() {
  EngineOptions o = of_story();
  o.rope_scaling = "linear:64";
  return o;
}

uint64_t bytes_of_pools(const Engine& engine) {
  uint64_t sum = 0;
  const KvCache& kv = engine.kv_cache();
  for (size_t i = 0; i < kv.pools.size(); ++i)
    sum += uint64_t(kv.pools[i].size()) * kv.states.pools[i].page_bytes;
  return sum;
}

TEST_CASE("session room: without --ctx, the context is what the weights leave memory for") {
  const ModelSource source = open_model(kStory, "").source;
  const EngineOptions o = stretched();
  ShapedModel shaped(source);
  const uint64_t weights = Footprint(*shaped, int((*shaped).n_layers), o.kv, 2).weights();
  const auto enough = session_room(source, true, o, uint64_t(8) << 30);
  REQUIRE(enough);
  const int own = enough->own;
  CHECK(enough->context == own);
  CHECK(own == 64 * 512);
  int before = own;
  uint64_t bytes_before = enough->bytes;
  for (const uint64_t free : {uint64_t(60) << 20, uint64_t(40) << 20, uint64_t(20) << 20}) {
    const uint64_t have = weights + free;
    CAPTURE(free);
    const auto room = session_room(source, true, o, have);
    REQUIRE(room);
    CHECK(room->context < before);
    CHECK(room->context >= kPage);
    CHECK((room->context & (room->context - 1)) % (room->context / 3) == 0);
    CHECK(room->bytes < bytes_before);
    CHECK(room->bytes + weights < have);
    before = room->context, bytes_before = room->bytes;
  }
  // A context that is asked for stays, and has its pages.
  const EngineOptions fixed = of_story(300);
  const auto asked = session_room(source, true, fixed, weights + (uint64_t(30) << 20));
  REQUIRE(asked);
  CHECK(asked->context == 300);
  // If nothing fits, a page is tried. The error of the engine says what is missing.
  const auto none = session_room(source, true, o, 1000);
  REQUIRE(none);
  CHECK(none->context == kPage);
  CHECK(!none->weights_stay);
}

// This model has larger weights, which are never read, and a context of 32768.
TEST_CASE("session room: more memory never gives a smaller context, and each one can be opened") {
  const ModelSource source = random_source({"smollm-135m", Format::q8});
  EngineOptions o = stretched();
  o.rope_scaling = "linear:16";
  ShapedModel shaped(source);
  EngineOptions quiet = o;
  const int layers = settle(*shaped, quiet, source.path).cpu_layers();
  const Footprint need(*shaped, layers, o.kv, 2);
  for (const bool mapped : {true, false}) {
    CAPTURE(mapped);
    int before = 0;
    bool streamed = false, stayed = false;
    for (uint64_t have = uint64_t(32) << 20; have <= uint64_t(640) << 20; have += have / 4) {
      CAPTURE(have);
      const auto room = session_room(source, mapped, o, have);
      REQUIRE(room);
      CHECK(room->context >= before);
      before = room->context;
      streamed |= !room->weights_stay, stayed |= room->weights_stay && room->context > kPage;
      CHECK(room->bytes >= need.states(room->context));
      if (room->context <= kPage) continue;
      // as expect_memory() has it, and with the weights if they are to stay
      const uint64_t states = need.states(room->context) + need.activations(room->context),
                     weights = room->weights_stay ? need.weights() : 0;
      CHECK(room->weights == need.weights());
      CHECK(weights + states <= promised(have));
      // A context that is longer than kLeastContext never moves the weights out of memory.
      if (!room->weights_stay) CHECK(room->context <= kLeastContext);
    }
    CHECK(before > kLeastContext);
    CHECK(stayed);
    CHECK(streamed == mapped);
  }
}

TEST_CASE("session room: the pools keep to the limit, but one session has its pages") {
  EngineOptions o = of_story();
  const auto whole = Engine::open(o);
  const uint64_t all = bytes_of_pools(*whole);
  o.most_state_bytes = all / 4;
  const auto limited = Engine::open(o);
  CHECK(bytes_of_pools(*limited) <= all / 4);
  CHECK(bytes_of_pools(*limited) > all / 5);
  CHECK(limited->most_idle_bytes() <= all / 4);
  o.most_state_bytes = 1;
  const auto least = Engine::open(o);
  const std::vector<TokenId> text(size_t(least->context_length()), 5);
  CHECK(bytes_of_pools(*least) < all / 8);
  const auto logits = [&](Engine& engine) {
    const std::span<const float> row = engine.session()->extend(text);
    return std::vector<float>(row.begin(), row.end());
  };
  CHECK(logits(*least) == logits(*whole));
}

TEST_CASE("session room: recurrent states take at most half of the limit") {
  EngineOptions o = of_story();
  o.model = golden("models/falcon_h1");
  struct States {
    uint64_t bytes = 0;
    int64_t pages = 0;
  };
  const auto recurrent = [](const Engine& engine) {
    States sum;
    const KvCache& kv = engine.kv_cache();
    for (size_t i = 0; i < kv.pools.size(); ++i)
      if (kv.states.pools[i].recurrent) {
        sum.pages += kv.pools[i].size();
        sum.bytes += uint64_t(kv.pools[i].size()) * kv.states.pools[i].page_bytes;
      }
    return sum;
  };
  const auto whole = Engine::open(o);
  const uint64_t all = bytes_of_pools(*whole), states = recurrent(*whole).bytes;
  REQUIRE(states > 0);
  for (const uint64_t limit : {all / 3, states}) {
    CAPTURE(limit);
    o.most_state_bytes = limit;
    const States limited = recurrent(*Engine::open(o));
    CHECK(limited.pages > 0);
    CHECK(limited.bytes <= limit / 2);
  }
  o.most_state_bytes = all / 3;
  CHECK(bytes_of_pools(*Engine::open(o)) <= all / 3);
  // Those of one session are not rounded to groups.
  o.most_state_bytes = 1;
  const auto least = Engine::open(o);
  const KvCache& kv = least->kv_cache();
  const std::vector<int64_t> one =
      pages_of_session(kv.states.pools, least->context_length(), least->batch_length());
  for (size_t i = 0; i < kv.pools.size(); ++i)
    if (kv.states.pools[i].recurrent) CHECK(kv.pools[i].size() == one[i]);
  const std::vector<TokenId> text(size_t(least->context_length()), 5);
  const auto logits = [&](Engine& engine) {
    const std::span<const float> row = engine.session()->extend(text);
    return std::vector<float>(row.begin(), row.end());
  };
  CHECK(logits(*least) == logits(*whole));
}

}  // namespace
}  // namespace chaski::test
