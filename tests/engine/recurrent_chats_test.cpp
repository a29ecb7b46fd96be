// Chats with models that have recurrent states: what a turn reads again, and that undo, branches
// and files change no bit.
#include <filesystem>
#include <random>

#include "engine/machine/bounded_folder.h"
#include "engine/pages/kv_cache.h"
#include "engine/pages/page_table.h"
#include "engine/requests/beam.h"
#include "engine/requests/disk_cache.h"
#include "engine/session/kept_pages.h"
#include "models/import/import.h"
#include "tests/kit/engine_support.h"
#include "tests/kit/import_support.h"
#include "tests/kit/scratch_model.h"
#include "tests/kit/support.h"

namespace chaski::test {
namespace {

std::shared_ptr<Engine> open_recurrent(const std::string& model, int sessions = 2) {
  EngineOptions o;
  o.model = model, o.device = "cpu", o.threads = 2, o.sessions = sessions, o.context = 4096;
  return Engine::open(o);
}

// The logits after a text that no session has read.
std::vector<float> cold_logits(Engine& cold, std::span<const TokenId> text) {
  const auto session = cold.session();
  const auto row = session->extend(text);
  return {row.begin(), row.end()};
}

std::shared_ptr<Engine> open_cold(const std::string& model) {
  auto engine = open_recurrent(model);
  engine->kv_cache().prefixes.reset();
  return engine;
}

// The tiny models of every family with a recurrent state: those with logits of many lengths.
std::vector<std::string> recurrent_models() {
  std::vector<std::string> models;
  for (const std::string& model : golden_models()) {
    const std::filesystem::path path = model;
    const auto folder = path.extension() == ".gguf" ? path.parent_path() : path;
    if (std::filesystem::exists(folder / "lengths.json")) models.push_back(model);
  }
  return models;
}

KvPool& states_pool(Engine& e) {
  const auto& kinds = e.kv_cache().states.pools;
  const auto at = std::ranges::find_if(kinds, &StateLayout::Pool::recurrent);
  return e.kv_cache().pools[size_t(at - kinds.begin())];
}

TEST_CASE(
    "recurrent chats: a text goes on exactly where another session ended, and nothing is copied") {
  const TempFolder folder;
  const std::string model = write_scratch_model(folder / "scratch.quipu");
  const auto cold = open_cold(model), warm = open_recurrent(model);
  const auto t = tokens_for(*cold, 1400);
  for (const int end : {777, 784, 15, 16, 1099}) {
    CAPTURE(end);
    const std::span<const TokenId> said = std::span(t).first(size_t(end));
    {
      const auto session = warm->session();
      session->extend(session->reuse(said));
      const int64_t copies = states_pool(*warm).copies();
      session->reuse(std::vector<TokenId>(4, TokenId(end % 50)));  // another text
      CHECK(states_pool(*warm).copies() == copies);
    }
    for (const int more : {1, 40, 200}) {
      const std::span<const TokenId> next = std::span(t).first(size_t(end + more));
      const auto session = warm->session();
      const auto rest = session->reuse(next);
      CHECK(session->position() >= end);
      CHECK(same(cold_logits(*cold, next), session->extend(rest)));
    }
    // What follows differs from text to text.
    std::vector<TokenId> other(said.begin(), said.end());
    for (int i = 0; i < 30; ++i) other.push_back(TokenId(i * 3 % 50));
    const auto session = warm->session();
    const auto rest = session->reuse(other);
    CHECK(session->position() == end);
    CHECK(same(cold_logits(*cold, other), session->extend(rest)));
  }
}

TEST_CASE("recurrent chats: every family rewinds and forks with the bits of a cold start") {
  constexpr int kTokens = 300;  // more than kStateStep
  const std::vector<std::string> models = recurrent_models();
  CHECK(models.size() >= 26);
  for (const std::string& model : models) {
    CAPTURE(model);
    const auto cold = open_cold(model), warm = open_recurrent(model);
    const auto t = tokens_for(*cold, kTokens);
    const auto whole = cold->session();
    const auto rows = whole->extend(t, kTokens);
    const std::vector<float> want(rows.begin(), rows.end());
    const size_t vocab = want.size() / kTokens;
    // Reads the tokens after the session's position. All their logits are those of a cold start.
    const auto goes_on = [&](Session& session) {
      const auto at = size_t(session.position());
      return same(std::span(want).subspan(at * vocab),
                  session.extend(std::span(t).subspan(at), kTokens - int(at)));
    };
    const auto session = warm->session();
    CHECK(goes_on(*session));
    for (const int position : {299, 290, 257, 256, 255, 130, 17, 16, 15, 1, 0}) {
      CAPTURE(position);
      const int reached = session->rewind(position);
      CHECK(reached <= position);
      CHECK(reached > position - kStateStep);
      CHECK(goes_on(*session));
    }
    // Tokens that were rewound leave nothing in the state, and forks do not affect each other.
    session->rewind(280);
    std::vector<TokenId> other(t.begin(), t.begin() + session->position());
    const auto leave = [&](Session& leaver, TokenId token) {
      other.push_back(token);
      return same(cold_logits(*cold, other), leaver.decode(token));
    };
    auto fork = session->fork();
    for (const TokenId token : {5, 9, 5}) CHECK(leave(*session, token));
    CHECK(goes_on(*fork));
    const auto second = fork->fork();
    fork->rewind(kTokens - 4);
    CHECK(goes_on(*fork));
    CHECK(leave(*session, 7));
    fork.reset();
    CHECK(second->rewind(100) <= 100);
    CHECK(goes_on(*second));
    CHECK(leave(*session, 11));
    // The last two of four draft tokens are rejected.
    const int at = session->position();
    const TokenId drafts[] = {3, 4, 8, 6};
    session->extend(drafts, 4);
    CHECK(session->rewind(at + 2) <= at + 2);
    other.insert(other.end(), {3, 4, 12});
    const auto row = session->extend(std::span(other).subspan(size_t(session->position())));
    CHECK(same(cold_logits(*cold, other), row));
  }
}

TEST_CASE("recurrent chats: a long answer does not drop the state at the end of its prompt") {
  const std::string model = golden("models/mamba2");
  const auto cold = open_cold(model), warm = open_recurrent(model, 1);
  const auto t = tokens_for(*cold, 600);
  const auto session = warm->session();
  session->extend(session->reuse(t));
  const int64_t most = states_pool(*warm).within();
  for (int i = 0; i < int(most + 2) * kStateStep; ++i) session->decode(t[size_t(i) % t.size()]);
  std::vector<TokenId> next(t.begin(), t.end());
  next.push_back(5);
  const auto rest = session->reuse(next);
  CHECK(session->position() == (int(t.size()) - 1) / kPage * kPage);
  CHECK(same(cold_logits(*cold, next), session->extend(rest)));
}

TEST_CASE("recurrent chats: beams and forks that end do not drop the state of their prompt") {
  const TempFolder folder;
  const std::string model = write_with_words(folder / "words.quipu", golden("models/mamba2"), "w");
  const auto cold = open_cold(model), warm = open_recurrent(model);
  const auto t = tokens_for(*cold, 600);
  KvPool& pool = states_pool(*warm);
  const auto session = warm->session();
  CHECK(!beam_search(*session, std::span(t).first(100), drawn(0, 0, 10), {4, 1}).empty());
  CHECK(pool.idle() == 1);  // the state at 96
  session->extend(session->reuse(t));
  for (int64_t i = 0; i < pool.within() + 2; ++i) session->fork()->decode(TokenId(i % 50));
  // A fork that reads nothing enters nothing, so its state is not copied either.
  const int64_t copies = pool.copies();
  session->fork();
  session->decode(1);
  CHECK(pool.copies() == copies);
  auto next = t;
  next.resize(620, 60);
  const auto other = warm->session();
  const auto rest = other->reuse(next);
  CHECK(other->position() == 592);
  CHECK(same(cold_logits(*cold, next), other->extend(rest)));
}

TEST_CASE("recurrent chats: rejected drafts do not add up the tokens that are read again") {
  const TempFolder folder;
  const std::string model = write_with_words(folder / "words.quipu", golden("models/mamba2"), "w");
  const auto engine = open_recurrent(model);
  const auto prompt = tokens_for(*engine, 40);
  GenerateOptions o = drawn(0, 1, 60);
  const auto plain = generate(*engine->session(), prompt, o, kUnheard);
  // Proposes two right tokens and a wrong one.
  struct Wrong : Drafter {
    std::vector<TokenId> text;
    Session* session = nullptr;
    size_t most = 0, drafts = 0;
    Draft propose(std::span<const TokenId> history, const Draft::Shape&) override {
      most = std::max(most, history.size() - size_t(session->position())), ++drafts;
      std::vector<TokenId> tokens;
      for (size_t at = history.size(); at < text.size() && tokens.size() < 2; ++at)
        tokens.push_back(text[at]);
      if (const size_t at = history.size() + 2; at < text.size()) tokens.push_back(text[at] ^ 1);
      return Draft::chain(tokens);
    }
  } drafter;
  drafter.text = prompt;
  drafter.text.insert(drafter.text.end(), plain.tokens.begin(), plain.tokens.end());
  const auto session = engine->session();
  drafter.session = session.get();
  o.drafter = &drafter, o.draft_length = 3;
  const auto drafted = generate(*session, prompt, o, kUnheard);
  CHECK(drafted.tokens == plain.tokens);
  CHECK(drafter.drafts > 10);
  CHECK(drafted.accepted >= 2 * int(drafter.drafts) - 2);
  CHECK(drafter.most <= 5);
}

TEST_CASE("recurrent chats: a restored session also continues at the end of its last prompt") {
  const TempFolder folder;
  for (const std::string& model : recurrent_models()) {
    CAPTURE(model);
    const auto cold = open_cold(model), first = open_recurrent(model),
               second = open_recurrent(model);
    const auto t = tokens_for(*cold, 300);
    const auto session = first->session();
    session->extend(session->reuse(std::span(t).first(250)));
    for (int i = 0; i < 30; ++i) session->decode(TokenId(i));
    session->save(folder / "chat");
    // The template leaves the 30 tokens away.
    const auto restored = second->session();
    restored->restore(folder / "chat");
    CHECK(restored->position() == 280);
    const auto rest = restored->reuse(t);
    CHECK(restored->position() == 240);
    CHECK(same(cold_logits(*cold, t), restored->extend(rest)));
    {  // The text that a session leaves for a file is known.
      const std::vector<TokenId> said(100, 7);
      auto next = said;
      next.resize(120, 9);
      const auto leaves = second->session(), goes_on = second->session();
      leaves->extend(said);
      leaves->restore(folder / "chat");
      goes_on->reuse(next);
      CHECK(goes_on->position() == 100);
    }
    {  // Without room for the earlier state, the file is read all the same.
      const auto full = open_recurrent(model);
      KvPool& pool = states_pool(*full);
      while (pool.size() - pool.in_use() > 1) pool.take();
      const auto one = full->session();
      one->restore(folder / "chat");
      CHECK(one->position() == 280);
      auto text = one->tokens();
      text.push_back(5);
      CHECK(same(cold_logits(*cold, text), one->decode(5)));
    }
    std::string bytes = read_file(folder / "chat");
    std::string earlier = bytes;
    earlier[7] = 3;  // the version
    write_file(folder / "earlier", earlier);
    CHECK(contains(error_of([&] { restored->restore(folder / "earlier"); }).what(),
                   "an earlier chaski stored its recurrent states in another order"));
    bytes.pop_back();
    write_file(folder / "cut", bytes);
    CHECK_THROWS_AS(restored->restore(folder / "cut"), Error);
    CHECK(restored->position() == 0);
  }
}

TEST_CASE("recurrent chats: a server's folder keeps the states at the end of a prefix") {
  for (const std::string& model : recurrent_models()) {
    CAPTURE(model);
    const auto cold = open_cold(model), from = open_recurrent(model), to = open_recurrent(model);
    REQUIRE(has_kept_pages(*from));
    const auto t = tokens_for(*cold, 400);
    from->session()->extend(std::span(t).first(390));
    const int last = last_state_page(*from, t, 25);
    CHECK(last == 384 / kPage - 1);
    const std::span<const TokenId> kept = std::span(t).first(384);
    const std::vector<std::string> pages = copy_pages(*from, kept, 0, last + 1);
    REQUIRE(int(pages.size()) == last + 1);
    std::vector<std::span<const std::byte>> views;
    for (const std::string& page : pages) views.push_back(std::as_bytes(std::span(page)));
    CHECK(first_missing_page(*to, t, last + 1) == 0);
    CHECK(put_pages(*to, kept, 0, views, "x") == last + 1);
    CHECK(first_missing_page(*to, t, last + 1) == last + 1);
    for (const KvPool& pool : to->kv_cache().pools) CHECK(pool.in_use() == 0);
    CHECK(states_pool(*to).idle() == 1);
    const auto session = to->session();
    const auto rest = session->reuse(t);
    CHECK(session->position() == 384);
    CHECK(same(cold_logits(*cold, t), session->extend(rest)));
    // Without the state its page is left out: written alone it would never get it.
    KvPool& pool = states_pool(*from);
    std::vector<int32_t> taken;
    while (pool.idle() > 0) taken.push_back(pool.take());
    const bool only_states = from->kv_cache().pools.size() == 1;
    CHECK(int(copy_pages(*from, kept, 0, last + 1).size()) == (only_states ? 0 : last));
    for (const int32_t page : taken) pool.release(page);
    from->session()->extend(std::span(t).first(390));
    CHECK(int(copy_pages(*from, kept, 0, last + 1).size()) == last + 1);
    // Pages whose last one has no states hold no links.
    const auto other = open_recurrent(model);
    if (views.size() > 1) put_pages(*other, kept, 0, std::span(views).first(views.size() - 1), "x");
    for (const KvPool& pool : other->kv_cache().pools) CHECK(pool.in_use() == 0);
    if (other->kv_cache().pools.size() == 1) CHECK(other->kv_cache().prefixes->size() == 0);
  }
}

TEST_CASE("recurrent chats: a growing prompt is written once, and again when the server ends") {
  const TempFolder folder;
  const std::string model = write_with_words(folder / "words.quipu", golden("models/mamba2"), "w");
  const auto bound =
      std::make_shared<BoundedFolder>(folder.path, DiskCache::endings(), uint64_t{1} << 30);
  const DiskCache::Note note = [](const std::string& line) { FAIL_CHECK(line); };
  GenerateOptions o = drawn(0.8, 1, 2);
  o.random_seed = true;  // the answer is not stored
  const auto written = [&] {
    int n = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path))
      n += entry.path().extension() == PrefixFiles::kEnding;
    return n;
  };
  const auto first = open_recurrent(model, 8);  // so that no state is dropped
  const auto t = tokens_for(*first, 556);
  {
    Inbox inbox(std::make_shared<LoadedModel>(first));
    DiskCache cache(bound, folder.path, inbox, note);
    for (const size_t n : {150, 230, 310, 390, 470, 556}) {
      CAPTURE(n);
      const auto prompt = std::span(t).first(n);
      inbox.run([&](Engine& engine) { engine.session()->extend(prompt); });
      CHECK(cache.generate(prompt, o, kUnheard).cached_tokens == int(n - 1) / kPage * kPage);
    }
  }
  CHECK(written() == 2);  // up to 144, and up to 544
  Inbox inbox(std::make_shared<LoadedModel>(open_recurrent(model)));
  DiskCache cache(bound, folder.path, inbox, note);
  // A prompt that leaves the first part before its state is read again, and is no hit.
  std::vector<TokenId> other(t.begin(), t.begin() + 100);
  other.resize(200, 60);
  CHECK(cache.generate(other, o, kUnheard).cached_tokens == 0);
  CHECK(cache.facts().prefix_hits == 0);
  CHECK(cache.facts().prefix_misses == 1);
  CHECK(cache.generate(t, o, kUnheard).cached_tokens == 544);
  CHECK(cache.facts().prefix_hits == 1);
  CHECK(cache.facts().prefix_tokens == 544);
}

// Turns, undo, branches, thoughts that the template leaves away, and restored files, in any order.
TEST_CASE(
    "recurrent chats: 100 chats with undo, branches and files have the bits of a cold start") {
  const TempFolder folder;
  std::mt19937 random(3);
  const auto below = [&](int n) { return int(random() % unsigned(n)); };
  int64_t compared = 0, differ = 0, read = 0, whole = 0;
  std::vector<std::string> models = recurrent_models();
  models.push_back(write_scratch_model(folder / "scratch.quipu"));
  for (const std::string& model : models) {
    CAPTURE(model);
    const auto cold = open_cold(model), warm = open_recurrent(model);
    const int most = std::min(warm->context_length(), 400) - 100;
    for (int chat = 0; chat < 4; ++chat) {
      auto session = warm->session();
      std::vector<TokenId> text(size_t(20 + below(3) * 30), TokenId(chat % 3));  // a system prompt
      std::vector<size_t> turns;
      for (int step = 0; step < 6; ++step) {
        const int what = below(6);
        if (what == 0 && !turns.empty()) {  // undo
          text.resize(turns.back());
          turns.pop_back();
        } else if (what == 1) {  // a branch goes on, the first session ends
          session = session->fork();
        } else if (what == 2 && session->position() > 0) {
          session->save(folder / "chat");
          session = warm->session();
          session->restore(folder / "chat");
        } else if (what == 3 && !turns.empty()) {  // a session of its own, as in a server
          session = warm->session();
        }
        if (int(text.size()) > most) break;
        turns.push_back(text.size());
        for (int i = 0, n = 1 + below(60); i < n; ++i)
          text.push_back(TokenId(below(warm->vocab_size())));
        const auto compare = [&](std::span<const float> row) {
          ++compared;
          differ += !same(cold_logits(*cold, text), row);
        };
        const auto rest = session->reuse(text);
        read += int64_t(rest.size()), whole += int64_t(text.size());
        compare(session->extend(rest));
        const size_t asked = text.size();
        for (int i = 0, n = below(30); i < n && int(text.size()) < most; ++i) {
          text.push_back(TokenId(below(warm->vocab_size())));
          const auto row = session->decode(text.back());
          if (i + 1 == n) compare(row);
        }
        if (below(4) == 0) text.resize(asked + (text.size() - asked) / 2);  // thoughts left away
      }
    }
  }
  CHECK(compared > 700);
  CHECK(differ == 0);
  MESSAGE("compared ", compared, ", tokens read ", read, " of ", whole);
  CHECK(read * 2 < whole);
}

}  // namespace
}  // namespace chaski::test
