// The pages of a pool by number: free, kept and idle pages, and the memory that they take.
#include "engine/pages/kv_pool.h"

#include "ggml-like-tensor/base/error.h"
#include "tests/kit/support.h"

using namespace chaski;
using namespace chaski::test;

TEST_CASE(
    "kv pool: kept pages stay until the pool needs memory, and the least recently used is evicted "
    "first") {
  std::vector<int32_t> gone;
  KvPool pool(4, [](int32_t, int32_t) {});
  pool.on_gone([&](int32_t page) { gone.push_back(page); });
  const int32_t a = pool.take(), b = pool.take(), c = pool.take();
  pool.keep(a), pool.keep(b);
  pool.release(b), pool.release(a), pool.release(c);
  CHECK(pool.in_use() == 0);
  CHECK(pool.idle() == 2);
  CHECK(pool.spare() == 3);
  pool.share(b), pool.release(b);
  CHECK(pool.take() == c);  // which is free
  CHECK(pool.take() == 3);  // new memory
  CHECK(gone.empty());
  CHECK(pool.take() == a);
  CHECK(pool.take() == b);
  CHECK(gone == std::vector<int32_t>{a, b});
  CHECK(!pool.kept(a));
  CHECK(!pool.try_take());
  CHECK(error_of([&] { pool.take(); }).code == Exit::memory);
  CHECK(pool.in_use() == 4);

  // While there are idle pages, new memory is taken only up to a limit.
  KvPool wide(100, [](int32_t, int32_t) {});
  wide.keep_within(3);
  const int32_t first = wide.take();
  wide.keep(first), wide.release(first);
  CHECK(wide.take() == 1);
  CHECK(wide.take() == 2);
  CHECK(wide.take() == first);
  CHECK(wide.take() == 3);  // no page is idle
  wide.keep(1), wide.release(1);
  wide.keep_within(50);
  CHECK(wide.take() == 4);
  wide.keep_within_now();
  CHECK(wide.take() == 1);
}

TEST_CASE("kv pool: a pool counts the memory that pages would take") {
  constexpr size_t kBytes = 100;
  KvPool pool(1000, [](int32_t, int32_t) {}, {kBytes, true});
  CHECK(pool.new_bytes(0) == 0);
  CHECK(pool.new_bytes(1) == 16 * kBytes);  // a group
  CHECK(pool.new_bytes(17) == 32 * kBytes);
  const int32_t first = pool.take(), second = pool.take();
  CHECK(pool.new_bytes(14) == 0);
  CHECK(pool.new_bytes(15) == 16 * kBytes);
  CHECK(pool.bytes_to_hold(16) == 0);
  CHECK(pool.bytes_to_hold(17) == 16 * kBytes);
  pool.release(first);
  CHECK(pool.new_bytes(15) == 0);  // the free page first
  CHECK(pool.writable(second));
  pool.keep(second);
  CHECK(!pool.writable(second));
  pool.release(second);
  CHECK(pool.new_bytes(16) == 16 * kBytes);  // the idle page last
  pool.keep_within_now();
  CHECK(pool.new_bytes(2) == 0);
  CHECK(pool.new_bytes(17) == 16 * kBytes);

  KvPool full(4, [](int32_t, int32_t) {}, {kBytes, false});
  for (int i = 0; i < 4; ++i) full.take();
  full.keep(3), full.release(3);
  CHECK(full.new_bytes(1) == 0);  // it has no more pages

  const KvPool states(10, [](int32_t, int32_t) {}, {kBytes, false});
  CHECK(states.new_bytes(3) == 3 * kBytes);
}

TEST_CASE("kv pool: a write to a kept page goes to a copy, if there is a page for it") {
  std::vector<int32_t> copies, gone;
  KvPool pool(2, [&](int32_t from, int32_t to) { copies = {from, to}; });
  pool.on_gone([&](int32_t page) { gone.push_back(page); });
  const int32_t a = pool.take();
  pool.keep(a);
  const int32_t b = pool.own(a);
  CHECK(b != a);
  CHECK(copies == std::vector<int32_t>{a, b});
  CHECK(pool.idle() == 1);
  CHECK(pool.own(b) == b);
  pool.share(a);
  CHECK(pool.own(a) == a);
  CHECK(gone == std::vector<int32_t>{a});
  CHECK(!pool.kept(a));
  pool.share(a);
  CHECK(error_of([&] { pool.own(a); }).code == Exit::memory);
  pool.release(a);
  // An idle page is evicted for the copy.
  pool.keep(a), pool.release(a), pool.keep(b);
  CHECK(pool.own(b) == a);
  CHECK(gone == std::vector<int32_t>{a, a});
  CHECK(pool.kept(b));
}
