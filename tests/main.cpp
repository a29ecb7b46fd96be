#define DOCTEST_CONFIG_IMPLEMENT
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "tests/kit/support.h"

namespace {

// Limit for one test case, so that an endless one does not block the whole run. The slowest case,
// under AddressSanitizer on a slow machine, takes a third of this.
constexpr unsigned kMostSeconds = 900;
const char* running = "";

void out_of_time(int) {
  for (const char* text : {"the test case took too long: ", running, "\n"})
    [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, text, std::strlen(text));
  ::_exit(124);
}

}  // namespace

// Prints doctest's summary, then one line that a script can read.
int main(int argc, char** argv) {
  // Tests use their own cache and config folders, never the user's.
  const chaski::test::TempFolder cache, config;
  for (const char* folders : {"CHASKI_MODELS", "HF_HOME", "OLLAMA_MODELS"}) ::unsetenv(folders);
  ::setenv("CHASKI_HUB", "none", 1);  // no test uses the network
  ::setenv("CHASKI_MEASURE", "brief", 1);
  ::setenv("HOME", cache.path.c_str(), 1);
  ::setenv("XDG_CACHE_HOME", cache.path.c_str(), 1);
  ::setenv("XDG_CONFIG_HOME", config.path.c_str(), 1);
  ::unsetenv("CHASKI_CONFIG");
  doctest::Context context(argc, argv);
  struct Counts : doctest::IReporter {
    static doctest::TestRunStats& stats() {
      static doctest::TestRunStats s;
      return s;
    }
    explicit Counts(const doctest::ContextOptions&) {}
    void report_query(const doctest::QueryData&) override {}
    void test_run_start() override {}
    void test_run_end(const doctest::TestRunStats& s) override { stats() = s; }
    void test_case_start(const doctest::TestCaseData& test) override {
      running = test.m_name;
      ::alarm(kMostSeconds);
    }
    void test_case_reenter(const doctest::TestCaseData&) override {}
    void test_case_end(const doctest::CurrentTestCaseStats&) override {}
    void test_case_exception(const doctest::TestCaseException&) override {}
    void subcase_start(const doctest::SubcaseSignature&) override {}
    void subcase_end() override {}
    void log_assert(const doctest::AssertData&) override {}
    void log_message(const doctest::MessageData&) override {}
    void test_case_skipped(const doctest::TestCaseData&) override {}
  };
  ::signal(SIGALRM, out_of_time);
  doctest::registerReporter<Counts>("counts", 0, false);
  const int result = context.run();
  if (context.shouldExit()) return result;
  const auto& s = Counts::stats();
  std::printf("%u passed, %u failed\n", s.numTestCasesPassingFilters - s.numTestCasesFailed,
              s.numTestCasesFailed);
  return result;
}
