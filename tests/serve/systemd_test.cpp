// chaski serve under a service manager: the test plays systemd's part of sd_notify(3) and of
// sd_listen_fds(3), and systemd's own tools check the units.
#include <sys/un.h>

#include "tests/kit/client.h"

using namespace chaski::test;

namespace {

// The socket on which systemd waits for messages.
class Manager {
 public:
  explicit Manager(const std::string& name) : fd_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    std::copy(name.begin(), name.end(), at.sun_path);
    if (name[0] == '@') at.sun_path[0] = 0;
    const auto size = socklen_t(offsetof(sockaddr_un, sun_path) + name.size());
    REQUIRE(::bind(fd_, reinterpret_cast<sockaddr*>(&at), size) == 0);
    const timeval most{20, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
  }
  ~Manager() { ::close(fd_); }
  Manager(const Manager&) = delete;
  // The next message that begins with NAME=1. Messages with a status alone come before it.
  std::string next(const std::string& name) {
    for (;;) {
      char text[4096];
      const ssize_t n = ::recv(fd_, text, sizeof text, 0);
      REQUIRE_MESSAGE(n > 0, name);
      const std::string message(text, size_t(n));
      if (message.starts_with(name + "=1")) return message;
      CHECK_MESSAGE(message.starts_with("STATUS="), message);
    }
  }

 private:
  int fd_;
};

// A listening socket that programs inherit.
class Listening {
 public:
  Listening() : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET, at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    REQUIRE(::bind(fd_, reinterpret_cast<sockaddr*>(&at), size) == 0);
    REQUIRE(::listen(fd_, 16) == 0);
    REQUIRE(::getsockname(fd_, reinterpret_cast<sockaddr*>(&at), &size) == 0);
    port_ = ntohs(at.sin_port);
  }
  ~Listening() { ::close(fd_); }
  Listening(const Listening&) = delete;
  int fd() const { return fd_; }
  int port() const { return port_; }

 private:
  int fd_, port_ = 0;
};

}  // namespace

TEST_CASE("systemd/READY when the model is open, RELOADING and READY at SIGHUP, STOPPING") {
  const TempFolder folder;
  for (const std::string& name :
       {folder / "notify", "@chaski-test-" + std::to_string(::getpid())}) {
    CAPTURE(name);
    Manager manager(name);
    const OwnVariable variable("NOTIFY_SOCKET", name);
    write_file(folder / "keys", "first\n");
    Program program(
        {"serve", "-m", kStory, "--port", "0", "--no-log", "-q", "--api-keys", folder / "keys"},
        "");
    CHECK(manager.next("READY") == "READY=1\nSTATUS=story is open");
    write_file(folder / "keys", "first name=a\nsecond name=a\n");
    program.signal(SIGHUP);
    CHECK(contains(manager.next("RELOADING"), "\nMONOTONIC_USEC="));
    CHECK(manager.next("READY") == "READY=1\nSTATUS=the keys stay as they were");
    program.signal(SIGTERM);
    manager.next("STOPPING");
    const Outcome outcome = program.wait();
    CHECK_MESSAGE(outcome.status == 0, outcome.err);
    CHECK(contains(outcome.err, "line 2: the name a is taken"));
  }
}

TEST_CASE("systemd/a reload does not end a server without keys; a wrong NOTIFY_SOCKET is named") {
  const TempFolder folder;
  {
    Manager manager(folder / "notify");
    const OwnVariable variable("NOTIFY_SOCKET", folder / "notify");
    Program program({"serve", "-m", kStory, "--port", "0", "--no-log", "-q"}, "");
    manager.next("READY");
    program.signal(SIGHUP);
    manager.next("RELOADING");
    manager.next("READY");
    program.signal(SIGTERM);
    CHECK(program.wait().status == 0);
  }
  for (const std::string& name : {folder / "none", std::string(200, 'x')}) {
    const OwnVariable variable("NOTIFY_SOCKET", name);
    const Outcome outcome = chaski_run({"serve", "-m", kStory, "--port", "0", "--check", "-q"});
    CHECK_MESSAGE(outcome.status == 0, outcome.err);
    CHECK_MESSAGE(contains(outcome.err, "NOTIFY_SOCKET"), outcome.err);
  }
}

TEST_CASE("systemd/a connection that came before the start is answered when the model is open") {
  const Listening listening;
  Client early(listening.port());
  early.put(request_text("GET", "/health"));
  // The shell has the process id that LISTEN_PID must name, and keeps it.
  Program program({"-c", "LISTEN_PID=$$ LISTEN_FDS=1 exec " + chaski_binary() + " serve -m " +
                             kStory + " --no-log -q 3<&" + std::to_string(listening.fd())},
                  "", "", "/bin/sh");
  const HttpResponse response = early.response();
  CHECK(response.status == 200);
  CHECK(response.json()["status"] == "ok");
  CHECK(program.out_so_far() == "http://127.0.0.1:" + std::to_string(listening.port()) + "\n");
  program.signal(SIGTERM);
  CHECK(program.wait().status == 0);
}

TEST_CASE(
    "systemd/each flag of serve.toml is one that serve has, and all-models offers the folder") {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "models");
  std::filesystem::copy(kStory, folder / "models/tale.quipu");
  std::string config;  // as a user changes it
  int flags = 0;
  for (std::string line : lines_of(read_file("scripts/package/systemd/serve.toml"))) {
    const bool flag = line.starts_with("# ") && contains(line, " = ");
    if (flag) line = line.substr(2), ++flags;
    if (line.starts_with("model =")) line = "model = \"tale.quipu\"";
    if (line.starts_with("api-keys =")) line = "api-keys = \"" + (folder / "keys") + "\"";
    if (line.starts_with("port =")) line = "port = 0";
    config += line + "\n";
  }
  CHECK(flags >= 7);
  CHECK(contains(config, "\nall-models = true\n"));
  write_file(folder / "keys", "key\n");
  const OwnVariable file("CHASKI_CONFIG", write_file(folder / "serve.toml", config)),
      models("CHASKI_MODELS", folder / "models"), home("HOME", folder / "home"),
      cache("XDG_CACHE_HOME", folder / "cache"), hub("HF_HOME", folder / "hub"),
      ollama("OLLAMA_MODELS", folder / "ollama");
  std::filesystem::copy(kStory, folder / "models/second.quipu");
  const Outcome outcome = chaski_run({"serve", "--check"});
  CHECK_MESSAGE(outcome.status == 0, outcome.err);
  CHECK_MESSAGE(contains(outcome.err, "2 models are offered: tale, second"), outcome.err);
}

TEST_CASE("systemd/its own tools find no fault in the units, and an exposure of at most 2 of 10") {
  if (std::system("command -v systemd-analyze >/dev/null") != 0)
    return (void)std::fprintf(stderr, "SKIPPED: systemd-analyze is not there\n");
  const TempFolder folder;
  const auto shell = [](const std::string& line) {
    return Program({"-c", line}, "", "", "/bin/sh").wait();
  };
  // verify looks for the program.
  REQUIRE(shell("mkdir -p " + folder / "bin" + " && ln -s /bin/true " + folder / "bin/chaski" +
                " && scripts/package/install_units.sh " + folder.path + " ''")
              .status == 0);
  const std::string units = folder / "lib/systemd/system/chaski.";
  const Outcome verified =
      shell("systemd-analyze verify --man=no " + units + "service " + units + "socket");
  CHECK_MESSAGE(verified.status == 0, verified.err);
  CHECK_MESSAGE(!contains(verified.err, folder.path), verified.err);
  const Outcome security =
      shell("systemd-analyze security --offline=true --threshold=20 " + units + "service");
  CHECK_MESSAGE(security.status == 0, security.out);
}
