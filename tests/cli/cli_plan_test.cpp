// chaski plan through the real binary: its predictions are what happens.
#include <nlohmann/json.hpp>

#include "engine/session/engine.h"
#include "tests/kit/program.h"

using namespace chaski;
using namespace chaski::test;
using nlohmann::json;

namespace {

// An empty cache folder, so that no measurements are kept.
class OwnCache {
 public:
  OwnCache() : before_(std::getenv("XDG_CACHE_HOME")) {
    setenv("XDG_CACHE_HOME", folder_.path.c_str(), 1);
  }
  ~OwnCache() { setenv("XDG_CACHE_HOME", before_.c_str(), 1); }
  std::string folder() const { return folder_ / "chaski/speed"; }
  std::vector<std::string> speeds() const {
    std::vector<std::string> all;
    for (const auto& file : std::filesystem::directory_iterator(folder()))
      all.push_back(read_file(file.path()));
    return all;
  }

 private:
  TempFolder folder_;
  std::string before_;
};

Outcome under(const std::string& limit, const std::string& arguments) {
  const TempFolder folder;
  const std::string command = limit + "; " + chaski_binary() + " " + arguments + " >" +
                              (folder / "out") + " 2>" + (folder / "err");
  const int status = std::system(("bash -c '" + command + "'").c_str());
  return {WEXITSTATUS(status), read_file(folder / "out"), read_file(folder / "err")};
}

// The number after `what`.
long number_after(const std::string& text, const std::string& what) {
  const size_t at = text.find(what);
  return at == std::string::npos ? -1 : std::atol(text.c_str() + at + what.size());
}

}  // namespace

TEST_CASE("cli/plan: a recurrent state has its own row, with the bytes that inspect says") {
  const OwnCache cache;
  for (const std::string model : {"models/mamba2", "models/qwen35"}) {
    CAPTURE(model);
    const Outcome plan = chaski_run({"plan", golden(model), "--device", "cpu", "--json"});
    REQUIRE_MESSAGE(plan.status == 3, plan.err);  // these models have no tokenizer
    const json file = json::parse(chaski_run({"inspect", golden(model), "--json"}).out);
    CHECK(json::parse(plan.out)["recurrent_bytes"] == file["states"]["recurrent_bytes"]);
    CHECK(json::parse(plan.out)["recurrent_bytes"].get<int64_t>() > 0);
    CHECK(contains(chaski_run({"plan", golden(model), "--device", "cpu"}).out, "recurrent state"));
  }
}

TEST_CASE("cli/plan: memory is what inspect and bench say, and speeds are measured once") {
  const OwnCache cache;
  const Outcome first = chaski_run({"plan", kStory, "-c", "256", "--device", "cpu", "--json"});
  REQUIRE_MESSAGE(first.status == 0, first.err);
  CHECK(first.err.empty());
  const json plan = json::parse(first.out),
             file = json::parse(chaski_run({"inspect", kStory, "--json"}).out);
  CHECK(plan["context"] == 256);
  CHECK(plan["fits"] == true);
  CHECK(plan["longest_context"] == 512);
  CHECK(plan["weights_mapped"] == true);
  const auto near = [](const json& bytes) { return doctest::Approx(bytes.get<double>()); };
  CHECK(plan["weight_bytes"].get<double>() == near(file["weight_bytes"]).epsilon(0.01));
  // Keys and values, and the rotary angles.
  const double kept = file["states"]["bytes_per_1024_tokens"].get<double>() / 4;
  CHECK(plan["state_bytes"].get<double>() >= kept);
  CHECK(plan["state_bytes"].get<double>() <= 1.2 * kept);
  CHECK(plan["activation_bytes"].get<double>() > 0);
  CHECK(plan["decode_tokens_per_second"].get<double>() > 1);
  CHECK(plan["prompt_tokens_per_second"].get<double>() > 1);
  CHECK(plan["decode_tokens_per_second_at_the_end"].get<double>() <
        plan["decode_tokens_per_second"].get<double>());
  CHECK(cache.speeds().size() == 2);  // of the memory and of the model
  const auto before = cache.speeds();
  const json again =
      json::parse(chaski_run({"plan", "-m", kStory, "--device", "cpu", "--json"}).out);
  CHECK(again["decode_tokens_per_second"] == plan["decode_tokens_per_second"]);
  CHECK(again["context"] == 512);
  CHECK(cache.speeds() == before);
  // Speeds of another build are measured again.
  for (const auto& file : std::filesystem::directory_iterator(cache.folder()))
    if (contains(read_file(file.path()), "prompt and decode"))
      write_file(file.path(),
                 "5 7 tokens per second, prompt and decode, measured by another program\n");
  const json rebuilt = json::parse(chaski_run({"plan", kStory, "--device", "cpu", "--json"}).out);
  CHECK(rebuilt["decode_tokens_per_second"] != 7);
  const Outcome measured = chaski_run({"plan", kStory, "--device", "cpu", "--measure"});
  CHECK_MESSAGE(measured.status == 0, measured.err);
  CHECK(cache.speeds() != before);
  CHECK_MESSAGE(contains(measured.out, "it fits, with a context of 512\n"), measured.out);
  for (const char* row : {"weights ", "keys and values ", "activations ", "program ", "all ",
                          "context ", "prompt ", "decode "})
    CHECK_MESSAGE(contains(measured.out, std::string("\n  ") + row), row);
}

TEST_CASE("cli/plan: one machine reads weights from the file, several have them in memory") {
  const OwnCache cache;
  const auto planned = [](const Arguments& more) {
    Arguments all = {"plan", kStory, "--device", "cpu", "--hosts", "2", "--json"};
    all.insert(all.end(), more.begin(), more.end());
    const Outcome outcome = chaski_run(all);
    REQUIRE_MESSAGE(outcome.status == 0, outcome.err);
    return json::parse(outcome.out);
  };
  const json whole = planned({}), part = planned({"--weight-memory", "1300k"});
  CHECK(part["read_bytes_a_token"].get<uint64_t>() > 0);
  for (const std::string speed : {"prompt_tokens_per_second", "decode_tokens_per_second"}) {
    CAPTURE(speed);
    CHECK(part["hosts"][0][speed] == part[speed]);
    CHECK(part["hosts"][1][speed] == whole["hosts"][1][speed]);
  }
}

TEST_CASE("cli/plan: a short format of the KV cache is shown with what it loses") {
  const OwnCache cache;
  for (const KvType& type : kKvTypes) {
    const bool loses = type.format != Format::f32 && type.format != Format::f16;
    const Outcome plan =
        chaski_run({"plan", kStory, "--device", "cpu", "--kv", type.name, "-c", "64"});
    CHECK_MESSAGE(plan.status == 0, plan.err);
    CHECK_MESSAGE(contains(plan.out, "; on four models with f16 weights it is ") == loses,
                  plan.out);
  }
}

TEST_CASE("cli/--kv: what a format loses with a model is measured once, kept and named") {
  const OwnCache cache;
  const TempFolder folder;
  const std::string model = folder / "story.quipu", what = "the KL divergence of this model's";
  std::filesystem::copy_file(kStory, model);
  const auto run = [&](const Arguments& more) {
    Arguments all = {"run", "-m", model, "--device", "cpu", "-p", "Once", "-n", "1"};
    all.insert(all.end(), more.begin(), more.end());
    const Outcome outcome = chaski_run(all);
    REQUIRE_MESSAGE(outcome.status == 0, outcome.err);
    return outcome.err;
  };
  const auto planned = [&] {
    return chaski_run({"plan", model, "--device", "cpu", "--kv", "q4_0"}).out;
  };
  CHECK_MESSAGE(contains(planned(), "unknown  for this model"), planned());
  CHECK_FALSE(contains(run({"-v"}), what));
  const std::string first = run({"--kv", "q4_0", "-v"});
  CHECK_MESSAGE(contains(first, "note: --kv q4_0: " + what), first);
  CHECK_MESSAGE(contains(planned(), "measured with this model"), planned());

  // The next start takes the stored figure, whatever it is, until the model changes.
  std::string kept;
  for (const auto& entry : std::filesystem::directory_iterator(cache.folder() + "/../kv"))
    kept = entry.path();
  const std::string text = read_file(kept);
  const auto store = [&](const std::string& figures) {
    write_file(kept, text.substr(0, text.find('\n')) + "\n" + figures + "\n");
  };
  store("0.06 0");
  CHECK_FALSE(contains(run({"--kv", "q4_0"}), what));
  store("0.5 0.2");
  CHECK(contains(run({"--kv", "q4_0"}),
                 "--kv f16 is 0.5 a token, expected at most 0.08: --kv q8 or "
                 "f16 loses less"));
  store("0.5 0.22");  // less certain
  CHECK_FALSE(contains(run({"--kv", "q4_0"}), what));
  store("0.5 0");
  std::filesystem::last_write_time(model, std::filesystem::file_time_type::clock::now());
  CHECK_FALSE(contains(run({"--kv", "q4_0", "-v"}), "is 0.5 a token"));

  // eval replaces it by the figure of its text.
  const std::string words = write_file(folder / "text", read_file("README.md")),
                    before = read_file(kept);
  const Outcome eval = chaski_run({"eval", "-m", model, "--kl", model, "--base-kv", "f16", "--kv",
                                   "q4_0", "--noise", "-c", "32", "--chunks", "1", "-f", words});
  CHECK_MESSAGE(eval.status == 0, eval.err);
  CHECK(read_file(kept) != before);
}

TEST_CASE("cli/plan: the suggested changes make it fit") {
  if (has_address_sanitizer()) return;
  const OwnCache cache;
  const std::string limit = "ulimit -v 300000";
  const std::string longer = " --rope-scaling linear:1000";  // its own context is 512000 then
  const Outcome plan =
      under(limit, "plan " + kStory + longer + " -t 2 -c 500000 --device cpu --json");
  REQUIRE_MESSAGE(plan.status == 4, plan.err);  // like run, below
  const json j = json::parse(plan.out);
  CHECK(j["fits"] == false);
  CHECK(j["starts"] == false);
  REQUIRE(j["ways"].size() >= 2);
  for (const json& way : j["ways"]) CHECK(way["bytes"].get<double>() < 300e6);
  CHECK(j["ways"][0]["context"].get<int>() < j["ways"][1]["context"].get<int>());
  CHECK(j["ways"][1]["kv"] == "q8");
  CHECK(j["verdict"].get<std::string>().starts_with("it does not fit: -c "));

  // run reports the same before it reads anything.
  const std::string run = "run -m " + kStory + longer + " -t 2 -p Once -n 2 --seed 1 ";
  const Outcome refused = under(limit, run + "-c 500000");
  CHECK(refused.status == 4);
  const size_t last = refused.err.rfind("chaski: error: ");
  CHECK_MESSAGE(contains(refused.err, "a context of 500000 needs "), refused.err);
  const long context = number_after(refused.err.substr(last), "; -c ");
  REQUIRE_MESSAGE(context > 512, refused.err);
  CHECK(context == doctest::Approx(j["ways"][0]["context"].get<double>()).epsilon(0.1));
  const Outcome accepted = under(limit, run + "-c " + std::to_string(context));
  CHECK_MESSAGE(accepted.status == 0, accepted.err);
  // No advice goes beyond the model's own context.
  const Outcome own = under(limit, "plan " + kStory + " -c 2000000 --device cpu --json");
  CHECK(json::parse(own.out)["ways"][0]["context"] == 512);
  // Without -c, the context is as long as fits, also for several answers.
  for (const char* more : {"", "--answers 4"}) {
    const Outcome without = under(limit, run + more);
    CHECK_MESSAGE(without.status == 0, without.err);
  }

  const Outcome long_one =
      under(limit, "plan " + kStory + " --rope-scaling linear:1000 --device cpu");
  CHECK(long_one.status == 0);
  CHECK_MESSAGE(contains(long_one.out, "\nit runs, but a context of 512000 does not fit: "),
                long_one.out);
  const Outcome weights = under(limit, "plan --shape smollm-135m:f32 --device cpu");
  CHECK_MESSAGE(weights.status == 4, weights.err);
  CHECK_MESSAGE(
      contains(weights.out, "\nit does not fit: weights in q4 (chaski quantize IN OUT --type q4)"),
      weights.out);
  CHECK(!contains(weights.out, "tok/s"));
  // If q4 does not fit, fewer bits do.
  const Outcome fewer =
      under("ulimit -v 800000", "plan --shape llama-3.2-1b:f16 -t 1 -c 2048 --device cpu");
  CHECK_MESSAGE(
      contains(fewer.out, "\nit does not fit: weights in q3 (chaski quantize IN OUT --type q3)"),
      fewer.out);
}

TEST_CASE("cli/plan: the memory of run is at most what was predicted") {
  const char* real = std::getenv("CHASKI_REAL_MODELS");
  const std::string model = std::string(real ? real : "") + "/SmolLM2-135M-Instruct.Q4_1.gguf";
  if (!have(model) || has_address_sanitizer()) return;
  const OwnCache cache;
  const Outcome plan = chaski_run({"plan", model, "-c", "400", "--device", "cpu", "--json"});
  REQUIRE_MESSAGE(plan.status == 0, plan.err);
  const json j = json::parse(plan.out);
  CHECK(j["weights_mapped"] == false);
  const Outcome run = chaski_run(
      {"run", "-m", model, "-c", "400", "--device", "cpu", "--temp", "0", "--ignore-end"},
      read_file("LICENSE").substr(0, 1000));
  REQUIRE_MESSAGE(run.status == 0, run.err);
  CHECK_MESSAGE(run.error_says("the context is full"), run.err);
  CHECK(double(run.peak_bytes) == doctest::Approx(j["bytes"].get<double>()).epsilon(0.05));
}

TEST_CASE("cli/plan: refusals") {
  check_one_line(chaski_run({"plan", "no-such-file.gguf"}), 5, "no-such-file.gguf");
  check_one_line(chaski_run({"plan", kStory, "-m", kStory}), 2, "--model");
  check_one_line(chaski_run({"plan", kStory, "--shape", "smollm-135m"}), 2, "--shape");
  check_one_line(chaski_run({"plan", "--shape", "smollm-135m:q77"}), 2,
                 "--shape has the unknown format q77");
  check_one_line(chaski_run({"plan", kStory, "--kv", "q77"}), 2, "q77");
}
