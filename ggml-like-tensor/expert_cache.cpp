#include "ggml-like-tensor/expert_cache.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <numeric>
#include <sstream>

#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/direct_read.h"

namespace chaski {

namespace {

constexpr double kHalfLife = 256;                           // tokens
constexpr double kMostUse = kHalfLife / std::numbers::ln2;  // of an expert that all tokens choose
constexpr int64_t kFewTokens = 32;                          // a pass with more tokens is a prompt

uint64_t expert_bytes(const ExpertWeight& w) {
  return w.weight->info.bytes() / uint64_t(w.experts);
}
// The memory of an expert, which begins anywhere in a sector.
uint64_t slot_bytes(const ExpertWeight& w) { return sector_up(expert_bytes(w)) + kSector; }

// The part of the choices that find their expert among the `slots` most used ones. A leave-one-out
// estimate: a choice does not count for the use that ranks its own expert, because experts that
// were chosen often by chance would seem popular. The choice of the newest token counts 1, that of
// the oldest one `oldest`.
double hits_of(std::vector<double> uses, size_t slots, double tokens) {
  std::sort(uses.begin(), uses.end(), std::greater<>());
  const double sum = std::accumulate(uses.begin(), uses.end(), 0.0),
               oldest = std::clamp(1 - tokens / kMostUse, 0.0, 1 - 1e-6);
  if (slots >= uses.size()) return 1;
  if (sum <= 0) return double(slots) / double(uses.size());
  double found = 0;
  for (size_t i = 0; i < slots; ++i)
    found += uses[i] * std::clamp((uses[i] - uses[slots] - oldest) / (1 - oldest), 0.0, 1.0);
  return found / sum;
}

}  // namespace

std::string text_of_uses(const ExpertUses& uses) {
  std::string text;
  for (const auto& [name, of] : uses) {
    text += name;
    for (const double use : of) text += fmt::format(" {:.4g}", use);
    text += '\n';
  }
  return text;
}

ExpertUses uses_of(const std::string& text) {
  ExpertUses uses;
  std::istringstream lines(text);
  for (std::string line, name; std::getline(lines, line);) {
    std::istringstream words(line);
    if (!(words >> name)) continue;
    std::vector<double>& of = uses[name];
    for (double use; words >> use;) of.push_back(std::clamp(use, 0.0, kMostUse));
  }
  return uses;
}

uint64_t least_bytes(std::span<const ExpertWeight> weights, int threads) {
  uint64_t bytes = 0;
  for (const ExpertWeight& w : weights)
    bytes += uint64_t(std::min<int64_t>(w.experts, threads + 2)) * slot_bytes(w);
  return bytes;
}

std::vector<int64_t> slots_within(std::span<const ExpertWeight> weights, uint64_t bytes,
                                  int threads) {
  const uint64_t least = least_bytes(weights, threads);
  if (bytes < least) return {};
  double others = 0;
  for (const ExpertWeight& w : weights) others += double(slot_bytes(w)) * double(w.experts);
  others -= double(least);
  const double part = others > 0 ? std::min(1.0, double(bytes - least) / others) : 1;
  std::vector<int64_t> slots;
  for (const ExpertWeight& w : weights) {
    const auto few = std::min<int64_t>(w.experts, threads + 2);
    slots.push_back(few + int64_t(part * double(w.experts - few) + 1e-6));  // 2 is 1.9999999
  }
  return slots;
}

double expected_hits(std::span<const ExpertWeight> weights, std::span<const int64_t> slots,
                     double chosen_part, const ExpertUses& uses) {
  double found = 0, all = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    const ExpertWeight& w = weights[i];
    const auto at = uses.find(w.weight->info.name);
    const double bytes = double(expert_bytes(w)), experts = double(w.experts);
    double hits = double(slots[i]) / experts;
    if (at != uses.end() && int64_t(at->second.size()) == w.experts) {
      const double sum = std::accumulate(at->second.begin(), at->second.end(), 0.0);
      hits = hits_of(at->second, size_t(slots[i]), sum / (chosen_part * experts));
    }
    all += bytes, found += bytes * hits;
  }
  return all > 0 ? found / all : 1;
}

// The experts of one weight. All functions that are not those of ExpertPlaces are called with the
// cache's mutex locked.
class ExpertCache::Shelf final : public ExpertPlaces {
 public:
  Shelf(ExpertCache& cache, const ExpertWeight& weight, std::byte* memory, int64_t slots)
      : cache_(cache),
        info_(*weight.weight),
        bytes_(expert_bytes(weight)),
        stride_(slot_bytes(weight)),
        offset_(uint64_t(weight.weight->data - cache.file_->bytes().data())),
        memory_(memory),
        slots_(static_cast<size_t>(slots)),
        slot_of_(size_t(weight.experts), -1),
        place_(size_t(weight.experts), -1),
        uses_(size_t(weight.experts)) {
    order_.reserve(size_t(weight.experts)), missing_.reserve(size_t(weight.experts));
  }
  void learn(std::span<const double> uses) { std::copy(uses.begin(), uses.end(), uses_.begin()); }

  void expect(const int32_t* chosen, int64_t tokens, int64_t a_token) override {
    const std::scoped_lock lock(cache_.mutex_);
    for (const int64_t expert : order_) place_[size_t(expert)] = -1;
    order_.clear(), missing_.clear(), cursor_ = -1;
    count(chosen, tokens, a_token);
    next_ = order_.size();
    if (!missing_.empty()) cache_.missing_.store(true, std::memory_order_relaxed);
    order_.insert(order_.end(), missing_.begin(), missing_.end());
    for (size_t i = 0; i < order_.size(); ++i) place_[size_t(order_[i])] = int64_t(i);
    few_ = tokens <= kFewTokens;
    if (few_) {
      if (this == cache_.shelves_[0].get()) cache_.facts_.tokens += tokens;
      cache_.facts_.wanted += int64_t(order_.size()), cache_.facts_.found += int64_t(next_);
    }
    begin_missing();
  }
  // Only the thread between two steps changes the order.
  int64_t in_order(int64_t place) const override {
    return place < int64_t(order_.size()) ? order_[size_t(place)] : -1;
  }

  const std::byte* hold(int64_t expert) override {
    std::unique_lock lock(cache_.mutex_);
    if (place_[size_t(expert)] > cursor_) {
      cursor_ = place_[size_t(expert)];
      begin_missing();
    }
    while (slot_of_[size_t(expert)] < 0)
      if (!begin(expert, true)) ready_.wait(lock);
    const int at = slot_of_[size_t(expert)];
    Slot& slot = slots_[size_t(at)];
    ++slot.users;
    ready_.wait(lock, [&] { return slot.unread == 0; });
    // After an error the system reads the mapped file, and a fault there is reported.
    if (slot.failed) return info_.data + uint64_t(expert) * bytes_;
    return memory_of(at) + offset_of(expert) % kSector;
  }
  void release(int64_t expert) override {
    const std::scoped_lock lock(cache_.mutex_);
    if (--slots_[size_t(slot_of_[size_t(expert)])].users > 0) return;
    begin_missing();
    ready_.notify_all();
  }

  int pieces() const { return int((sector_up(bytes_) + kSector + kReadPiece - 1) / kReadPiece); }
  size_t slot_count() const { return slots_.size(); }
  double use_of(int64_t expert) const { return uses_[size_t(expert)]; }
  const Weight& weight() const { return info_; }
  std::vector<double> uses() const {
    std::vector<double> of = uses_;
    for (double& use : of) use /= unit_;
    return of;
  }

  // Reads an expert into a slot that was never used. False if there is none.
  bool fill(int64_t expert) {
    if (slot_of_[size_t(expert)] >= 0) return true;
    return filled_ < slots_.size() && begin(expert, false);
  }
  // The part of the file that a job reads: [from, to), of which the bytes before `needed` must be
  // there, and its place in memory.
  struct Range {
    uint64_t from, to, needed;
    std::byte* memory;
  };
  Range range_of(const Job& job) const {
    const uint64_t begin = offset_of(slots_[size_t(job.slot)].expert), first = sector_down(begin),
                   from = first + uint64_t(job.piece) * kReadPiece,
                   to = std::min(sector_up(begin + bytes_), from + kReadPiece);
    return {from, std::max(from, to), std::min(to, begin + bytes_),
            memory_of(job.slot) + (from - first)};
  }
  void was_read(const Job& job, bool whole, uint64_t bytes) {
    Slot& slot = slots_[size_t(job.slot)];
    slot.failed |= !whole;
    cache_.facts_.read_all += bytes;
    if (few_ && slot.wanted) cache_.facts_.read += bytes;
    if (--slot.unread > 0) return;
    begin_missing();
    ready_.notify_all();
  }

 private:
  struct Slot {
    int64_t expert = -1;
    int users = 0, unread = 0;  // threads that hold it; pieces that are not read
    bool failed = false, wanted = false;
  };

  uint64_t offset_of(int64_t expert) const { return offset_ + uint64_t(expert) * bytes_; }
  std::byte* memory_of(int slot) const { return memory_ + uint64_t(slot) * stride_; }

  // Counts the uses, and lists the experts: in order_ those in a slot, in missing_ the others.
  void count(const int32_t* chosen, int64_t tokens, int64_t a_token) {
    unit_ *= std::exp2(double(tokens) / kHalfLife);
    for (int64_t i = 0; i < tokens * a_token; ++i) {
      const auto expert = size_t(chosen[i]);
      uses_[expert] += unit_;
      if (place_[expert] >= 0) continue;
      place_[expert] = 0;
      (slot_of_[expert] >= 0 ? order_ : missing_).push_back(int64_t(expert));
    }
    if (unit_ < 1e100) return;
    for (double& use : uses_) use /= unit_;
    unit_ = 1;
  }
  void begin_missing() {
    while (next_ < order_.size() &&
           (slot_of_[size_t(order_[next_])] >= 0 || begin(order_[next_], false)))
      ++next_;
  }
  // Begins to read an expert that is in no slot. False if every slot is still needed. `demanded`: a
  // thread waits for it, so an expert that was read ahead may lose its slot.
  bool begin(int64_t expert, bool demanded) {
    const int at = filled_ < slots_.size() ? int(filled_++) : least_used(demanded);
    if (at < 0) return false;
    Slot& slot = slots_[size_t(at)];
    if (slot.expert >= 0) slot_of_[size_t(slot.expert)] = -1;
    slot = {expert, 0, pieces(), false, place_[size_t(expert)] >= 0};
    slot_of_[size_t(expert)] = at;
    for (int piece = 0; piece < slot.unread; ++piece) cache_.push({this, at, piece});
    return true;
  }
  int least_used(bool demanded) const {
    int least = -1, last = -1;
    for (int i = 0; i < int(slots_.size()); ++i) {
      const Slot& slot = slots_[size_t(i)];
      if (slot.users > 0 || slot.unread > 0) continue;
      const int64_t place = place_of(slot);
      if (place < cursor_ || place < 0)
        least = least < 0 || use(slot) < use(slots_[size_t(least)]) ? i : least;
      last = last < 0 || place > place_of(slots_[size_t(last)]) ? i : last;
    }
    return least >= 0 || !demanded ? least : last;
  }
  int64_t place_of(const Slot& slot) const { return place_[size_t(slot.expert)]; }
  double use(const Slot& slot) const { return uses_[size_t(slot.expert)]; }

  ExpertCache& cache_;
  const Weight& info_;
  const uint64_t bytes_, stride_, offset_;
  std::byte* const memory_;
  std::vector<Slot> slots_;
  size_t filled_ = 0;           // slots that were ever used: the first ones
  std::vector<int> slot_of_;    // by expert; -1: none
  std::vector<int64_t> place_;  // by expert: its place in order_; -1: it is not expected
  std::vector<double> uses_;    // by expert, in units of unit_
  std::vector<int64_t> order_, missing_;
  double unit_ = 1;
  size_t next_ = 0;      // the first place in order_ whose expert may still be unread
  int64_t cursor_ = -1;  // experts at lower places are computed, or held
  bool few_ = false;     // whether the pass has few tokens
  std::condition_variable ready_;
};

ExpertCache::ExpertCache(std::shared_ptr<const Mapping> file, int fd)
    : file_(std::move(file)), fd_(fd) {}

std::unique_ptr<ExpertCache> ExpertCache::make(std::shared_ptr<const Mapping> file,
                                               std::span<const ExpertWeight> weights,
                                               uint64_t bytes, int threads,
                                               const ExpertUses& uses) {
  const std::vector<int64_t> slots = slots_within(weights, bytes, threads);
  if (slots.empty()) return nullptr;
  const int fd = file->open_again();
  if (fd < 0) return nullptr;
  std::unique_ptr<ExpertCache> cache(new ExpertCache(std::move(file), fd));
  for (size_t i = 0; i < weights.size(); ++i) {
    cache->memory_bytes_ += uint64_t(slots[i]) * slot_bytes(weights[i]);
    cache->facts_.of += weights[i].weight->info.bytes();
  }
  void* const memory = ::mmap(nullptr, cache->memory_bytes_, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    fail(Exit::memory, "{:.3g} GB of memory for experts cannot be mapped",
         double(cache->memory_bytes_) / 1e9);
  ::madvise(memory, cache->memory_bytes_, MADV_HUGEPAGE);
  cache->memory_ = static_cast<std::byte*>(memory);
  cache->facts_.bytes = cache->memory_bytes_;
  std::byte* at = cache->memory_;
  size_t pieces = 0;
  for (size_t i = 0; i < weights.size(); at += uint64_t(slots[i]) * slot_bytes(weights[i]), ++i) {
    cache->shelves_.push_back(std::make_unique<Shelf>(*cache, weights[i], at, slots[i]));
    Shelf& shelf = *cache->shelves_.back();
    cache->by_weight_[weights[i].weight] = &shelf;
    pieces += shelf.slot_count() * size_t(shelf.pieces());
    const auto known = uses.find(weights[i].weight->info.name);
    if (known == uses.end() || int64_t(known->second.size()) != weights[i].experts) continue;
    shelf.learn(known->second);
    for (int64_t e = 0; e < weights[i].experts; ++e)
      if (shelf.use_of(e) > 0) cache->learned_.emplace_back(&shelf, e);
  }
  std::stable_sort(cache->learned_.begin(), cache->learned_.end(), [](auto& a, auto& b) {
    return a.first->use_of(a.second) > b.first->use_of(b.second);
  });
  cache->jobs_.resize(pieces);
  for (int i = 0; i < kReaders; ++i)
    cache->readers_.emplace_back([of = cache.get()] { of->reader(); });
  return cache;
}

ExpertCache::~ExpertCache() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  work_.notify_all();
  for (std::thread& t : readers_) t.join();
  if (memory_) ::munmap(memory_, memory_bytes_);
  ::close(fd_);
}

ExpertPlaces* ExpertCache::places_of(const Weight& weight) const {
  const auto found = by_weight_.find(&weight);
  return found == by_weight_.end() ? nullptr : found->second;
}

ExpertFacts ExpertCache::facts() const {
  const std::scoped_lock lock(mutex_);
  return facts_;
}

ExpertUses ExpertCache::uses() const {
  const std::scoped_lock lock(mutex_);
  ExpertUses all;
  for (const auto& shelf : shelves_) all[shelf->weight().info.name] = shelf->uses();
  return all;
}

void ExpertCache::push(const Job& job) {
  jobs_[(first_job_ + n_jobs_++) % jobs_.size()] = job;
  work_.notify_one();
}

// Returns false if all learned experts are there, or no slot is left.
bool ExpertCache::fill_a_slot() {
  while (next_learned_ < learned_.size() && n_jobs_ == 0) {
    const auto [shelf, expert] = learned_[next_learned_++];
    shelf->fill(expert);
  }
  return n_jobs_ > 0;
}

void ExpertCache::reader() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (n_jobs_ == 0 && !fill_a_slot()) {
      work_.wait(lock);
      continue;
    }
    const Job job = jobs_[first_job_];
    first_job_ = (first_job_ + 1) % jobs_.size(), --n_jobs_;
    const Shelf::Range range = job.shelf->range_of(job);
    lock.unlock();
    const bool whole = read_direct(fd_, range.from, range.to, range.needed, range.memory);
    lock.lock();
    job.shelf->was_read(job, whole, range.to - range.from);
  }
}

}  // namespace chaski
