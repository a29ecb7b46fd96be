// A file, little-endian:
//   magic "CHASKIP\1"; the last byte is the version
//   u64 XXH3-64 of the bytes after it
//   u64 first page, u64 n, n x i32 tokens; n is a multiple of 16
//   (n / 16 - first) x u64 bytes of a page, then the pages (kept_pages.cpp)
#include "engine/requests/prefix_files.h"

#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>

#include "engine/machine/bounded_folder.h"
#include "engine/pages/prefix_index.h"
#include "ggml-like-tensor/base/atomic_file.h"
#include "ggml-like-tensor/base/checksum.h"
#include "ggml-like-tensor/base/cursor.h"

namespace chaski {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefixMagic("CHASKIP\1", 8);
constexpr size_t kPrefixPreamble = 16;
// Between two marks of one file as used: popular files are not marked by every request.
constexpr std::chrono::seconds kBetweenMarks(10);

struct Head {
  int first = 0;
  std::vector<TokenId> tokens;
};

Head head_of(Cursor& in) {
  const auto magic = in.raw(kPrefixMagic.size(), "magic");
  if (std::memcmp(magic.data(), kPrefixMagic.data(), magic.size()) != 0)
    fail(Exit::bad_file, "{}: is damaged, or of another version", in.file());
  in.take<uint64_t>("sum");
  const auto first = in.take<uint64_t>("first page");
  const uint64_t n = in.count(in.take<uint64_t>("tokens"), sizeof(TokenId), "tokens");
  if (n == 0 || n % kPage != 0 || first >= n / kPage)
    fail(Exit::bad_file, "{}: has {} tokens and begins with page {}, expected whole pages",
         in.file(), n, first);
  Head head{.first = int(first), .tokens = std::vector<TokenId>(n)};
  const auto tokens = in.raw(n * sizeof(TokenId), "tokens");
  std::memcpy(head.tokens.data(), tokens.data(), tokens.size());
  return head;
}

bool is_there(const std::string& path) {
  std::error_code none;
  return fs::exists(path, none);
}

template <class T>
std::span<const std::byte> bytes_of(const T& list) {
  return std::as_bytes(std::span(list));
}

}  // namespace

PrefixFiles::PrefixFiles(std::string folder, const Skipped& skipped) : folder_(std::move(folder)) {
  std::error_code none;
  for (auto at = fs::directory_iterator(folder_, none); at != fs::directory_iterator();
       at.increment(none)) {
    const std::string path = at->path().string();
    if (!path.ends_with(kEnding) || at->path().filename().string().starts_with('.')) continue;
    try {
      const auto mapped = Mapping::open(path);
      Cursor in(path, mapped->bytes());
      Head head = head_of(in);
      add(path, std::move(head.tokens), head.first);
    } catch (const Error& error) {
      if (skipped) skipped(path, error);
    }
  }
}

void PrefixFiles::add(const std::string& path, std::vector<TokenId> tokens, int first) {
  const std::scoped_lock lock(mutex_);
  const auto [at, is_new] = files_.try_emplace(path);
  if (!is_new) return;
  at->second.tokens = std::move(tokens), at->second.first = first;
  const std::span<const TokenId> text = at->second.tokens;
  uint64_t sum = 0;
  for (int page = 0; size_t(page) < text.size() / kPage; ++page) {
    sum = PrefixIndex::sum_of(text.subspan(size_t(page) * kPage, size_t(kPage)), sum);
    if (page >= first) by_sum_.emplace(sum, &*at);
  }
}

void PrefixFiles::forget(const std::string& path) {
  const std::scoped_lock lock(mutex_);
  const auto at = files_.find(path);
  if (at == files_.end()) return;
  std::erase_if(by_sum_, [&](const auto& entry) { return entry.second == &*at; });
  files_.erase(at);
}

// Asks the disk without the lock. No thread but the one that writes adds files meanwhile.
size_t PrefixFiles::forget_missing() {
  std::vector<std::string> paths;
  {
    const std::scoped_lock lock(mutex_);
    for (const auto& [path, file] : files_) paths.push_back(path);
  }
  std::erase_if(paths, is_there);
  const std::scoped_lock lock(mutex_);
  const size_t before = files_.size();
  std::set<const std::pair<const std::string, File>*> missing;
  for (const std::string& path : paths)
    if (const auto at = files_.find(path); at != files_.end()) missing.insert(&*at);
  std::erase_if(by_sum_, [&](const auto& entry) { return missing.contains(entry.second); });
  for (const std::string& path : paths) files_.erase(path);
  most_files_ = std::max(kLeastFiles, 2 * files_.size());
  return before - files_.size();
}

std::vector<PrefixFiles::Part> PrefixFiles::find(std::span<const TokenId> text) {
  for (;;) {
    std::vector<Part> parts = find_known(text);
    const auto missing =
        std::ranges::find_if(parts, [](const Part& part) { return !is_there(part.path); });
    if (missing == parts.end()) return parts;
    forget(missing->path);
  }
}

std::vector<PrefixFiles::Part> PrefixFiles::find_known(std::span<const TokenId> text) {
  std::vector<Part> parts;
  std::vector<std::string> used;
  {
    const std::scoped_lock lock(mutex_);
    const auto now = std::chrono::steady_clock::now();
    uint64_t before = 0;
    for (int page = 0; size_t(page) < text.size() / kPage;) {
      const auto sum_to = [&](int to, uint64_t sum) {
        return PrefixIndex::sum_of(text.subspan(size_t(to) * kPage, size_t(kPage)), sum);
      };
      // Of the files that have this page of this text, the one that covers most.
      const std::pair<const std::string, File>* best = nullptr;
      int end = page;
      const auto [first, last] = by_sum_.equal_range(sum_to(page, before));
      for (auto i = first; i != last; ++i) {
        const auto& tokens = i->second->second.tokens;
        const auto same = std::ranges::mismatch(tokens, text).in1 - tokens.begin();
        if (int(same / kPage) > end) end = int(same / kPage), best = i->second;
      }
      if (!best) break;
      for (; page < end; ++page) before = sum_to(page, before);
      const int from = parts.empty() ? 0 : parts.back().end;
      File& file = files_.at(best->first);
      parts.push_back({.path = best->first,
                       .first = from,
                       .end = end,
                       .sum = before,
                       .whole_file = size_t(end) * kPage == file.tokens.size()});
      if (now - file.marked > kBetweenMarks) file.marked = now, used.push_back(best->first);
    }
  }
  // The beginning of the text is marked last: without it the others are of no use.
  for (auto path = used.rbegin(); path != used.rend(); ++path) mark_used(*path);
  return parts;
}

PrefixFiles::Pages PrefixFiles::read(const Part& part, std::span<const TokenId> text) {
  Pages out{.file = Mapping::open(part.path), .pages = {}};
  const std::span<const std::byte> all = out.file->bytes();
  Cursor in(part.path, all);
  const Head head = head_of(in);
  uint64_t sum = 0;
  std::memcpy(&sum, all.data() + kPrefixMagic.size(), sizeof sum);
  const auto rest = all.subspan(kPrefixPreamble);
  const size_t tokens = size_t(part.end) * kPage;
  if (checksum(rest.data(), rest.size()) != sum || head.first > part.first ||
      head.tokens.size() < tokens ||
      !std::ranges::equal(text.first(tokens), std::span(head.tokens).first(tokens)))
    fail(Exit::bad_file, "{}: is damaged, or belongs to another text", part.path);
  std::vector<uint64_t> sizes(head.tokens.size() / kPage - size_t(head.first));
  for (uint64_t& bytes : sizes) bytes = in.take<uint64_t>("bytes of a page");
  for (size_t i = 0; i < sizes.size(); ++i) {
    const auto page = in.raw(sizes[i], "page");
    const int number = head.first + int(i);
    if (number >= part.first && number < part.end) out.pages.push_back(page);
  }
  return out;
}

uint64_t PrefixFiles::file_bytes(std::span<const TokenId> text,
                                 std::span<const std::string> pages) {
  uint64_t bytes = kPrefixPreamble + 2 * sizeof(uint64_t) + text.size_bytes();
  for (const std::string& page : pages) bytes += sizeof(uint64_t) + page.size();
  return bytes;
}

void PrefixFiles::write(std::span<const TokenId> text, std::span<const std::string> pages) {
  const uint64_t first = text.size() / kPage - pages.size(), n = text.size();
  std::vector<uint64_t> sizes;
  for (const std::string& page : pages) sizes.push_back(page.size());
  std::vector<std::span<const std::byte>> blocks = {
      bytes_of(std::span(&first, 1)), bytes_of(std::span(&n, 1)), bytes_of(text), bytes_of(sizes)};
  for (const std::string& page : pages) blocks.push_back(bytes_of(page));
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(),
                                                                              XXH3_freeState);
  ENSURE(state, "the hash state was allocated");
  XXH3_64bits_reset(state.get());
  for (const auto& block : blocks) XXH3_64bits_update(state.get(), block.data(), block.size());
  const uint64_t sum = XXH3_64bits_digest(state.get());
  const XXH128_hash_t name = XXH3_128bits(text.data(), text.size_bytes());
  // The name begins with the first page's number: of files with the same time, those of later
  // pages are removed first.
  const std::string path = (fs::path(folder_) / fmt::format("{:08}-{:016x}{:016x}{}", first,
                                                            name.high64, name.low64, kEnding))
                               .string();
  AtomicFile file(path, Permissions::owner_only);
  file.write(bytes_of(kPrefixMagic));
  file.write(bytes_of(std::span(&sum, 1)));
  for (const auto& block : blocks) file.write(block);
  file.commit();
  add(path, {text.begin(), text.end()}, int(first));
  std::unique_lock lock(mutex_);
  const bool is_full = files_.size() > most_files_;
  lock.unlock();
  if (is_full) forget_missing();
}

}  // namespace chaski
