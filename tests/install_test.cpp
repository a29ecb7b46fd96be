// What the Makefile does with a program that is built: it installs one file, and links one that can
// be carried to another machine. Nothing is compiled here.
#include <sstream>

#include "tests/program.h"

using namespace chaski::test;
namespace fs = std::filesystem;

namespace {

std::string build_folder() { return fs::path(chaski_binary()).parent_path(); }

// make as a user calls it, although it may be make that runs the tests.
Outcome make(const std::string& arguments) {
  return Program({"-c",
                  "unset MAKEFLAGS MAKELEVEL MFLAGS MAKEOVERRIDES MODE STATIC BUILD; "
                  "exec make -j1 -o build/.setup " +
                      arguments},
                 "", "", "/bin/sh")
      .wait();
}

}  // namespace

TEST_CASE("make install puts one file where it was told, and that runs anywhere") {
  const TempFolder folder;
  const std::string root = folder / "root", installed = root + "/opt/chaski/bin/chaski";
  const Outcome done = make("-o " + chaski_binary() + " BUILD=" + build_folder() +
                            " PREFIX=/opt/chaski DESTDIR=" + root + " install");
  REQUIRE_MESSAGE(done.status == 0, done.err);
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(root))
    if (!entry.is_directory()) files.push_back(entry.path());
  CHECK(files == std::vector<std::string>{installed});
  CHECK(fs::status(installed).permissions() == fs::perms(0755));
  const Outcome story =
      Program({"-c", "cd / && exec " + installed + " run --device cpu -n 4 --seed 1"}, "", "",
              "/bin/sh")
          .wait();
  CHECK_MESSAGE(story.status == 0, story.err);
  CHECK(story.out.starts_with("Once upon a time"));
}

TEST_CASE("make STATIC=1 links every library but libc into the program") {
  const TempFolder folder;
  const std::string program = folder / "chaski";
  const Outcome plan = make("-n STATIC=1 CUDA=0 BUILD=" + folder.path + " " + program);
  REQUIRE_MESSAGE(plan.status == 0, plan.err);
  std::istringstream lines(plan.out);
  int links = 0, compiled = 0;
  for (std::string line; std::getline(lines, line);) {
    const size_t source = line.find(" -c ");
    if (source != std::string::npos && line.find("main/", source) != std::string::npos) {
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
    for (const char* library : {"-ledit", "-lpcre2-8", "-lutf8proc", "-lxxhash"})
      CHECK_MESSAGE(std::count(libraries.begin(), libraries.end(), library) == 1, line);
  }
  CHECK(links == 1);
  CHECK(compiled > 3);  // units of main/
}
