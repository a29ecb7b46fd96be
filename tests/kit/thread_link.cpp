#include "tests/kit/thread_link.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>

#include "ggml-like-tensor/base/error.h"

namespace chaski::test {

namespace {

// The messages under way, by sender and receiver.
struct Mail {
  explicit Mail(int ranks) : ranks(ranks), boxes(size_t(ranks * ranks)), gone(size_t(ranks)) {}

  using Message = std::vector<std::byte>;
  std::deque<Message>& box(int from, int to) { return boxes[size_t(from * ranks + to)]; }

  const int ranks;
  std::mutex mutex;
  std::condition_variable arrived;
  std::vector<std::deque<Message>> boxes;
  std::vector<bool> gone;  // by rank
};

class ThreadLink : public Link {
 public:
  ThreadLink(std::shared_ptr<Mail> mail, int rank, double silence)
      : mail_(std::move(mail)), rank_(rank), silence_(silence) {}
  ~ThreadLink() override {
    const std::scoped_lock lock(mail_->mutex);
    mail_->gone[size_t(rank_)] = true;
    mail_->arrived.notify_all();
  }

  int rank() const override { return rank_; }
  int ranks() const override { return mail_->ranks; }
  std::string host(int rank) const override { return fmt::format("thread {}", rank); }
  uint64_t least_bytes() const override { return 0; }

  void exchange(std::span<const Out> out, std::span<const In> in, double seconds) override {
    std::unique_lock lock(mail_->mutex);
    for (const Out& o : out) mail_->box(rank_, o.to).emplace_back(o.bytes.begin(), o.bytes.end());
    if (!out.empty()) mail_->arrived.notify_all();
    for (const In& i : in) {
      auto& box = mail_->box(i.from, rank_);
      const auto here = [&] { return !box.empty() || mail_->gone[size_t(i.from)]; };
      if (seconds == kWithoutEnd)
        mail_->arrived.wait(lock, here);
      else if (!mail_->arrived.wait_for(
                   lock, std::chrono::duration<double>(std::min(seconds, silence_)), here))
        is_silent(i.from, std::min(seconds, silence_));
      if (box.empty()) is_gone(i.from);
      ENSURE(box.front().size() == i.bytes.size(), "a message has the size that is expected");
      std::copy(box.front().begin(), box.front().end(), i.bytes.begin());
      box.pop_front();
    }
  }

 private:
  const std::shared_ptr<Mail> mail_;
  const int rank_;
  const double silence_;
};

}  // namespace

std::vector<std::shared_ptr<Link>> thread_links(int ranks, double silence) {
  const auto mail = std::make_shared<Mail>(ranks);
  std::vector<std::shared_ptr<Link>> links;
  for (int r = 0; r < ranks; ++r) links.push_back(std::make_shared<ThreadLink>(mail, r, silence));
  return links;
}

}  // namespace chaski::test
