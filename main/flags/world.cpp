#include "main/flags/world.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <vector>

#include "engine/passes/mpi_link.h"
#include "engine/session/follow.h"
#include "main/terminal/last_words.h"

namespace chaski {

namespace {

std::shared_ptr<Link>& world() {
  static std::shared_ptr<Link> link;
  return link;
}

constexpr std::string_view kHostsFlag = "--hosts", kHostsPrefix = "--hosts=";

// The value of --hosts, before the command line is parsed: standard input is not read yet. For
// chaski plan it is a number.
std::string hosts_in(std::span<char* const> words) {
  if (words.size() < 2 || words[1] == std::string_view("plan")) return "";
  for (size_t i = 2; i < words.size() && words[i] != std::string_view("--"); ++i) {
    if (words[i] == kHostsFlag && i + 1 < words.size()) return words[i + 1];
    if (std::string_view(words[i]).starts_with(kHostsPrefix)) return words[i] + kHostsPrefix.size();
  }
  return "";
}

std::vector<std::string> words_of_this_process() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string all((std::istreambuf_iterator<char>(file)), {});
  std::vector<std::string> words;
  for (size_t at = 0, end; at < all.size(); at = end + 1) {
    end = std::min(all.find('\0', at), all.size());
    words.push_back(all.substr(at, end - at));
  }
  return words;
}

}  // namespace

std::shared_ptr<Link> world_link() { return world(); }

int enter_world(int argc, char** argv) {
  if (mpi_ranks() == 1) {
    if (const std::string hosts = hosts_in({argv, size_t(argc)}); !hosts.empty())
      start_on_hosts(hosts);
    return -1;
  }
  world() = open_mpi_link();
  if (world()->rank() == 0) return -1;
  try {
    follow(world());
    close_mpi();
    return int(Exit::done);
  } catch (const Error& error) {
    // mpirun ends the other ranks when one ends before it closes MPI.
    const std::string host = world()->host(world()->rank()) + ": ";
    end_now(error.code, {host, error.what()});
  }
}

int leave_world(int status) {
  if (!world()) return status;
  if (world()->given_up()) ::_exit(status);
  end_followers(*world());
  close_mpi();
  return status;
}

void start_on_hosts(const std::string& hosts) {
  if (mpi_ranks() > 1) return;
  const auto ranks = std::count(hosts.begin(), hosts.end(), ',') + 1;
  std::vector<std::string> words{"mpirun", "--quiet", "--bind-to",           "none",   "--map-by",
                                 "node",   "-n",      std::to_string(ranks), "--host", hosts};
  if (::geteuid() == 0) words.push_back("--allow-run-as-root");
  const std::vector<std::string> own = words_of_this_process();
  std::error_code none;
  words.push_back(std::filesystem::read_symlink("/proc/self/exe", none));
  for (size_t i = 1; i < own.size(); ++i) {
    if (own[i] == kHostsFlag)
      ++i;
    else if (!own[i].starts_with(kHostsPrefix))
      words.push_back(own[i]);
  }
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  fail(Exit::io, "--hosts needs mpirun, which does not start: {} (scripts/setup.sh --mpi)",
       std::strerror(errno));
}

}  // namespace chaski
