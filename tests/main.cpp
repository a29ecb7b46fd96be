#define DOCTEST_CONFIG_IMPLEMENT
#include <cstdio>

#include "tests/support.h"

// doctest's own summary, then one plain line for whoever reads the log by machine.
int main(int argc, char** argv) {
  const chaski::test::TempFolder cache;  // stamps and downloads of tests are nobody else's
  ::setenv("XDG_CACHE_HOME", cache.path.c_str(), 1);
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
    void test_case_start(const doctest::TestCaseData&) override {}
    void test_case_reenter(const doctest::TestCaseData&) override {}
    void test_case_end(const doctest::CurrentTestCaseStats&) override {}
    void test_case_exception(const doctest::TestCaseException&) override {}
    void subcase_start(const doctest::SubcaseSignature&) override {}
    void subcase_end() override {}
    void log_assert(const doctest::AssertData&) override {}
    void log_message(const doctest::MessageData&) override {}
    void test_case_skipped(const doctest::TestCaseData&) override {}
  };
  doctest::registerReporter<Counts>("counts", 0, false);
  const int result = context.run();
  if (context.shouldExit()) return result;
  const auto& s = Counts::stats();
  std::printf("%u passed, %u failed\n", s.numTestCasesPassingFilters - s.numTestCasesFailed,
              s.numTestCasesFailed);
  return result;
}
