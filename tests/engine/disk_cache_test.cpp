// Pages of the prefix index as bytes, and the files of a server's cache.
#include "engine/requests/disk_cache.h"

#include <filesystem>

#include "engine/grammar/regex.h"
#include "engine/pages/kv_cache.h"
#include "engine/requests/cached_models.h"
#include "engine/session/kept_pages.h"
#include "tests/kit/engine_support.h"
#include "tests/kit/program.h"
#include "tests/kit/support.h"

namespace chaski::test {
namespace {

std::shared_ptr<Engine> open_copy(const std::string& model, const char* kv = "f16") {
  EngineOptions o;
  o.model = model, o.device = "cpu", o.threads = 1;
  for (const KvType& type : kKvTypes)
    if (std::string_view(type.name) == kv) o.kv = type.format;
  return Engine::open(o);
}

std::vector<TokenId> tokens_of(const Engine& e, int n) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < n; ++i) tokens.push_back(TokenId(3 + (i * 7 + i / 5) % (e.vocab_size() - 3)));
  return tokens;
}

std::vector<float> logits_after(Session& session, std::span<const TokenId> tokens) {
  const std::span<const float> row = session.extend(tokens);
  return {row.begin(), row.end()};
}

TEST_CASE("disk cache: pages of one engine give another one the same logits, for each format") {
  for (const std::string model : {"", "models/mistral_window", "models/gemma3"})
    for (const char* kv : {"f16", "q8"}) {
      const std::string path = model.empty() ? "" : golden(model);
      const auto from = open_copy(path, kv), to = open_copy(path, kv);
      REQUIRE(has_kept_pages(*from));
      const std::vector<TokenId> text = tokens_of(*from, 100);
      const auto expected = logits_after(*from->session(), text);
      CHECK(first_missing_page(*from, text, 6) == 6);
      CHECK(first_missing_page(*to, text, 6) == 0);
      const std::vector<std::string> first = copy_pages(*from, text, 0, 4),
                                     rest = copy_pages(*from, text, 4, 6);
      REQUIRE(first.size() == 4);
      REQUIRE(rest.size() == 2);
      const auto views = [](const std::vector<std::string>& pages) {
        std::vector<std::span<const std::byte>> all;
        for (const std::string& page : pages) all.push_back(std::as_bytes(std::span(page)));
        return all;
      };
      CHECK(put_pages(*to, text, 4, views(rest), "x") == 0);  // the pages before are missing
      CHECK(put_pages(*to, text, 0, views(first), "x") == 4);
      CHECK(put_pages(*to, text, 0, views(first), "x") == 4);
      CHECK(put_pages(*to, text, 4, views(rest), "x") == 2);
      CHECK(first_missing_page(*to, text, 6) == 6);
      for (const KvPool& pool : to->kv_cache().pools) {
        CHECK(pool.in_use() == 0);
        CHECK(pool.idle() == 6);
      }
      const auto session = to->session();
      const std::span<const TokenId> left = session->reuse(text);
      CHECK(session->position() == 96);
      CHECK(logits_after(*session, left) == expected);
      std::string cut = first[0];
      cut.pop_back();
      CHECK_THROWS_AS(put_pages(*open_copy(path, kv), text, 0, views({cut}), "x"), Error);
      CHECK_THROWS_AS(put_pages(*open_copy(path, kv), text, 0, views({first[0] + "x"}), "x"),
                      Error);
    }
}

TEST_CASE("disk cache: a pool without free pages takes what fits") {
  const auto from = open_copy(""), to = open_copy("");
  const std::vector<TokenId> text = tokens_of(*from, 100);
  logits_after(*from->session(), text);
  const std::vector<std::string> pages = copy_pages(*from, text, 0, 6);
  std::vector<std::span<const std::byte>> views;
  for (const std::string& page : pages) views.push_back(std::as_bytes(std::span(page)));
  KvPool& pool = to->kv_cache().pools[0];
  while (pool.size() - pool.in_use() > 3) pool.take();
  CHECK(put_pages(*to, text, 0, views, "x") == 3);
  CHECK(pool.idle() == 3);
  CHECK(first_missing_page(*to, text, 6) == 3);
}

TEST_CASE("disk cache: files cover a text without gaps, and no text takes those of another") {
  const TempFolder folder;
  std::vector<TokenId> text, other;
  for (int i = 0; i < 160; ++i) text.push_back(i), other.push_back(i < 80 ? i : i + 1);
  const std::vector<std::string> four(4, "page"), six(6, "page");
  {
    PrefixFiles files(folder.path);
    files.write(std::span(text).first(64), four);  // pages [0, 4)
    files.write(text, six);                        // [4, 10)
  }
  PrefixFiles files(folder.path);
  const auto ends = [&](std::span<const TokenId> of) {
    std::vector<int> all;
    for (const PrefixFiles::Part& part : files.find(of)) all.push_back(part.end);
    return all;
  };
  CHECK(ends(text) == std::vector{4, 10});
  CHECK(ends(std::span(text).first(90)) == std::vector{4, 5});
  CHECK(ends(other) == std::vector{4, 5});
  CHECK(ends(std::span(text).subspan(16)).empty());
  const auto parts = files.find(other);
  CHECK(PrefixFiles::read(parts[1], other).pages.size() == 1);
  CHECK_THROWS_AS(PrefixFiles::read(files.find(text)[1], other), Error);
  const std::string removed = parts[0].path;
  std::filesystem::remove(removed);
  CHECK(ends(text).empty());  // nothing without its beginning
  files.write(std::span(text).first(64), four);
  CHECK(have(removed));
  CHECK(ends(text) == std::vector{4, 10});
  CHECK(files.forget_missing() == 0);
  std::filesystem::remove(parts[1].path);
  CHECK(files.forget_missing() == 1);
  CHECK(ends(text) == std::vector{4});
  files.forget(removed);
  CHECK(ends(text).empty());
}

TEST_CASE("disk cache: files that are gone or whose tokens are damaged are not found") {
  const TempFolder folder;
  std::vector<TokenId> text;
  for (int i = 0; i < 96; ++i) text.push_back(i);
  const std::vector<std::string> two(2, "page");
  for (const size_t end : {32, 64, 96})
    PrefixFiles(folder.path).write(std::span(text).first(end), two);
  PrefixFiles files(folder.path);
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path))
    paths.push_back(entry.path().string());
  std::ranges::sort(paths);
  REQUIRE(paths.size() == 3);
  std::filesystem::remove(paths[1]);
  CHECK(files.find(text).size() == 1);
  CHECK(files.find(text)[0].path == paths[0]);
  write_file(paths[2], read_file(paths[2]).substr(0, 100));  // in its tokens
  std::vector<std::string> skipped;
  const PrefixFiles again(folder.path, [&](const std::string& path, const Error& error) {
    CHECK(error.code == Exit::bad_file);
    skipped.push_back(path);
  });
  CHECK(skipped == std::vector{paths[2]});
}

TEST_CASE("disk cache: the least recently used files make room, and no other file is touched") {
  const TempFolder folder;
  const std::string own = folder / "model";
  std::filesystem::create_directory(own);
  const auto file = [&](const std::string& name, int age) {
    const std::string path = write_file(own + "/" + name, std::string(100, 'x'));
    std::filesystem::last_write_time(
        path, std::filesystem::file_time_type::clock::now() - std::chrono::hours(age));
    return path;
  };
  const std::string old = file("a.answer", 3), used = file("b.answer", 4),
                    late = file("2.prefix", 2), early = file("1.prefix", 2),
                    foreign = file("c.txt", 9);
  std::filesystem::last_write_time(late, std::filesystem::last_write_time(early));
  BoundedFolder bound(folder.path, DiskCache::endings(), 450);
  CHECK(bound.facts().bytes == 400);
  mark_used(used);
  CHECK(!bound.make_room(500));
  CHECK(bound.make_room(150));
  CHECK(!have(old));
  CHECK(bound.make_room(250));
  CHECK(!have(late));
  CHECK(have(early));
  CHECK(have(used));
  CHECK(have(foreign));
  CHECK(bound.facts().removed == 2);
  bound.remove(early);
  CHECK(bound.facts().bytes == 100);
}

TEST_CASE("disk cache: emptying a folder removes files of its caches and no others") {
  const TempFolder folder;
  const auto file = [&](const std::string& in, const std::string& name) {
    std::filesystem::create_directories(folder / in);
    return write_file(folder / (in + "/" + name), "x");
  };
  const std::string cache(DiskCache::kFolderDigits, 'a'), empty(DiskCache::kFolderDigits, 'b');
  const std::string answer = file(cache, "a.answer"), prefix = file(cache, "1.prefix"),
                    killed = file(cache, ".a.answer.1.tmp"), foreign = file(cache, "c.txt"),
                    other = file("letters", "to a friend.answer"),
                    deep = file(cache + "/sub", "b.prefix");
  std::filesystem::create_directory(folder / empty);
  for (const CachedModel& model : cached_models(folder.path)) {
    CHECK(model.answers == (model.folder.ends_with(cache) ? 1u : 0u));
    // A folder without files has the time of the folder.
    CHECK(model.used > std::chrono::system_clock::from_time_t(0));
  }
  drop_cached_models(folder.path);
  for (const std::string& path : {answer, prefix, killed, folder / empty}) CHECK(!have(path));
  for (const std::string& path : {foreign, other, deep}) CHECK(have(path));
}

TEST_CASE("disk cache: a folder that was emptied gets the name of its model again") {
  const TempFolder folder;
  const auto bound =
      std::make_shared<BoundedFolder>(folder.path, DiskCache::endings(), uint64_t{1} << 20);
  const std::string model = write_file(folder / "story.quipu", read_file(kStory));
  {
    Inbox inbox(std::make_shared<LoadedModel>(open_copy(model)));
    DiskCache cache(bound, folder / "cache", inbox, [](const std::string& note) { FAIL(note); });
    drop_cached_models(folder / "cache");
    CHECK(cached_models(folder / "cache").empty());
    cache.generate(tokens_of(*inbox.model()->engine(), 10), drawn(0, 1, 2), kUnheard);
  }
  const std::vector<CachedModel> all = cached_models(folder / "cache");
  REQUIRE(all.size() == 1);
  CHECK(all[0].answers == 1);
  CHECK(all[0].model == std::filesystem::canonical(model).string());
}

TEST_CASE("disk cache: only a folder of this user is used, and others cannot read it") {
  const TempFolder tmp;
  const auto mode = [](const std::string& path) {
    return static_cast<unsigned>(std::filesystem::status(path).permissions());
  };
  make_private_folder(tmp / "a");
  CHECK(mode(tmp / "a") == 0700u);
  std::filesystem::permissions(tmp / "a", std::filesystem::perms::all);
  make_private_folder(tmp / "a");
  CHECK(mode(tmp / "a") == 0700u);
  std::filesystem::create_directory_symlink(tmp / "a", tmp / "link");
  write_file(tmp / "file", "x");
  for (const char* name : {"link", "file", "none/b"})
    CHECK(error_of([&] { make_private_folder(tmp / name); }).code == Exit::io);
}

TEST_CASE("disk cache: a stored answer has the events of the first one") {
  const TempFolder folder;
  const auto rules = parse_regex({"--regex", "[a-z ]{4,12}\\."});
  const auto bound =
      std::make_shared<BoundedFolder>(folder.path, DiskCache::endings(), uint64_t{1} << 20);
  std::vector<std::string> notes;
  for (int round = 0; round < 2; ++round) {
    Inbox inbox(std::make_shared<LoadedModel>(open_copy("")));
    DiskCache cache(bound, folder.path, inbox,
                    [&](const std::string& note) { notes.push_back(note); });
    for (int i = 0; i < 6; ++i) {
      GenerateOptions o = drawn(i == 0 ? 0 : 0.8, uint64_t(i), 24);
      if (i == 2) o.stop = {"ball", "dog", "a"};
      if (i == 3) o.rules = rules, o.ignore_end = false;
      o.random_seed = i == 4 || i == 0;
      if (i == 5) o.scored = 1;
      const std::vector<TokenId> prompt = prompt_for(*inbox.model()->engine(), i);
      std::vector<std::string> events[2];
      GenerateResult results[2];
      for (int side = 0; side < 2; ++side) {
        o.on_token = [&](TokenId token, const LogProbabilities*) {
          events[side].push_back(std::to_string(token));
        };
        const Sink sink = [&](std::string_view text) { events[side].emplace_back(text); };
        results[side] =
            side == 0 ? generate(inbox, prompt, o, sink) : cache.generate(prompt, o, sink);
      }
      CHECK(events[0] == events[1]);
      CHECK(results[0].text == results[1].text);
      CHECK(results[0].finish == results[1].finish);
      CHECK(results[0].prompt_tokens == results[1].prompt_tokens);
      CHECK(results[1].cached == (round == 1 && i < 4));
    }
    CHECK(cache.facts().answer_hits == (round == 0 ? 0 : 4));
    CHECK(cache.facts().answer_misses == (round == 0 ? 4 : 0));
  }
  CHECK(notes.empty());
}

TEST_CASE("disk cache: a prefix whose reading was interrupted is read by the next request") {
  const TempFolder folder;
  const auto bound =
      std::make_shared<BoundedFolder>(folder.path, DiskCache::endings(), uint64_t{1} << 30);
  const auto engine = open_copy("");
  const std::vector<TokenId> prompt = tokens_of(*engine, 150),
                             too_long = tokens_of(*engine, engine->context_length() + 1);
  GenerateOptions o = drawn(0.8, 1, 2);
  o.random_seed = true;  // the answer is not stored
  const DiskCache::Note note = [](const std::string& line) { FAIL_CHECK(line); };
  {
    Inbox inbox(std::make_shared<LoadedModel>(engine));
    DiskCache cache(bound, folder.path, inbox, note);
    for (int i = 0; i < 2; ++i) cache.generate(prompt, o, kUnheard);
  }
  CHECK(bound->facts().bytes > 0);
  Inbox inbox(std::make_shared<LoadedModel>(open_copy("")));
  DiskCache cache(bound, folder.path, inbox, note);
  std::atomic<bool> interrupt = true;
  o.interrupt = &interrupt;
  // It has the same prefix, and ends before any token of it is read.
  CHECK_THROWS_AS(cache.generate(too_long, o, kUnheard), Error);
  CHECK(cache.facts().prefix_hits == 0);
  interrupt = false;
  cache.generate(prompt, o, kUnheard);
  CHECK(cache.facts().prefix_hits == 1);
  CHECK(cache.facts().prefix_tokens == 144);
}

}  // namespace
}  // namespace chaski::test
