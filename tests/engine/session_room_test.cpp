// The memory that sessions of a server may take, and the pools that keep to it.
#include "engine/session/session_room.h"

#include "engine/pages/kv_cache.h"
#include "engine/session/memory_need.h"
#include "engine/session/session.h"
#include "engine/shelf/model_file.h"
#include "models/architecture.h"
#include "tests/kit/engine_support.h"
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
  const auto enough = session_room(source, o, uint64_t(8) << 30);
  REQUIRE(enough);
  const int own = enough->own;
  CHECK(enough->context == own);
  CHECK(own == 64 * 512);
  int before = own;
  uint64_t bytes_before = enough->bytes;
  for (const uint64_t free : {uint64_t(60) << 20, uint64_t(40) << 20, uint64_t(20) << 20}) {
    const uint64_t have = weights + free;
    CAPTURE(free);
    const auto room = session_room(source, o, have);
    REQUIRE(room);
    CHECK(room->context < before);
    CHECK(room->context >= kLeastInMemory);
    CHECK((room->context & (room->context - 1)) % (room->context / 3) == 0);
    CHECK(room->bytes < bytes_before);
    CHECK(room->bytes + weights < have);
    before = room->context, bytes_before = room->bytes;
  }
  // A context that is asked for stays, and has its pages.
  const EngineOptions fixed = of_story(300);
  const auto asked = session_room(source, fixed, weights + (uint64_t(30) << 20));
  REQUIRE(asked);
  CHECK(asked->context == 300);
  // If little memory is left, the weights are read from the file, and the context fits into half
  // of the memory.
  const auto streamed = session_room(source, o, weights + (uint64_t(17) << 20));
  REQUIRE(streamed);
  CHECK(streamed->context >= kPage);
  CHECK(streamed->context <= kDefaultPositions);
  CHECK(!session_room(source, o, 1000));
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
  const auto whole = Engine::open(o);
  const auto recurrent = [](const Engine& engine) {
    int64_t pages = 0;
    const KvCache& kv = engine.kv_cache();
    for (size_t i = 0; i < kv.pools.size(); ++i)
      if (kv.states.pools[i].recurrent) pages += kv.pools[i].size();
    return pages;
  };
  o.most_state_bytes = bytes_of_pools(*whole) / 3;
  const auto limited = Engine::open(o);
  CHECK(bytes_of_pools(*limited) <= o.most_state_bytes);
  CHECK(recurrent(*limited) > 0);
  CHECK(recurrent(*limited) <= recurrent(*whole));
}

}  // namespace
}  // namespace chaski::test
