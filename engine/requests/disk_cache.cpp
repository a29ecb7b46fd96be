#include "engine/requests/disk_cache.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "engine/pages/prefix_index.h"
#include "engine/requests/cached_models.h"
#include "engine/session/kept_pages.h"

namespace chaski {

namespace {

constexpr size_t kMostWorks = 256;        // that wait; further ones are not stored
constexpr size_t kMostOnce = 32;          // long prompts that are remembered
constexpr size_t kMostInMemory = 10'000;  // prefixes
constexpr size_t kMostNotes = 1000;
constexpr size_t kMostFile = size_t(32) << 20;  // bytes of pages of a file, if it has several
constexpr int kMoreTokens = 1024;  // are worth recurrent states of their own, whatever their size

std::span<const TokenId> whole_pages(std::span<const TokenId> text) {
  return text.first(text.size() / kPage * kPage);
}

// The texts of an answer as generate() sends them: one for each token, and what is left at the end.
std::vector<std::string> pieces_of(const GenerateResult& answer, std::span<const TokenId> prompt,
                                   const Tokenizer& tokenizer, const RequestSettings& settings) {
  AnswerText text(tokenizer, settings, leading_controls(tokenizer, prompt) == prompt.size());
  std::vector<std::string> pieces;
  for (const TokenId token : answer.tokens) pieces.push_back(text.push(token));
  pieces.push_back(text.flush());
  return pieces;
}

}  // namespace

DiskCache::Facts DiskCache::Facts::operator+(const Facts& o) const {
  Facts sum = *this;
  sum.answer_hits += o.answer_hits, sum.answer_misses += o.answer_misses;
  sum.prefix_hits += o.prefix_hits, sum.prefix_misses += o.prefix_misses;
  sum.prefix_tokens += o.prefix_tokens, sum.faults += o.faults;
  sum.writes += o.writes, sum.written_bytes += o.written_bytes;
  sum.unusable += o.unusable;
  return sum;
}

std::vector<std::string> DiskCache::endings() {
  return {AnswerCache::kEnding, PrefixFiles::kEnding};
}

DiskCache::DiskCache(std::shared_ptr<BoundedFolder> bound, const std::string& folder, Inbox& inbox,
                     Note note)
    : bound_(std::move(bound)), inbox_(inbox), note_(std::move(note)) {
  try {
    open(folder);
  } catch (const Error& error) {
    fault(std::string(error.what()) + ": no answer and no prefix is stored", folder);
    answers_.reset();
    facts_.unusable = 1;
    return;
  }
  thread_ = std::thread([this] { work(); });
}

DiskCache::~DiskCache() {
  {
    const std::scoped_lock lock(mutex_);
    over_ = true, end_ = std::chrono::steady_clock::now() + kMostAtEnd;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void DiskCache::open(const std::string& folder) {
  Engine& engine = *inbox_.model()->engine();
  keys_.emplace(engine);
  own_ = (std::filesystem::path(folder) / keys_->model().substr(0, kFolderDigits)).string();
  make_own_folder();
  answers_.emplace(own_, 0);
  if (!has_kept_pages(engine)) return;
  prefixes_ = std::make_unique<PrefixFiles>(own_, [&](const std::string& path, const Error& error) {
    if (error.code != Exit::bad_file) return;
    fault(std::string(error.what()) + ": its prompt will be read again", path);
    bound_->remove(path);
  });
}

// The folder may be gone, because its files may be removed while the server runs. The name of the
// model is only for `chaski cache`, so a folder that cannot be written is used without it.
void DiskCache::make_own_folder() const {
  std::error_code failed;
  const std::string folder = std::filesystem::path(own_).parent_path().string();
  std::filesystem::create_directories(folder, failed);
  if (failed) fail(Exit::io, "{}: cannot be created as a folder: {}", folder, failed.message());
  make_private_folder(own_);  // prompts are private, and the answers in it are trusted
  try {
    name_cached_model(own_, inbox_.model()->engine()->path());
  } catch (const Error&) {
  }
}

void DiskCache::fault(const std::string& line, const std::string& what) {
  {
    const std::scoped_lock lock(mutex_);
    ++facts_.faults;
    if (noted_.size() >= kMostNotes || !noted_.insert(what).second) return;
  }
  note_(line);
}

DiskCache::Facts DiskCache::facts() const {
  const std::scoped_lock lock(mutex_);
  return facts_;
}

GenerateResult DiskCache::generate(std::span<const TokenId> prompt, const GenerateOptions& options,
                                   const Sink& sink) {
  if (!answers_) return chaski::generate(inbox_, prompt, options, sink);
  std::string key;
  const bool repeats = !options.random_seed || options.sampling.temperature <= 0;
  if (repeats && !options.scored) {
    key = keys_->key(prompt, options);
    std::vector<std::string> pieces;
    if (std::optional<GenerateResult> known = find(key, prompt, options, pieces)) {
      const int n = known->prompt_tokens;
      if (options.on_read) options.on_read(n, n);
      for (size_t i = 0; i < pieces.size(); ++i) {
        if (i < known->tokens.size() && options.on_token)
          options.on_token(known->tokens[i], nullptr);
        if (!pieces[i].empty()) sink(pieces[i]);
      }
      return *std::move(known);
    }
  }
  read_prefix(prompt, options);
  GenerateResult result = chaski::generate(inbox_, prompt, options, sink);
  if (!key.empty() && result.finish != Finish::interrupted && result.dropped_tokens == 0)
    add({.key = std::move(key), .answer = result, .text = {}});
  remember(prompt, result);
  return result;
}

std::optional<GenerateResult> DiskCache::find(const std::string& key,
                                              std::span<const TokenId> prompt,
                                              const GenerateOptions& options,
                                              std::vector<std::string>& pieces) {
  std::optional<GenerateResult> known;
  try {
    known = answers_->find(key);
    if (known) {
      pieces = pieces_of(*known, prompt, inbox_.model()->engine()->tokenizer(), options);
      std::string text;
      for (const std::string& piece : pieces) text += piece;
      if (text != known->text)
        fail(Exit::bad_file, "{}: its text is not that of its tokens", answers_->path_of(key));
    }
  } catch (const Error& error) {
    fault(std::string(error.what()) + ": the answer is generated again", key);
    if (error.code == Exit::bad_file) bound_->remove(answers_->path_of(key));
    known.reset();
  }
  const std::scoped_lock lock(mutex_);
  ++(known ? facts_.answer_hits : facts_.answer_misses);
  return known;
}

// Brings the pages that files have of the prompt into memory. The last token is always read by the
// request itself.
void DiskCache::read_prefix(std::span<const TokenId> prompt, const GenerateOptions& options) {
  if (!prefixes_) return;
  const std::span<const TokenId> text = whole_pages(prompt.first(prompt.size() - 1));
  if (int(text.size()) < kAgain) return;
  std::vector<PrefixFiles::Part> parts = prefixes_->find(text);
  const bool with_states = kept_state_bytes(*inbox_.model()->engine()) > 0;
  // A file has recurrent states at its end only. Without them its pages are of no use.
  while (with_states && !parts.empty() && !parts.back().whole_file) parts.pop_back();
  const int64_t evicted = inbox_.facts().pages.evicted;
  {
    const std::scoped_lock lock(mutex_);
    if (parts.empty()) return void(++facts_.prefix_misses);
    const auto at = in_memory_.find(parts.back().sum);
    if (at != in_memory_.end() && at->second == evicted) return;
  }
  int read = 0;
  bool whole = true;  // all parts are in memory
  const auto first_missing = [&] {
    int page = 0;
    inbox_.run([&](Engine& engine) { page = first_missing_page(engine, text, parts.back().end); });
    return page;
  };
  const int from = first_missing();
  for (const PrefixFiles::Part& part : parts) {
    if (part.end <= from) continue;
    whole = false;
    if (options.interrupt && options.interrupt->load()) break;
    const int done = put(part, text);
    read += done;
    if (done < part.end - part.first) break;
    whole = true;
  }
  if (with_states && read > 0) read = first_missing() - from;
  const std::scoped_lock lock(mutex_);
  if (read > 0) ++facts_.prefix_hits, facts_.prefix_tokens += read * kPage;
  if (!whole) return;
  if (in_memory_.size() > kMostInMemory) in_memory_.clear();
  in_memory_[parts.back().sum] = evicted;
}

// Returns how many pages of the part are in memory now.
int DiskCache::put(const PrefixFiles::Part& part, std::span<const TokenId> text) {
  const size_t page = kept_page_bytes(*inbox_.model()->engine()),
               most = std::max<size_t>(kMostBetween / page, 1);
  size_t done = 0;
  try {
    const PrefixFiles::Pages read = PrefixFiles::read(part, text);
    for (size_t n = 1; n > 0 && done < read.pages.size(); done += n) {
      const std::span pages =
          std::span(read.pages).subspan(done, std::min(most, read.pages.size() - done));
      n = 0;
      inbox_.run([&](Engine& engine) {
        n = size_t(put_pages(engine, text, part.first + int(done), pages, part.path));
      });
    }
  } catch (const Error& error) {
    prefixes_->forget(part.path);
    std::error_code none;
    // Another program may have removed it to make room.
    if (error.code == Exit::bad_file || std::filesystem::exists(part.path, none))
      fault(std::string(error.what()) + ": the prompt is read again", part.path);
    if (error.code == Exit::bad_file) bound_->remove(part.path);
  }
  return int(done);
}

// After an answer: what of its prompt is worth a file.
void DiskCache::remember(std::span<const TokenId> prompt, const GenerateResult& result) {
  if (!prefixes_) return;
  const auto covered = [&](std::span<const TokenId> text) {
    const std::vector<PrefixFiles::Part> parts = prefixes_->find(text);
    if (parts.empty()) return false;
    if (size_t(parts.back().end) * kPage >= text.size()) return true;
    const std::scoped_lock lock(mutex_);
    const auto at = left_.find(PrefixIndex::sum_of(text, 0));
    return at != left_.end() && at->second == parts.back().end;
  };
  const auto known = std::min(size_t(std::max(result.cached_tokens, 0)), prompt.size());
  const std::span<const TokenId> again = whole_pages(prompt.first(known)),
                                 all = whole_pages(prompt);
  if (int(again.size()) >= kAgain && !covered(again))
    add({.key = "", .answer = std::nullopt, .text = {again.begin(), again.end()}});
  if (int(prompt.size()) < kLong || result.dropped_tokens > 0) return;
  const std::scoped_lock lock(mutex_);
  // A conversation that grew takes the place of its beginning.
  std::erase_if(once_, [&](const std::vector<TokenId>& earlier) {
    return earlier.size() <= all.size() && std::equal(earlier.begin(), earlier.end(), all.begin());
  });
  once_.emplace_back(all.begin(), all.end());
  if (once_.size() > kMostOnce) once_.pop_front();
}

void DiskCache::add(Work work) {
  {
    const std::scoped_lock lock(mutex_);
    if (works_.size() >= kMostWorks) return;
    works_.push_back(std::move(work));
  }
  changed_.notify_all();
}

void DiskCache::work() {
  for (;;) {
    Work next;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return over_ || !works_.empty(); });
      if (works_.empty()) break;
      next = std::move(works_.front());
      works_.pop_front();
      if (over_ && !next.answer && std::chrono::steady_clock::now() > end_) continue;
    }
    write(next);
  }
  write_rest();
}

// An error of the disk or missing memory costs the file and nothing else.
void DiskCache::write(const Work& work) {
  try {
    try {
      make_own_folder();
      work.answer ? write_answer(work) : write_prefix(work.text, work.is_last);
    } catch (const Error& error) {
      // Of a disk that is full or read-only, every file would be one more note.
      fault(std::string(error.what()) +
                (work.answer ? ": the answer is not stored" : ": the prefix is not stored"),
            "write");
    }
  } catch (const std::exception&) {  // std::bad_alloc: there is no memory for a note either
    const std::scoped_lock lock(mutex_);
    ++facts_.faults;
  }
}

void DiskCache::write_answer(const Work& work) {
  const uint64_t bytes = AnswerCache::file_bytes(work.key, *work.answer);
  if (!bound_->make_room(bytes)) return;
  answers_->keep(work.key, *work.answer);
  bound_->add(bytes);
  const std::scoped_lock lock(mutex_);
  ++facts_.writes, facts_.written_bytes += int64_t(bytes);
}

// Writes the pages of the text that no file has, as far as they are in memory. Each file has its
// own recurrent states, so unless `is_last` it waits for enough tokens.
void DiskCache::write_prefix(std::span<const TokenId> text, bool is_last) {
  const size_t page = kept_page_bytes(*inbox_.model()->engine());
  const int of_file = std::max(int(kMostFile / page), 1),
            between = std::max(int(kMostBetween / page), 1);
  // Half the folder at most: its last pages must not take the room of its first ones.
  const uint64_t most = bound_->facts().most_bytes / 2,
                 state = kept_state_bytes(*inbox_.model()->engine());
  auto end = int(std::min<uint64_t>(text.size() / kPage, (most - std::min(most, state)) / page));
  // A text without recurrent states at its end would be read again from there.
  if (state > 0) inbox_.run([&](Engine& engine) { end = last_state_page(engine, text, end) + 1; });
  int covered = 0, with_states = 0;
  for (const PrefixFiles::Part& part : prefixes_->find(text)) {
    covered = part.end;
    if (part.whole_file) with_states = part.end;
  }
  const int more = end - with_states;
  if (covered >= end || (state > 0 && !is_last && with_states > 0 && more * kPage < kMoreTokens &&
                         uint64_t(more) * page < state)) {
    const std::scoped_lock lock(mutex_);
    if (left_.size() > kMostInMemory) left_.clear();
    left_[PrefixIndex::sum_of(text, 0)] = covered;
    return;
  }
  text = text.first(size_t(end) * kPage);
  for (int first = covered; first < end;) {
    const int last = std::min(end, first + of_file);
    std::vector<std::string> pages;
    for (int at = first, n = 1; n > 0 && at < last; at += n) {
      n = 0;
      inbox_.run([&](Engine& engine) {
        std::vector<std::string> more = copy_pages(engine, text, at, std::min(last, at + between));
        n = int(more.size());
        std::move(more.begin(), more.end(), std::back_inserter(pages));
      });
    }
    if (pages.empty()) return;
    const std::span<const TokenId> tokens = text.first((size_t(first) + pages.size()) * kPage);
    const uint64_t bytes = PrefixFiles::file_bytes(tokens, pages);
    if (!bound_->make_room(bytes)) return;
    prefixes_->write(tokens, pages);
    bound_->add(bytes);
    first += int(pages.size());
    const std::scoped_lock lock(mutex_);
    ++facts_.writes, facts_.written_bytes += int64_t(bytes);
  }
}

// At the end: the long prompts that came once, the last one first.
void DiskCache::write_rest() {
  if (!prefixes_) return;
  for (auto text = once_.rbegin(); text != once_.rend(); ++text) {
    if (std::chrono::steady_clock::now() > end_) return;
    write({.key = "", .answer = std::nullopt, .text = std::move(*text), .is_last = true});
  }
}

}  // namespace chaski
