// Threads for requests that wait for the engine: one for each that runs, and a bounded queue.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace chaski {

class Workers {
 public:
  // A thread starts when there is work for it. `most_waiting`: jobs that no thread has begun, and
  // paused ones.
  Workers(int most_threads, int most_waiting)
      : most_threads_(most_threads), most_waiting_(most_waiting) {}
  ~Workers();  // drops the jobs that no thread has begun, and waits for the others
  Workers(const Workers&) = delete;

  struct Job {
    std::function<void()> run;      // must not throw
    std::function<bool()> is_over;  // true: its client has gone
  };
  // Any thread may call these. False if the queue is full. Throws std::system_error if there is no
  // thread and none can start.
  bool add(Job job);
  void drop_over();  // from the queue
  // For a job that waits for something else than the engine. As long as this object lives, another
  // job may run in its place. The destructor waits until a place is free.
  class Pause {
   public:
    explicit Pause(Workers& workers) : workers_(workers) { workers_.pause(); }
    ~Pause() { workers_.resume(); }
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    Workers& workers_;
  };
  int running() const;
  int waiting() const;
  // The expected seconds until a job that is added now begins: the mean time of a job, times the
  // number of waiting jobs plus 1, divided by the number of threads.
  double wait_seconds() const;

 private:
  void work();
  void pause();
  void resume();
  void start_thread();
  // Places for new jobs.
  int free() const { return most_threads_ - running_ + paused_ - resuming_; }

  const int most_threads_, most_waiting_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::vector<std::thread> threads_;
  // Jobs with a thread; those of them that are paused; those of these that wait for a place.
  int running_ = 0, paused_ = 0, resuming_ = 0;
  double mean_seconds_ = 0;  // of a job; newer ones count more
  bool over_ = false;
};

}  // namespace chaski
