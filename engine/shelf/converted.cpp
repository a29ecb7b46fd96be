#include "engine/shelf/converted.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <malloc.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <new>
#include <sstream>
#include <system_error>
#include <thread>
#include <utility>

#include "engine/machine/cache_folder.h"
#include "engine/machine/this_program.h"
#include "engine/shelf/shelf.h"
#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/base/mapping.h"
#include "ggml-like-tensor/base/split_name.h"

namespace chaski {

namespace fs = std::filesystem;

namespace {

constexpr const char *kConverted = "converted/", *kWeightsEnding = ".weights",
                     *kRecordEnding = ".from", *kLockEnding = ".lock";

// The files that a model is read from; empty if it is not of a kind that is kept. llama2.c files
// are small, and .quipu files need no conversion.
std::vector<std::string> files_of_model(const std::string& model) {
  std::error_code none;
  if (fs::is_regular_file(model, none))
    return beginning_of(model, 4) == "GGUF" ? names_of_parts(model) : std::vector<std::string>();
  if (!fs::exists(model + "/config.json", none)) return {};
  std::vector<std::string> files;
  for (fs::directory_iterator at(model, none), end; !none && at != end; at.increment(none))
    for (const char* ending : {".safetensors", ".json", ".jinja", ".model", ".txt"})
      if (at->path().extension() == ending) files.push_back(at->path());
  std::sort(files.begin(), files.end());
  return files;
}

// Size, times and inode of the files in one line, and the sum of their sizes. Empty if one is
// missing.
std::string state_of_files(const std::vector<std::string>& files, uint64_t& bytes) {
  std::string state;
  bytes = 0;
  for (const std::string& file : files) {
    struct stat s;
    if (::stat(file.c_str(), &s) != 0 || !S_ISREG(s.st_mode)) return "";
    bytes += uint64_t(s.st_size);
    state += fmt::format("{}{}:{} modified {}.{:09} changed {}.{:09} inode {} of {}",
                         state.empty() ? "" : ", ", fs::path(file).filename().string(), s.st_size,
                         s.st_mtim.tv_sec, s.st_mtim.tv_nsec, s.st_ctim.tv_sec, s.st_ctim.tv_nsec,
                         s.st_ino, s.st_dev);
  }
  return state;
}

// XXH3-128 of the sizes and bytes of the files, as 32 hexadecimal digits. The import chooses the
// files of a folder by their names, so these count there.
std::string sum_of_files(const std::vector<std::string>& files, bool with_names) {
  constexpr size_t kAtOnce = 4 << 20;
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> sum(XXH3_createState(),
                                                                     XXH3_freeState);
  if (!sum || XXH3_128bits_reset(sum.get()) != XXH_OK) throw std::bad_alloc();
  for (const std::string& file : files) {
    const auto mapping = Mapping::open(file);
    const auto bytes = mapping->bytes();
    const std::string head =
        fmt::format("{}/{}/", with_names ? fs::path(file).filename().string() : "", bytes.size());
    XXH3_128bits_update(sum.get(), head.data(), head.size());
    for (size_t at = 0; at < bytes.size(); at += kAtOnce) {
      XXH3_128bits_update(sum.get(), bytes.data() + at, std::min(kAtOnce, bytes.size() - at));
      mapping->drop_pages();
    }
  }
  const XXH128_hash_t whole = XXH3_128bits_digest(sum.get());
  return fmt::format("{:016x}{:016x}", whole.high64, whole.low64);
}

// The end of the names of kept files that this build wrote for a model of `bytes`.
std::string name_ending(uint64_t bytes) {
  return fmt::format("-{}-{:016x}{}", bytes, program_checksum(), kWeightsEnding);
}

std::string digits_of(const std::string& path) {
  return fmt::format("{:016x}", XXH3_64bits(path.data(), path.size()));
}

struct Record {  // a file .from; kind: what the model is, such as "GGUF v3"
  std::string path, state, name, kind;
};

Record record_named(const std::string& name) {
  Record record;
  std::istringstream in(kept_text(kConverted + name));
  std::getline(in, record.path), std::getline(in, record.state), std::getline(in, record.name);
  std::getline(in, record.kind);
  return record;
}

void keep_record(const std::string& file, const Record& r) {
  keep_text(kConverted + file, r.path + "\n" + r.state + "\n" + r.name + "\n" + r.kind + "\n");
}

std::chrono::system_clock::time_point time_of(const fs::path& path) {
  struct stat s;
  if (::stat(path.c_str(), &s) != 0) return {};
  return std::chrono::system_clock::from_time_t(s.st_mtim.tv_sec) +
         std::chrono::duration_cast<std::chrono::system_clock::duration>(
             std::chrono::nanoseconds(s.st_mtim.tv_nsec));
}

std::vector<fs::path> files_with(const std::string& ending) {
  std::vector<fs::path> files;
  std::error_code none;
  if (converted_folder().empty()) return files;
  for (fs::directory_iterator at(converted_folder(), none), end; !none && at != end;
       at.increment(none))
    if (at->path().extension() == ending) files.push_back(at->path());
  std::sort(files.begin(), files.end());
  return files;
}

uint64_t bytes_kept() {
  uint64_t bytes = 0;
  for (const KeptModel& model : kept_models()) bytes += model.bytes;
  return bytes;
}

// Removes temporary files and locks of processes that were killed: a living process has locked its
// file.
void drop_leftovers() {
  for (const char* ending : {".tmp", kLockEnding})
    for (const fs::path& file : files_with(ending)) {
      const int fd = ::open(file.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
      if (fd < 0) continue;
      if (::flock(fd, LOCK_EX | LOCK_NB) == 0) ::unlink(file.c_str());
      ::close(fd);
    }
}

// Removes kept files until `bytes` more are within the limit: what other builds wrote for the same
// model first, then the least recently used. A program that has mapped a removed file keeps it.
void make_room(uint64_t bytes, uint64_t limit, const std::string& sum) {
  drop_leftovers();
  std::error_code none;
  std::vector<KeptModel> models = kept_models();
  uint64_t kept = 0;
  for (const KeptModel& model : models) kept += model.bytes;
  const auto drop = [&](const KeptModel& model) {
    fs::remove(model.file, none);
    kept -= model.bytes;
  };
  const auto is_older_build = [&](const KeptModel& model) {
    return fs::path(model.file).filename().string().starts_with(sum + "-");
  };
  for (const KeptModel& model : models)
    if (is_older_build(model)) drop(model);
  std::erase_if(models, is_older_build);
  for (; !models.empty() && kept + bytes > limit; models.pop_back()) drop(models.back());
  for (const fs::path& record : files_with(kRecordEnding))
    if (!fs::exists(converted_folder() + "/" + record_named(record.filename()).name, none))
      fs::remove(record, none);
}

// What the model of a kept file is; empty if no record says so.
std::string kind_of_kept(const std::string& name) {
  for (const fs::path& file : files_with(kRecordEnding))
    if (const Record record = record_named(file.filename()); record.name == name)
      return record.kind;
  return "";
}

// Removes a kept file that no model has any more.
void drop_without_model(const std::string& name) {
  std::error_code none;
  if (!name.ends_with(kWeightsEnding)) return;
  for (const fs::path& record : files_with(kRecordEnding))
    if (record_named(record.filename()).name == name) return;
  fs::remove(converted_folder() + "/" + name, none);
}

// The converted folder, or the nearest folder above it that exists.
fs::path existing_folder() {
  std::error_code none;
  fs::path folder = converted_folder();
  while (!folder.empty() && folder != folder.root_path() && !fs::exists(folder, none))
    folder = folder.parent_path();
  return folder;
}

uint64_t free_disk() {
  std::error_code none;
  const fs::space_info space = fs::space(existing_folder(), none);
  return none ? 0 : space.available;
}

enum class Reason { none, folder, disk, limit };

// Why a file of `bytes` is not kept, in `why`.
Reason too_large(uint64_t bytes, KeepConverted most, std::string& why) {
  const uint64_t limit = most_converted(most), free = free_disk();
  const bool fits = bytes <= free + bytes_kept();
  if (fits && bytes <= limit) return Reason::none;
  if (fits && most) {
    why = fmt::format(
        "it needs {}, but the limit of {} is {} (--keep-converted SIZE sets a higher one)",
        size_text(bytes), converted_folder(), size_text(limit));
    return Reason::limit;
  }
  why = fmt::format("it needs {}, but only {} are free on the disk of {}{}", size_text(bytes),
                    size_text(free), converted_folder(),
                    fits ? ", of which converted models use at most a tenth" : "");
  return Reason::disk;
}

// Whether a reason is new in this process: further models that are not kept for it need no note.
bool is_new(Reason reason) {
  static std::atomic<bool> said[4];
  return !said[size_t(reason)].exchange(true);
}

// Changes whenever a process writes to a file of the folder that is not complete yet.
std::string state_of_unfinished() {
  std::string state;
  struct stat s;
  for (const fs::path& file : files_with(".tmp"))
    if (::stat(file.c_str(), &s) == 0)
      state += fmt::format("{} {} {}.{}\n", file.string(), s.st_size, s.st_mtim.tv_sec,
                           s.st_mtim.tv_nsec);
  return state;
}

}  // namespace

std::string converted_folder() {
  return cache_folder().empty() ? "" : cache_folder() + "/converted";
}

uint64_t most_converted(KeepConverted most) {
  return most ? *most : (free_disk() + bytes_kept()) / 10;
}

std::vector<KeptModel> kept_models() {
  std::vector<KeptModel> models;
  std::map<std::string, size_t> by_name;
  for (const fs::path& file : files_with(kWeightsEnding)) {
    std::error_code gone;
    const uint64_t bytes = fs::file_size(file, gone);
    if (gone) continue;
    by_name[file.filename()] = models.size();
    models.push_back({file, "", bytes, {}});
  }
  for (const fs::path& file : files_with(kRecordEnding)) {
    const Record record = record_named(file.filename());
    const auto at = by_name.find(record.name);
    if (at == by_name.end()) continue;
    KeptModel& model = models[at->second];
    if (const auto used = time_of(file); model.source.empty() || used > model.used)
      model.used = used, model.source = record.path;
  }
  for (KeptModel& model : models)
    if (model.source.empty()) model.used = time_of(model.file);
  std::ranges::stable_sort(models, std::greater(), &KeptModel::used);
  return models;
}

std::string state_of_model(const std::string& model) {
  std::vector<std::string> files = files_of_model(model);
  if (files.empty()) files.push_back(model);
  uint64_t bytes;
  return state_of_files(files, bytes);
}

void drop_kept_models() {
  drop_leftovers();
  for (const char* ending : {kWeightsEnding, kRecordEnding})
    for (const fs::path& file : files_with(ending)) {
      std::error_code error;
      fs::remove(file, error);
      if (error) fail(Exit::io, "{}: cannot be removed: {}", file.string(), error.message());
    }
}

ConvertedModel::ConvertedModel(std::string model, KeepConverted most)
    : model_(std::move(model)), most_(most) {
  std::error_code none;
  if (model_.empty() || most_ == 0 || converted_folder().empty()) return;
  path_ = fs::canonical(model_, none);
  if (none) return;
  files_ = files_of_model(model_);
  state_ = state_of_files(files_, bytes_);
  if (state_.empty() || (!most_ && bytes_ < kLeastConverted)) files_.clear();
}

void ConvertedModel::wait() {
  if (writing_.valid()) writing_.get();
  unlock();
}

ConvertedModel::~ConvertedModel() {
  constexpr std::chrono::seconds kUnnoticed(1);
  if (notice_ && writing_.valid() && writing_.wait_for(kUnnoticed) == std::future_status::timeout)
    notice_(
        fmt::format("{}: the converted copy is still being written; Ctrl-C ends that, and the "
                    "next start converts the model again",
                    model_));
  wait();
  if (!failure_.empty() && notice_)
    notice_(fmt::format("{}: the converted model is not kept: {}", model_, failure_));
}

std::string ConvertedModel::name_by_state() const {
  const Record record = record_named(digits_of(path_) + kRecordEnding);
  const bool same =
      record.path == path_ && record.state == state_ && record.name.ends_with(name_ending(bytes_));
  return same ? record.name : "";
}

// Reads the whole model, but only if a file of the same size is kept.
std::string ConvertedModel::name_by_sum() const {
  const std::string ending = name_ending(bytes_);
  const auto files = files_with(kWeightsEnding);
  if (std::ranges::none_of(
          files, [&](const fs::path& file) { return file.filename().string().ends_with(ending); }))
    return "";
  return sum_of_files(files_, fs::is_directory(path_)) + ending;
}

// The name that the kept file has or would have; `by_state` is empty if the sum had to be computed.
// Returns false if it is unknown, because a file or the program itself cannot be read.
bool ConvertedModel::find_names(std::string& by_state, std::string& name) try {
  by_state = name_by_state();
  name = by_state.empty() ? name_by_sum() : by_state;
  return true;
} catch (const Error& error) {
  why_not_ = error.what();
  return false;
}

std::shared_ptr<const Weights> ConvertedModel::find(Verify how, int threads, const Notice& notice) {
  if (files_.empty()) return nullptr;
  std::error_code none;
  std::string by_state, name;
  if (!find_names(by_state, name)) return nullptr;
  const std::string record = digits_of(path_) + kRecordEnding,
                    file = converted_folder() + "/" + name;
  if (name.empty() || !fs::exists(file, none)) return nullptr;
  try {
    const std::shared_ptr<const Weights> kept = open_quipu(file);
    verify_file(*kept, how, threads);
    const std::string kind = kind_of_kept(name);
    if (!by_state.empty())
      fs::last_write_time(converted_folder() + "/" + record, fs::file_time_type::clock::now(),
                          none);
    else
      keep_record(record, {path_, state_, name, kind});
    const auto weights = std::make_shared<Weights>(*kept);
    weights->path = weights->meta.origin = model_;
    if (!kind.empty()) weights->kind = kind + ", converted";
    return weights;
  } catch (const Error& error) {
    if (error.code != Exit::bad_file && error.code != Exit::io) throw;
    if (error.code == Exit::bad_file) fs::remove(file, none);
    if (notice)
      notice(fmt::format(
          "{}: {}, so the model is converted again", model_,
          error.code == Exit::io ? error.what() : "the converted file in the cache is damaged"));
  }
  return nullptr;
}

std::shared_ptr<const Weights> ConvertedModel::find_or_lock(Verify how, int threads,
                                                            const Notice& notice,
                                                            const std::function<void()>& waits) {
  if (files_.empty()) return nullptr;
  if (auto kept = find(how, threads, notice)) return kept;
  if (!why_not_.empty() || !fits() || !lock(waits)) return nullptr;
  // Another process may have converted it just before the lock was taken.
  auto kept = find(how, threads, nullptr);
  if (kept || !why_not_.empty()) unlock();
  return kept;
}

// The conversion has about as many bytes as the model. write() checks its real size.
bool ConvertedModel::fits() {
  Reason reason = Reason::folder;
  if (::access(existing_folder().c_str(), W_OK) != 0)
    why_not_ = fmt::format("{}: {}", converted_folder(), std::strerror(errno));
  else
    reason = too_large(bytes_, most_, why_not_);
  if (reason == Reason::none) return true;
  if (!is_new(reason)) why_not_.clear();
  return false;
}

bool ConvertedModel::lock(const std::function<void()>& waits) {
  using Clock = std::chrono::steady_clock;
  // Without a write of the other process. It converts the model in memory before the first one, on
  // a busy machine at 50 MB/s. It may also have been stopped.
  const auto most_wait = std::chrono::seconds(std::min<uint64_t>(3 + bytes_ / 50'000'000, 60));
  const std::string path = converted_folder() + "/" + digits_of(path_) + kLockEnding;
  std::error_code error;
  if (fs::create_directories(converted_folder(), error))  // the models may be private
    fs::permissions(converted_folder(), fs::perms::owner_all, error);
  const auto refuse = [&](const std::string& why) {
    why_not_ = fmt::format("{}: {}", converted_folder(), why);
    return false;
  };
  if (error) return refuse(error.message());
  Clock::time_point until = Clock::now() + most_wait;
  std::string unfinished = state_of_unfinished();
  for (bool waited = false;;) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return refuse(std::strerror(errno));
    while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR) {
        const std::string why = std::strerror(errno);
        ::close(fd);
        return refuse(why);
      }
      if (!std::exchange(waited, true) && waits) waits();
      if (std::string now = state_of_unfinished(); now != unfinished)
        unfinished = std::move(now), until = Clock::now() + most_wait;
      if (Clock::now() > until) {
        ::close(fd);
        why_not_ = "another process is converting it";
        return false;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    // The process that had the lock has removed the file.
    struct stat s;
    if (::fstat(fd, &s) == 0 && s.st_nlink > 0) {
      lock_ = fd;
      return true;
    }
    ::close(fd);
  }
}

void ConvertedModel::unlock() {
  if (lock_ < 0) return;
  ::unlink((converted_folder() + "/" + digits_of(path_) + kLockEnding).c_str());
  ::close(std::exchange(lock_, -1));
}

void ConvertedModel::keep(std::shared_ptr<const Weights> weights, Notice notice) {
  ENSURE(will_keep(), "only the process that has the lock writes the file");
  notice_ = std::move(notice);
  try {
    writing_ = std::async(std::launch::async, [this, weights = std::move(weights)] {
      write(weights);
      unlock();  // processes that wait for the file need not wait for the end of this one
    });
  } catch (const std::system_error& error) {
    failure_ = error.what();
  }
}

void ConvertedModel::write(const std::shared_ptr<const Weights>& weights) try {
  constexpr int kNice = 10;               // the threads that compute an answer come first
  ::setpriority(PRIO_PROCESS, 0, kNice);  // 0: on Linux, the calling thread
  const std::string sum = sum_of_files(files_, fs::is_directory(path_)),
                    name = sum + name_ending(bytes_), file = converted_folder() + "/" + name;
  uint64_t bytes = 0;
  if (state_of_files(files_, bytes) != state_)
    return void(failure_ = "the file was changed in the meantime");
  if (too_large(weights->bytes(), most_, failure_) != Reason::none) return;
  make_room(weights->bytes(), most_converted(most_), sum);
  ::malloc_trim(0);  // the import of the model has ended, and malloc keeps what it freed
  write_quipu(file, weights, 1);
  keep_verified(file, Mapping::open(file)->state());  // write_quipu() has compared its checksums
  const std::string record = digits_of(path_) + kRecordEnding, before = record_named(record).name;
  keep_record(record, {path_, state_, name, weights->kind});
  if (before != name) drop_without_model(before);
} catch (const std::exception& error) {
  failure_ = error.what();
}

OpenModel open_as_kept(const std::string& model, const std::string& tokenizer, KeepConverted most,
                       const ConvertedModel::Notice& notice) {
  if (auto kept = ConvertedModel(model, most).find(Verify::never, 1, notice))
    return {source_of(kept), kept};
  return open_model(model, tokenizer);
}

}  // namespace chaski
