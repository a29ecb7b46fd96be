// The command line with the real program: help, usage errors, files that cannot be opened, streams
// and signals.
#include <chrono>
#include <thread>

#include "tests/kit/program.h"

using namespace chaski::test;

TEST_CASE("cli/help lists every subcommand, and each has its own help") {
  const Outcome help = chaski_run({"--help"});
  CHECK(help.status == 0);
  CHECK(help.err.empty());
  for (const char* name : {"run", "chat", "quantize", "convert", "inspect", "tokenize", "template",
                           "eval", "bench", "doctor"}) {
    CHECK_MESSAGE(help.out.find(std::string("\n  ") + name + " ") != std::string::npos, name);
    const Outcome own = chaski_run({name, "--help"});
    CHECK(own.status == 0);
    CHECK_MESSAGE(own.out.find("Usage: chaski " + std::string(name)) != std::string::npos, own.out);
  }
  CHECK(chaski_run({"--version"}).out.starts_with("chaski "));
}

TEST_CASE("cli/usage errors are one line and status 2") {
  const std::vector<std::pair<Arguments, std::string>> wrong = {
      {{}, "expected one of run, chat"},
      {{"frobnicate"}, "frobnicate"},
      {{"--bogus"}, "--bogus"},
      {{"run", "--bogus"}, "--bogus"},
      {{"run", "-n", "many", "-p", "a"}, "many"},
      {{"run", "-n", "-2", "-p", "a"}, "-2"},
      {{"run", "-t", "0", "-p", "a"}, "--threads"},
      {{"run", "--temp", "-1", "-p", "a"}, "-1"},
      {{"run", "--kv", "q3", "-p", "a"}, "q3"},
      {{"run", "--stop", "", "-p", "a"}, "--stop"},
      {{"run", "--device", "abacus", "-p", "a"}, "abacus"},
      {{"run", "-m", "models/bundled/story.quipu"}, "-p TEXT"},
      {{"quantize"},
       "IN is missing (model file or folder), expected chaski quantize [FLAG...] IN OUT [TYPE]"},
      {{"quantize", "x"},
       "OUT is missing (the file to write: GGUF if it ends in .gguf, else .quipu), expected chaski "
       "quantize"},
      {{"quantize", "x", "y", "q4", "q8"},
       "unexpected \"q8\", expected chaski quantize [FLAG...] IN OUT [TYPE]"},
      {{"quantize", "x", "y", "q4", "--type", "q8"},
       "--type is given twice, as q8 by name and as q4 by position, expected once"},
      {{"completion"}, "SHELL is missing ("},
      {{"plan", "x", "y"}, "unexpected \"y\", expected chaski plan [FLAG...] [MODEL]"},
      {{"bench", "--kv", "f16,q8,f16,q8,f16,q8"}, "--kv has 6 values, expected at most 5"},
      {{"run", "--seed", "x"}, "--seed is \"x\", expected -1 (a random one) or a number from 0 to"},
      {{"run", "--seed", "-5"}, "--seed is \"-5\", expected -1 (a random one) or a number"},
      {{"tokenize", "--decode", "-1"}, "--decode is \"-1\", expected a number from 0 to"},
      {{"quantize", "x", "y", "--type", "q77"}, "q77"},
      {{"bench", "--shape", "enormous"}, "enormous"},
      {{"bench", "--shape", "llama-3.2-1b:q77"}, "q77"},
      {{"bench", "--shape", "llama-3.2-1b", "-m", "x"}, "--model"},
      {{"bench", "--shape", "llama-3.2-1b", "--load", "copy"}, "--load"},
      {{"bench", "--shape", "llama-3.2-1b", "--verify", "never"}, "--verify"},
      {{"bench", "-p", "1,x"}, "--prompt is \"1,x\", expected numbers from 0"},
      {{"bench", "-p", "1,,8"}, "--prompt is \"1,,8\""},
      {{"bench", "-p", ""}, "--prompt"},
      {{"bench", "--depth", "0,-1"}, "--depth is \"0,-1\""},
      {{"bench", "--widths", "1,257"}, "--widths is \"1,257\""},
      {{"bench", "--kv", "f16,q3"}, "q3"},
      {{"bench", "--csv", "--json"}, "--csv"},
      {{"bench", "--csv", "--profile"}, "--csv"},
      {{"run", "--kv", "f16,q8", "-p", "a"}, "f16,q8"},
      {{"run", "--load", "disk", "-p", "a"}, "disk"},
      {{"run", "--gpu-layers", "some", "-p", "a"}, "some"},
      {{"run", "--gpu-layers", "-1", "-p", "a"}, "-1"},
      {{"run", "--device", "cpu", "--gpu-layers", "2", "-p", "a"}, "--gpu-layers is 2"},
      {{"run", "--device", "cuda:", "-p", "a"}, "cuda:"},
      {{"run", "--device", "cuda:1x", "-p", "a"}, "cuda:1x"},
      {{"eval", "-c", "3", "-p", "a"}, "--ctx is \"3\""},
      {{"eval", "--chunks", "-1", "-p", "a"}, "--chunks"},
      {{"eval", "--device", "cpu", "-p", "a"}, "expected at least 512, the size of one window"},
      {{"bench", "--sequences", "0"}, "--sequences"},
      {{"bench", "--sgemm", "--device", "cuda"}, "--sgemm"},
  };
  for (const auto& [arguments, says] : wrong) {
    CAPTURE(joined(arguments));
    check_one_line(chaski_run(arguments), 2, says);
  }
}

TEST_CASE("cli/files that are missing or are not models") {
  const TempFolder folder, no_models;
  std::ofstream(folder / "letter.txt") << "Dear reader, this is no model.\n";
  std::ofstream(folder / "empty.gguf");
  const std::vector<Arguments> commands = {{"run", "-p", "a", "-m"},
                                           {"inspect"},
                                           {"tokenize", "-p", "a", "-m"},
                                           {"chat", "--lines", "-m"}};
  for (const Arguments& command : commands) {
    const auto with = [&](const std::string& file) {
      Arguments all = command;
      all.push_back(file);
      return chaski_run(all);
    };
    CAPTURE(joined(command));
    check_one_line(with(folder / "nothing"), 5, "nothing: ");
    check_one_line(with(folder / "letter.txt"), 3, "letter.txt: ");
    check_one_line(with(folder / "empty.gguf"), 3, "empty.gguf: ");
    if (command[0] == "tokenize") {
      check_one_line(with(no_models.path), 3,
                     no_models.path +
                         ": has no tokenizer, expected a model file, a folder with "
                         "tokenizer.json, or a file of a tokenizer");
      continue;
    }
    check_one_line(with(folder.path), 3,
                   "folder has no config.json, expected one of the model files in it, such as " +
                       folder / "empty.gguf");
    check_one_line(with(no_models.path), 3, "folder has no config.json, expected a .quipu");
  }
  check_one_line(chaski_run({"quantize", folder / "letter.txt", folder / "out.quipu"}), 3,
                 "letter.txt: ");
  check_one_line(chaski_run({"run", "-f", folder / "nothing"}), 5, "nothing: ");
}

TEST_CASE("cli/a download that is not complete is called one, with its share") {
  const TempFolder folder;
  const std::string gguf = folder / "model.gguf", own = folder / "model.quipu", hf = folder / "hf";
  REQUIRE(chaski_run({"convert", kStory, gguf}).status == 0);
  std::filesystem::copy_file(kStory, own);
  std::filesystem::copy(golden("models/gpt2"), hf, std::filesystem::copy_options::recursive);
  for (const std::string& file : {gguf, own, hf + "/model.safetensors"}) {
    CAPTURE(file);
    const std::string model = file.starts_with(hf) ? hf : file;
    const uint64_t whole = std::filesystem::file_size(file);
    for (const auto& [share, says] : {std::pair(0.995, "99% of it is there, "), {0.95, "95% of"}}) {
      std::filesystem::resize_file(file, uint64_t(double(whole) * share) + 1);
      check_one_line(chaski_run({"run", "-m", model, "-p", "a"}), 3,
                     file + ": the file is cut short: " + says);
      const Outcome seen = chaski_run({"inspect", model});
      CHECK_MESSAGE((seen.out + seen.err).find(says) != std::string::npos, seen.err);
    }
    check_one_line(chaski_run({"run", "-m", model, "-p", "a"}), 3,
                   " of " + std::to_string(whole) + " bytes: download the rest");
    std::filesystem::resize_file(file, 600);  // inside the header
    check_one_line(chaski_run({"run", "-m", model, "-p", "a"}), 3, "it is cut short or damaged");
  }
}

TEST_CASE("cli/an error about a folder that cannot be written names the file that was asked for") {
  for (const Arguments& command : {Arguments{"convert", kStory, "/sys/out.gguf"},
                                   Arguments{"quantize", kStory, "/sys/out.quipu"}}) {
    const Outcome outcome = chaski_run(command);
    CHECK(outcome.status == 5);
    CHECK_MESSAGE(outcome.error_says("error: " + command.back() + ": cannot be written: "),
                  outcome.err);
    CHECK_MESSAGE(!outcome.error_says(".tmp"), outcome.err);
  }
}

TEST_CASE("cli/a note is printed once, also if two models are opened") {
  const Outcome two = chaski_run({"run", "-v", "-p", "a", "-n", "1", "--draft", kStory});
  CHECK_MESSAGE(two.status == 0, two.err);
  const size_t first = two.err.find("note: on the CPU: ");
  if (first != std::string::npos)
    CHECK_MESSAGE(two.err.find("note: on the CPU: ", first + 1) == std::string::npos, two.err);
}

TEST_CASE("cli/a tokenizer file is refused for a model that does not need one") {
  const TempFolder folder;
  const std::string own = kStory, gguf = golden("gguf/tiny_llama_q8_0.gguf"),
                    hf = golden("models/gpt2");
  for (const Arguments& command : std::vector<Arguments>{{"run", "-p", "a", "-n", "1"},
                                                         {"run", "-p", "a", "-n", "1", "-m", own},
                                                         {"run", "-p", "a", "-n", "1", "-m", gguf},
                                                         {"chat", "--lines", "-m", own},
                                                         {"bench", "-p", "1", "-m", own},
                                                         {"tokenize", "-p", "a"},
                                                         {"tokenize", "-p", "a", "-m", hf},
                                                         {"inspect", own},
                                                         {"inspect", gguf},
                                                         {"convert", gguf, folder / "out.quipu"},
                                                         {"quantize", hf, folder / "out"},
                                                         {"bench", "--shape", "smollm-135m"}}) {
    Arguments all = command;
    all.insert(all.end(), {"--tokenizer", "tok.bin"});
    CAPTURE(joined(all));
    check_one_line(chaski_run(all), 2, "--tokenizer");
  }
  // A model with its own tokenizer can draft for a model that needs --tokenizer FILE.
  const std::string llama2c = data("models/stories260K.bin"), tokenizer = data("models/tok512.bin");
  if (!have(llama2c)) return;
  REQUIRE(chaski_run({"convert", llama2c, folder / "draft.quipu"}).status == 0);
  const Outcome drafted = chaski_run({"run", "-m", llama2c, "--tokenizer", tokenizer, "--draft",
                                      folder / "draft.quipu", "-p", "Once", "-n", "4"});
  CHECK_MESSAGE(drafted.status == 0, drafted.err);
}

TEST_CASE("cli/a device that does not exist") {
  check_one_line(chaski_run({"run", "--device", "cuda:99", "-p", "a"}), 6, "cuda:99");
  setenv("CUDA_VISIBLE_DEVICES", "", 1);  // hides a GPU
  for (const Arguments& command :
       std::vector<Arguments>{{"run", "-p", "a"}, {"chat", "--lines"}, {"bench", "-p", "1"}}) {
    Arguments all = command;
    all.insert(all.end(), {"--device", "cuda"});
    CAPTURE(joined(all));
    check_one_line(chaski_run(all), 6, "--device is cuda, but ");
  }
  unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST_CASE("cli/stdout that cannot be written: full device 5, closed pipe 141") {
  Program full(run_story({"-n", "20"}), "", "/dev/full");
  const Outcome outcome = full.wait();
  CHECK(outcome.status == 5);
  CHECK(last_line(outcome.err).starts_with("chaski: error: standard output: "));
  const std::string pipe =
      chaski_binary() + " run -m " + kStory +
      " -p Once --ignore-end 2>/dev/null | head -c 1 >/dev/null; exit ${PIPESTATUS[0]}";
  CHECK(WEXITSTATUS(std::system(("bash -c '" + pipe + "'").c_str())) == 141);
}

namespace {

// Interrupts a run that takes seconds, with the slowest kernels and one thread.
Outcome interrupted_by(int signal) {
  setenv("CHASKI_ISA", "scalar", 1);
  Program program({"run", "-m", kStory, "-p", "Once", "--ignore-end", "-t", "1"}, "");
  unsetenv("CHASKI_ISA");
  for (int i = 0; i < 1000 && program.out_so_far().empty(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  program.signal(signal);
  return program.wait();
}

}  // namespace

TEST_CASE("cli/SIGINT and SIGTERM end a run with its timing line") {
  for (const auto& [signal, status] : {std::pair(SIGINT, 130), std::pair(SIGTERM, 143)}) {
    const Outcome outcome = interrupted_by(signal);
    CHECK(outcome.status == status);
    CHECK(!outcome.out.empty());
    CHECK_MESSAGE(last_line(outcome.err).starts_with("prompt "), outcome.err);
  }
}
