#include "main/flags/ranks.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <climits>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <thread>

#include "engine/passes/mpi_link.h"
#include "engine/passes/mpirun_text.h"
#include "engine/session/follow.h"
#include "main/flags/mpirun.h"
#include "main/terminal/last_words.h"
#include "main/terminal/output.h"

namespace chaski {

namespace {

// Tells --hosts that this rank is there (engine/passes/mpirun_text.h), until it is destroyed.
class RankSigns {
 public:
  RankSigns() {
    // Read here, because MPI changes the environment while it starts.
    std::array<char, HOST_NAME_MAX + 1> host{};
    ::gethostname(host.data(), host.size() - 1);
    sign_ = {mpi_rank(), host.data()};
    beats_ = std::thread([this] { beat(); });
  }
  ~RankSigns() {
    {
      const std::scoped_lock lock(mutex_);
      over_ = true;
    }
    changed_.notify_one();
    beats_.join();
  }
  RankSigns(const RankSigns&) = delete;

 private:
  static constexpr std::chrono::milliseconds kPause{500};

  void beat() {
    std::unique_lock lock(mutex_);
    for (;;) {
      const std::string text = sign_.text();
      (void)!::write(STDERR_FILENO, text.data(), text.size());
      if (sign_.is_last) return;
      sign_.is_last = changed_.wait_for(lock, kPause, [this] { return over_; });
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  RankSign sign_;
  std::thread beats_;
};

struct RanksOfRun {
  std::vector<std::string> words;  // of the command line
  bool has_launcher = false;       // --hosts has started this process
  std::optional<RankSigns> signs;
  std::shared_ptr<Link> link;
};
RanksOfRun& ranks_of_run() {
  static RanksOfRun of_this_process;
  return of_this_process;
}

// mpirun's daemon on a machine that has lost the others may wait for minutes until TCP gives up.
void end_daemon() {
  std::string name;
  std::ifstream("/proc/" + std::to_string(::getppid()) + "/comm") >> name;
  if (name == "orted") ::kill(::getppid(), SIGKILL);
}

// For a catch (...): the line of the exception, with the host of a rank other than 0. mpirun ends
// the other ranks when one ends before it closes MPI.
[[noreturn]] void end_rank() {
  const Link& link = *ranks_of_run().link;
  const std::string host = link.rank() > 0 ? link.host(link.rank()) + ": " : "";
  try {
    throw;
  } catch (const Error& error) {
    if (Link::is_about_lost_rank(error.what())) {
      put_last_line(error.code, {host, error.what()});
      end_daemon();
      ::_exit(int(error.code));
    }
    end_now(error.code, {host, error.what()});
  } catch (const std::exception& error) {
    end_now(Exit::io, {host, error.what()});
  }
}

// The command line goes to the machines in this variable. In the arguments of mpirun a word ":"
// would begin another program, and every user of a machine could read the prompt.
constexpr const char* kWords = "CHASKI_WORDS";
// The system limits a variable to 128 KB, of hex digits here.
constexpr size_t kMostBytes = 60 << 10;

std::string encoded(const std::vector<std::string>& words) {
  std::string digits;
  for (const std::string& word : words) {
    for (const unsigned char c : word) digits += fmt::format("{:02x}", c);
    digits += "00";
  }
  return digits;
}

std::vector<std::string> decoded(const std::string& digits) {
  std::vector<std::string> words(1);
  for (size_t at = 0; at + 2 <= digits.size(); at += 2) {
    const int c = std::stoi(digits.substr(at, 2), nullptr, 16);
    if (c == 0)
      words.emplace_back();
    else
      words.back() += char(c);
  }
  words.pop_back();
  return words;
}

bool is_host(std::string_view name) {
  return !name.empty() && name[0] != '-' && std::ranges::all_of(name, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-' || c == '_';
  });
}

// Their number.
size_t expect_hosts(std::string_view hosts) {
  size_t n = 0;
  for (size_t at = 0, end; at <= hosts.size(); at = end + 1, ++n) {
    end = std::min(hosts.find(',', at), hosts.size());
    if (!is_host(hosts.substr(at, end - at)))
      fail(Exit::usage, "--hosts is \"{}\", expected names of machines, such as a,b",
           escaped(std::string(hosts)));
  }
  return n;
}

}  // namespace

std::shared_ptr<Link> ranks_link() { return ranks_of_run().link; }

void start_ranks(std::vector<std::string>& words) {
  if (const char* const given = std::getenv("CHASKI_WORDS"); given && mpi_ranks() > 0) {
    words = decoded(given);
    ranks_of_run().has_launcher = true;
    ::unsetenv(kWords);
  }
  ranks_of_run().words = words;
  if (mpi_ranks() < 2) return;
  const pid_t parent = ::getppid();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a rank ends with mpirun or its daemon
  if (::getppid() != parent) ::_exit(int(Exit::io));
  if (ranks_of_run().has_launcher) ranks_of_run().signs.emplace();
  ranks_of_run().link = open_mpi_link();
  ranks_of_run().link->when_given_up = end_rank;
  if (ranks_of_run().link->rank() == 0) return;
  try {
    follow(ranks_of_run().link);
    close_mpi();
  } catch (...) {
    end_rank();
  }
  ranks_of_run().signs.reset();
  std::exit(int(Exit::done));
}

int end_ranks(int status) {
  if (!ranks_of_run().link) return status;
  // An error of the command was printed, and is the only one.
  if (status != int(Exit::done)) ranks_of_run().link->when_given_up = [status] { ::_exit(status); };
  end_followers(*ranks_of_run().link);
  close_mpi();
  ranks_of_run().signs.reset();
  return status;
}

void start_on_hosts(const std::string& hosts, bool wants_terminal) {
  const size_t ranks = expect_hosts(hosts);
  if (mpi_ranks() > 0) return;
  if (wants_terminal)
    fail(Exit::usage,
         "with --hosts there is no terminal to type in, expected -p TEXT, -f FILE or a pipe");
  if (!has_mpi())
    fail(Exit::usage,
         "--hosts needs a chaski that was built with MPI: run scripts/setup.sh --mpi, then make");
  const std::string words = encoded(ranks_of_run().words);
  if (words.size() / 2 > kMostBytes)
    fail(Exit::usage,
         "the command line has {} bytes, expected at most {} with --hosts: use -f FILE",
         words.size() / 2, kMostBytes);
  ::setenv(kWords, words.c_str(), 1);
  std::vector<std::string> start{"mpirun", "--bind-to", "none", "--map-by", "node", "-x", kWords};
  // mpirun finds out about a machine that cannot be reached any more after about 6 seconds.
  for (const char* const setting : {"time", "intvl", "probes"})
    start.insert(start.end(), {"--mca", fmt::format("oob_tcp_keepalive_{}", setting), "2"});
  start.insert(start.end(), {"-n", std::to_string(ranks), "--host", hosts});
  if (::geteuid() == 0) start.push_back("--allow-run-as-root");
  std::error_code none;
  start.push_back(std::filesystem::read_symlink("/proc/self/exe", none));
  std::exit(run_mpirun(std::move(start)));
}

}  // namespace chaski
