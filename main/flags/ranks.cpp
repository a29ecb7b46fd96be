#include "main/flags/ranks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "engine/passes/mpi_link.h"
#include "engine/session/follow.h"
#include "main/terminal/last_words.h"
#include "main/terminal/output.h"

namespace chaski {

namespace {

struct RanksOfRun {
  std::vector<std::string> words;  // of the command line
  std::shared_ptr<Link> link;
};
RanksOfRun& ranks_of_run() {
  static RanksOfRun of_this_process;
  return of_this_process;
}

// For a catch (...): the line of the exception, with the host of a rank other than 0. mpirun ends
// the other ranks when one ends before it closes MPI.
[[noreturn]] void end_rank() {
  const Link& link = *ranks_of_run().link;
  const std::string host = link.rank() > 0 ? link.host(link.rank()) + ": " : "";
  try {
    throw;
  } catch (const Error& error) {
    end_now(error.code, {host, error.what()});
  } catch (const std::exception& error) {
    end_now(Exit::io, {host, error.what()});
  }
}

// The command line goes to the first machine in this variable. In the arguments of mpirun a word
// ":" would begin another program, and every user of a machine could read the prompt.
constexpr const char* kWords = "CHASKI_WORDS";
constexpr size_t kMostBytes =
    60 << 10;  // the system limits a variable to 128 KB, of hex digits here

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
    ::unsetenv(kWords);
  }
  ranks_of_run().words = words;
  if (mpi_ranks() < 2) return;
  ranks_of_run().link = open_mpi_link();
  ranks_of_run().link->when_given_up = end_rank;
  if (ranks_of_run().link->rank() == 0) return;
  try {
    follow(ranks_of_run().link);
    close_mpi();
  } catch (...) {
    end_rank();
  }
  std::exit(int(Exit::done));
}

int end_ranks(int status) {
  if (!ranks_of_run().link) return status;
  // An error of the command was printed, and is the only one.
  if (status != int(Exit::done)) ranks_of_run().link->when_given_up = [status] { ::_exit(status); };
  end_followers(*ranks_of_run().link);
  close_mpi();
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
  std::vector<std::string> start{
      "mpirun", "--bind-to",           "none",   "--map-by", "node", "-x", kWords,
      "-n",     std::to_string(ranks), "--host", hosts};
  if (::geteuid() == 0) start.push_back("--allow-run-as-root");
  std::error_code none;
  start.push_back(std::filesystem::read_symlink("/proc/self/exe", none));
  std::vector<char*> arguments;
  for (std::string& word : start) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  fail(Exit::io, "--hosts needs mpirun, which does not start: {} (scripts/setup.sh --mpi)",
       std::strerror(errno));
}

}  // namespace chaski
