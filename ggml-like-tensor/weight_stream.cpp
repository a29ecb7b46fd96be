#include "ggml-like-tensor/weight_stream.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/direct_read.h"

namespace chaski {

namespace {

// The ring has room for the load in use, the next one, and the end that a large load leaves free.
constexpr uint64_t kLoadsInRing = 3;

// A weight in the ring begins anywhere in a sector, as in the file.
uint64_t ring_part(const Weight& w) { return sector_up(w.info.bytes()) + kSector; }
uint64_t ring_part(const StepWeights& weights) {
  uint64_t bytes = 0;
  for (const Weight* w : weights) bytes += ring_part(*w);
  return bytes;
}
// Calls f(first byte, bytes) for the whole pages of a weight in the file.
template <class Fn>
void each_page_range(const Mapping& file, const Weight& w, Fn f) {
  const auto begin = uint64_t(w.data - file.bytes().data()), first = sector_up(begin),
             end = sector_down(begin + w.info.bytes());
  if (end > first) f(first, end - first);
}

}  // namespace

uint64_t bytes_of(const StepWeights& weights) {
  uint64_t bytes = 0;
  for (const Weight* w : weights) bytes += w->info.bytes();
  return bytes;
}

uint64_t ring_bytes(std::span<const StepWeights> steps) {
  uint64_t largest = 0, all = 0;
  for (const StepWeights& s : steps) all += ring_part(s), largest = std::max(largest, ring_part(s));
  return std::max(largest, std::min(all, kLoadsInRing * largest));
}

std::vector<bool> streamed_within(std::span<const StepWeights> steps, uint64_t bytes) {
  uint64_t all = 0;
  for (const StepWeights& s : steps) all += bytes_of(s);
  const uint64_t ring = ring_bytes(steps);
  if (all <= bytes || bytes < ring) return {};
  const uint64_t must = all - (bytes - ring);
  std::vector<bool> streamed(steps.size());
  double due = 0;
  uint64_t sum = 0;
  const auto stream = [&](size_t i) {
    streamed[i] = true, sum += bytes_of(steps[i]);
    due -= double(bytes_of(steps[i]));
  };
  for (size_t i = 0; i < steps.size(); ++i) {
    due += double(bytes_of(steps[i])) * std::min(1.0, double(must) / double(all));
    if (due > 0) stream(i);
  }
  for (size_t i = 0; i < steps.size() && sum < must; ++i)
    if (!streamed[i]) stream(i);
  return streamed;
}

WeightStream::WeightStream(std::shared_ptr<const Mapping> file, int fd)
    : file_(std::move(file)), fd_(fd) {}

std::unique_ptr<WeightStream> WeightStream::make(std::shared_ptr<const Mapping> file,
                                                 std::span<const StepWeights> steps,
                                                 std::span<const Weight* const> kept) {
  const int fd = file->open_again();
  if (fd < 0) return nullptr;
  std::unique_ptr<WeightStream> s(new WeightStream(std::move(file), fd));
  s->ring_bytes_ = ring_bytes(steps);
  void* const ring =
      ::mmap(nullptr, s->ring_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (ring == MAP_FAILED)
    fail(Exit::memory, "{:.3g} GB of memory for weights cannot be mapped",
         double(s->ring_bytes_) / 1e9);
  s->ring_ = static_cast<std::byte*>(ring);
  uint64_t at = 0;
  for (const StepWeights& step : steps) {
    Load& load = s->loads_.emplace_back();
    load.bytes = ring_part(step);
    if (at + load.bytes > s->ring_bytes_) at = 0;
    load.at = at;
    for (const Weight* w : step) {
      const auto begin = uint64_t(w->data - s->file_->bytes().data()),
                 end = begin + w->info.bytes();
      std::byte* const first = s->ring_ + at;
      s->places_[w] = {first + begin % kSector, int(s->loads_.size()) - 1};
      for (uint64_t from = sector_down(begin); from < end; from += kReadPiece) {
        const uint64_t to = std::min(sector_up(end), from + kReadPiece);
        load.pieces.push_back({from, to, std::min(to, end), first + (from - sector_down(begin))});
      }
      at += ring_part(*w), s->bytes_a_pass_ += w->info.bytes();
      each_page_range(*s->file_, *w, [&](uint64_t from, uint64_t bytes) {
        ::posix_fadvise(fd, off_t(from), off_t(bytes), POSIX_FADV_DONTNEED);
      });
    }
  }
  for (size_t n = s->loads_.size(), i = 0; i < n; ++i) {
    Load& load = s->loads_[i];
    const auto apart = [&](const Load& other) {
      return load.at + load.bytes <= other.at || other.at + other.bytes <= load.at;
    };
    for (load.back = 1; load.back < n && apart(s->loads_[(i + n - load.back) % n]);) ++load.back;
  }
  for (const Weight* w : kept)
    each_page_range(*s->file_, *w, [&](uint64_t from, uint64_t bytes) {
      ::posix_fadvise(fd, off_t(from), off_t(bytes), POSIX_FADV_WILLNEED);
    });
  for (int i = 0; i < kReaders; ++i) s->readers_.emplace_back([of = s.get()] { of->reader(); });
  return s;
}

WeightStream::~WeightStream() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  work_.notify_all();
  for (std::thread& t : readers_) t.join();
  if (ring_) ::munmap(ring_, ring_bytes_);
  ::close(fd_);
}

std::byte* WeightStream::place_of(const Weight& weight) const {
  const auto found = places_.find(&weight);
  return found != places_.end() ? found->second.data : const_cast<std::byte*>(weight.data);
}

int WeightStream::load_of(const Weight& weight) const {
  const auto found = places_.find(&weight);
  return found != places_.end() ? found->second.load : -1;
}

bool WeightStream::can_begin() const {
  const uint64_t back = loads_[next_ % loads_.size()].back;
  return !leaps_ && (next_ < back || used_ > next_ - back);
}

// Passes mostly read all loads in order. One that does not, such as a pass over some of the layers,
// leaps to the load that it needs.
void WeightStream::acquire(int load) {
  std::unique_lock lock(mutex_);
  const uint64_t n = loads_.size(), wanted = used_ + (uint64_t(load) + n - used_ % n) % n;
  if (wanted > next_) {
    leaps_ = true;
    ready_.wait(lock, [&] { return reading_ == 0; });
    next_ = wanted, next_piece_ = 0, leaps_ = false;
  } else if (wanted > used_) {
    ready_.wait(lock, [&] {
      for (uint64_t k = used_; k < wanted; ++k)
        if (loads_[k % n].unread > 0) return false;
      return true;
    });
  }
  if (wanted > used_) used_ = wanted, work_.notify_all();
  ready_.wait(lock, [&] { return next_ > wanted && loads_[size_t(load)].unread == 0; });
}

void WeightStream::release(int load) {
  const std::scoped_lock lock(mutex_);
  ENSURE(used_ % loads_.size() == size_t(load), "the weights that were acquired are released");
  ++used_;
  work_.notify_all();
}

void WeightStream::reader() {
  for (std::unique_lock lock(mutex_);;) {
    work_.wait(lock, [&] { return stop_ || can_begin(); });
    if (stop_) return;
    Load& load = loads_[next_ % loads_.size()];
    if (next_piece_ == 0) load.unread = load.pieces.size();
    const Piece& piece = load.pieces[next_piece_++];
    if (next_piece_ == load.pieces.size()) next_piece_ = 0, ++next_;
    ++reading_;
    lock.unlock();
    // After an error the system reads the mapped file, and a fault there is reported.
    if (!read_direct(fd_, piece.from, piece.to, piece.needed, piece.memory))
      std::memcpy(piece.memory, file_->bytes().data() + piece.from, piece.needed - piece.from);
    lock.lock();
    --reading_;
    if (--load.unread == 0 || reading_ == 0) ready_.notify_all();
  }
}

}  // namespace chaski
