#include "engine/requests/reading_aside.h"

#include <algorithm>
#include <memory>

#include "engine/pages/kv_cache.h"
#include "engine/pages/page_table.h"
#include "engine/session/session.h"

namespace chaski {

namespace {

// What one call of read_aside() has read so far. Its sessions begin and end in the thread of the
// passes.
class ReadingAside {
 public:
  ReadingAside(const TextsAside& texts, const std::atomic<bool>& gone,
               const std::function<void(const PartAside& part)>& take)
      : o_(texts), gone_(gone), take_(take) {}

  bool is_over() const { return next_ == o_.texts.size(); }
  void drop_sessions() { session_.reset(), more_.clear(); }

  Inbox::Portion read(Engine& engine, size_t allowed) {
    const std::vector<PartAside> parts = next_parts(engine, std::min(o_.most, allowed));
    std::vector<Extension> extensions;
    for (const PartAside& part : parts)
      extensions.push_back({.session = session_for(engine, extensions.size()),
                            .tokens = o_.texts[part.text].subspan(part.from, part.size),
                            .wanted = o_.every_row ? int(part.size) : 1,
                            .interrupt = &gone_});
    Pass pass(extensions, o_.result);
    try {
      if (gone_ || !pass.run()) return {.tokens = 0, .last = true};
    } catch (const Error& error) {
      if (error.code != Exit::memory || parts.size() == 1) throw;
      more_.clear(), one_by_one_ = true;  // less memory is needed so
      return {.tokens = 0, .last = false};
    }
    std::span<const float> rows = pass.rows();
    const size_t columns = rows.size() / rows_of(parts);
    int tokens = 0;
    for (PartAside part : parts) {
      const size_t size = columns * (o_.every_row ? part.size : 1);
      part.rows = rows.first(size), rows = rows.subspan(size);
      take_(part);
      tokens += int(part.size);
    }
    go_on(parts.back());
    return {.tokens = tokens, .last = is_over()};
  }

 private:
  size_t rows_of(std::span<const PartAside> parts) const {
    size_t rows = 0;
    for (const PartAside& part : parts) rows += o_.every_row ? part.size : 1;
    return rows;
  }
  // The first part may continue a text.
  Session* session_for(Engine& engine, size_t number) {
    std::unique_ptr<Session>& session = number == 0 ? session_ : more_.emplace_back();
    if (!session) session = engine.session();
    return session.get();
  }
  // The parts of the next pass. A further text is in it if there are pages for the whole text.
  std::vector<PartAside> next_parts(const Engine& engine, size_t most) const {
    const KvCache& kv = engine.kv_cache();
    std::vector<int64_t> free;
    for (const KvPool& pool : kv.pools) free.push_back(pool.size() - pool.in_use());
    std::vector<PartAside> parts;
    for (size_t text = next_, from = from_; text < o_.texts.size() && most > 0; ++text, from = 0) {
      const size_t whole = o_.texts[text].size();
      const std::vector<int64_t> need =
          pages_of_session(kv.states.pools, int(whole), engine.batch_length());
      for (size_t i = 0; i < free.size(); ++i) free[i] -= need[i];
      const bool suffice = std::ranges::none_of(free, [](int64_t n) { return n < 0; });
      if (!parts.empty() && (one_by_one_ || !suffice)) break;
      const size_t size = std::min(whole - from, most);
      parts.push_back({text, from, size, {}});
      most -= size;
    }
    return parts;
  }
  // After a pass whose last part is `last`.
  void go_on(const PartAside& last) {
    next_ = last.text, from_ = last.from + last.size;
    const bool ends = from_ == o_.texts[next_].size();
    if (!more_.empty()) session_ = std::move(more_.back());
    if (ends) session_.reset(), ++next_, from_ = 0;
    more_.clear();
  }

  const TextsAside& o_;
  const std::atomic<bool>& gone_;
  const std::function<void(const PartAside& part)>& take_;
  std::unique_ptr<Session> session_;            // of the text that the next pass continues
  std::vector<std::unique_ptr<Session>> more_;  // of the further texts of a pass
  bool one_by_one_ = false;                     // a pass reads a single text
  size_t next_ = 0, from_ = 0;                  // the text and token that the next pass begins with
};

}  // namespace

bool read_aside(Inbox& inbox, const TextsAside& texts, const std::atomic<bool>& gone,
                const std::function<void(const PartAside& part)>& take) {
  ReadingAside reading(texts, gone, take);
  if (reading.is_over()) return true;
  inbox.read(
      [&](Engine& engine, int allowed) {
        try {
          const Inbox::Portion portion = reading.read(engine, size_t(allowed));
          if (portion.last) reading.drop_sessions();
          return portion;
        } catch (...) {
          reading.drop_sessions();
          throw;
        }
      },
      gone);
  return reading.is_over();
}

}  // namespace chaski
