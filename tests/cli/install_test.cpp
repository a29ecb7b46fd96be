// Targets of the Makefile for a built program: install, a static link for other machines, a Debian
// package. These tests compile nothing.
#include <sstream>

#include "tests/kit/program.h"

using namespace chaski::test;
namespace fs = std::filesystem;

namespace {

std::string build_folder() { return fs::path(chaski_binary()).parent_path(); }

// Runs make as a user would, without the variables of a make that runs the tests.
Outcome make(const std::string& arguments) {
  return Program({"-c",
                  "unset MAKEFLAGS MAKELEVEL MFLAGS MAKEOVERRIDES MODE STATIC BUILD; "
                  "exec make -j1 -o build/.setup " +
                      arguments},
                 "", "", "/bin/sh")
      .wait();
}

}  // namespace

TEST_CASE("make install writes program, manual, completions and units to PREFIX") {
  const TempFolder folder;
  const std::string root = folder / "root", installed = root + "/opt/chaski/bin/chaski";
  const Outcome done =
      make("-o " + chaski_binary() + " BUILD=" + build_folder() +
           " PREFIX=/opt/chaski DESTDIR=" + fs::relative(root).string() + " install");
  REQUIRE_MESSAGE(done.status == 0, done.err);
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(root))
    if (!entry.is_directory()) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  const std::string share = root + "/opt/chaski/share/";
  for (const char* file : {"man/man1/chaski.1", "man/man1/chaski-run.1",
                           "man/man1/chaski-completion.1", "bash-completion/completions/chaski",
                           "zsh/site-functions/_chaski", "fish/vendor_completions.d/chaski.fish"})
    CHECK_MESSAGE(std::ranges::count(files, share + file) == 1, file);
  const std::string units = root + "/opt/chaski/lib/systemd/system/chaski.",
                    config = root + "/opt/chaski/etc/chaski/serve.toml";
  for (const std::string& file : {installed, config, units + "service", units + "socket"})
    CHECK_MESSAGE(std::erase(files, file) == 1, file);
  for (const std::string& file : files)
    CHECK_MESSAGE((file.starts_with(share) && fs::file_size(file) > 100), file);
  const std::string unit = read_file(units + "service");
  CHECK(contains(unit, "ExecStart=/opt/chaski/bin/chaski serve\n"));
  CHECK(contains(unit, "CHASKI_CONFIG=/opt/chaski/etc/chaski/serve.toml\n"));
  CHECK(fs::status(installed).permissions() == fs::perms(0755));
  const Outcome story =
      Program({"-c", "cd / && exec " + installed + " run --device cpu -n 4 --seed 1"}, "", "",
              "/bin/sh")
          .wait();
  CHECK_MESSAGE(story.status == 0, story.err);
  CHECK(story.out.starts_with("Once upon a time"));
}

TEST_CASE("make STATIC=1 links every library except libc into the program") {
  const TempFolder folder;
  const std::string program = folder / "chaski";
  const Outcome plan = make("-n STATIC=1 CUDA=0 BUILD=" + folder.path + " " + program);
  REQUIRE_MESSAGE(plan.status == 0, plan.err);
  std::istringstream lines(plan.out);
  int links = 0, compiled = 0;
  for (std::string line; std::getline(lines, line);) {
    const size_t source = line.find(" -c ");
    if (source != std::string::npos && line.find("main/", source) != std::string::npos &&
        line.find(".S ", source) == std::string::npos) {
      ++compiled;
      CHECK_MESSAGE(line.find("-DFMT_HEADER_ONLY") != std::string::npos, line);
    }
    if (line.find(" -o " + program + " ") == std::string::npos) continue;
    ++links;
    CHECK_MESSAGE(line.find("-static-libstdc++ -static-libgcc") != std::string::npos, line);
    std::istringstream words(line);
    bool inside = false;
    std::vector<std::string> libraries, shared;
    for (std::string word; words >> word;) {
      if (word == "-Wl,-Bstatic") inside = true;
      if (word == "-Wl,-Bdynamic") inside = false;
      if (word.starts_with("-l")) (inside ? libraries : shared).push_back(word);
    }
    CHECK(shared.empty());
    for (const char* library : {"-ledit", "-levent_extra", "-lpcre2-8", "-lutf8proc", "-lxxhash"})
      CHECK_MESSAGE(std::count(libraries.begin(), libraries.end(), library) == 1, line);
  }
  CHECK(links == 1);
  CHECK(compiled > 3);  // units of main/
}

// scripts/package/try_dist.sh starts the packages of a static build in empty systems.
TEST_CASE("make dist: a wheel carries the program, executable and with sums") {
  if (std::system("command -v python3 >/dev/null") != 0)
    return (void)std::fprintf(stderr, "SKIPPED: python3 is not there\n");
  const TempFolder folder;
  const auto shell = [](const std::string& line) {
    return Program({"-c", line}, "", "", "/bin/sh").wait();
  };
  const std::string usr = folder / "usr";
  REQUIRE(shell("mkdir -p " + usr + "/bin " + usr + "/share/man/man1 && echo page > " + usr +
                "/share/man/man1/chaski.1 && cp " + chaski_binary() + " " + usr + "/bin/chaski")
              .status == 0);
  const Outcome made = shell("SOURCE_DATE_EPOCH=1700000000 python3 scripts/package/wheel.py " +
                             usr + " LICENSE " + folder.path + " 0.1.0 manylinux_2_36_x86_64");
  REQUIRE_MESSAGE(made.status == 0, made.err);
  const std::string wheel = folder / "chaski-0.1.0-py3-none-manylinux_2_36_x86_64.whl";
  // What pip does: it compares sums and installs scripts as programs.
  const Outcome read = shell(R"(python3 - )" + wheel + " " + folder.path + R"( <<'END'
import base64, hashlib, sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
rows = [line.split(",") for line in wheel.read("chaski-0.1.0.dist-info/RECORD").decode().split()]
assert sorted(r[0] for r in rows) == sorted(wheel.namelist()), rows
for name, sum, size in rows[:-1]:
    content = wheel.read(name)
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
    assert sum == "sha256=" + digest and int(size) == len(content), name
script = wheel.getinfo("chaski-0.1.0.data/scripts/chaski")
assert script.external_attr >> 16 & 0o111 == 0o111
open(sys.argv[2] + "/program", "wb").write(wheel.read(script))
print(wheel.read("chaski-0.1.0.dist-info/WHEEL").decode())
print([n for n in wheel.namelist() if "share" in n])
END
)");
  REQUIRE_MESSAGE(read.status == 0, read.err);
  CHECK_MESSAGE(contains(read.out, "Tag: py3-none-manylinux_2_36_x86_64"), read.out);
  CHECK_MESSAGE(contains(read.out, "chaski-0.1.0.data/data/share/man/man1/chaski.1"), read.out);
  const Outcome story = shell("chmod +x " + folder / "program" + " && cd / && exec " +
                              folder / "program" + " run --device cpu -n 4 --seed 1");
  CHECK_MESSAGE(story.out.starts_with("Once upon a time"), story.err);
}

TEST_CASE("setup.sh: the packages of Debian, Ubuntu and Fedora") {
  const auto packages = [](const std::string& more) {
    return Program({"-c", "scripts/setup.sh --print " + more}, "", "", "/bin/sh").wait().out;
  };
  CHECK(packages("debian").starts_with("g++ make "));
  CHECK(packages("fedora").starts_with("gcc-c++ make "));
  const auto count = [](const std::string& text) {
    return std::count(text.begin(), text.end(), ' ');
  };
  CHECK(count(packages("debian")) == count(packages("fedora")));
  CHECK(contains(packages("fedora --dev"), "dpkg-dev"));
  CHECK(contains(packages("debian --mpi"), " libopenmpi-dev "));
}

TEST_CASE("make deb: a package with its dependencies, and its program runs") {
  if (std::system("command -v dpkg-deb >/dev/null && command -v dpkg-shlibdeps >/dev/null") != 0)
    return (void)std::fprintf(stderr, "SKIPPED: dpkg-deb and dpkg-shlibdeps are not there\n");
  if (has_address_sanitizer())
    return (void)std::fprintf(stderr, "SKIPPED: AddressSanitizer's library is in no package\n");
  const TempFolder folder;
  // xz, the default, takes many times as long
  setenv("DPKG_DEB_COMPRESSOR_TYPE", "gzip", 1), setenv("DPKG_DEB_COMPRESSOR_LEVEL", "1", 1);
  const Outcome built = make("-o " + chaski_binary() + " BUILD=" + build_folder() +
                             " DEB=" + folder / "deb" + " deb");
  REQUIRE_MESSAGE(built.status == 0, built.err);
  const size_t at = built.out.rfind(folder.path);
  const std::string package = built.out.substr(at, built.out.find('\n', at) - at);
  REQUIRE_MESSAGE(package.ends_with(".deb"), built.out);
  const auto shell = [](const std::string& line) {
    return Program({"-c", line}, "", "", "/bin/sh").wait();
  };
  const std::string about = shell("dpkg-deb --info " + package).out,
                    files = shell("dpkg-deb --contents " + package).out;
  for (const char* line :
       {" Package: chaski\n", " Version: 0.", " Depends: lib", "libc6", " Recommends: libcurl4"})
    CHECK_MESSAGE(contains(about, line), about);
  for (const char* file :
       {"root/root", " ./usr/bin/chaski\n", " ./usr/share/man/man1/chaski-run.1.gz\n",
        " ./usr/share/bash-completion/completions/chaski\n",
        " ./usr/share/zsh/vendor-completions/_chaski\n", " ./usr/share/doc/chaski/copyright\n",
        " ./usr/lib/systemd/system/chaski.service\n", " ./usr/lib/systemd/system/chaski.socket\n",
        " ./etc/chaski/serve.toml\n"})
    CHECK_MESSAGE(contains(files, file), file);
  const std::string root = folder / "unpacked";
  const Outcome story = shell("dpkg-deb -x " + package + " " + root + " && cd / && exec " + root +
                              "/usr/bin/chaski run --device cpu -n 4 --seed 1");
  CHECK_MESSAGE(story.status == 0, story.err);
  CHECK(story.out.starts_with("Once upon a time"));
}
