// A damaged .quipu file is detected before it is run, converted or quantized
// (engine/shelf/verify.h).
#include "engine/shelf/verify.h"

#include "engine/machine/cache_folder.h"
#include "engine/shelf/model_file.h"
#include "tests/kit/program.h"

using namespace chaski;
using namespace chaski::test;

namespace {

void write_sound(const std::string& path) { write_quipu(path, open_model("").source, 1); }

// Flips one bit in the middle of the last tensor's data.
void damage(const std::string& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-1000, std::ios::end);
  const char byte = char(file.get() ^ 1);
  file.seekp(-1000, std::ios::end);
  file.put(byte);
}

}  // namespace

TEST_CASE("verify: a damaged file is neither run nor converted nor quantized") {
  TempFolder folder;
  const std::string model = folder / "m.quipu", out = folder / "o.quipu", gguf = folder / "o.gguf";
  write_sound(model);
  damage(model);
  const std::string says = "m.quipu: the file is damaged: tensor layer.5.";
  for (const Arguments& arguments : std::vector<Arguments>{
           {"run", "-m", model, "-p", "a", "-n", "1", "--device", "cpu"},
           {"run", "-m", model, "-p", "a", "-n", "1", "--device", "cpu", "--load", "copy"},
           {"run", "--draft", model, "-p", "a", "-n", "1", "--device", "cpu"},
           {"chat", "--lines", "-m", model, "--device", "cpu"},
           {"bench", "-m", model, "-p", "1", "-n", "1", "--device", "cpu"},
           {"inspect", "--verify", model}})
    check_one_line(chaski_run(arguments), 3, says);
  for (const Arguments& arguments :
       std::vector<Arguments>{{"convert", model, out},
                              {"convert", model, gguf},
                              {"quantize", "--type", "q4", model, out}}) {
    const Outcome o = chaski_run(arguments);  // progress lines may come before the error
    CHECK(o.status == 3);
    CHECK(o.error_says(says));
    CHECK(!std::filesystem::exists(arguments.back()));
  }
  CHECK(chaski_run({"run", "-m", model, "-p", "a", "-n", "1", "--verify", "never"}).status == 0);
}

TEST_CASE(
    "verify: with once a file is verified again only after it changes, with always each time") {
  TempFolder folder;
  const std::string path = folder / "m.quipu";
  write_sound(path);
  Weights weights = *open_quipu(path);
  verify_file(weights, Verify::once, 2);
  CHECK(!std::filesystem::is_empty(cache_folder() + "/verified"));
  weights.sums[0] ^= 1;  // as if memory had changed, but not the file
  CHECK_NOTHROW(verify_file(weights, Verify::once, 2));
  CHECK_NOTHROW(verify_file(weights, Verify::never, 2));
  CHECK(error_of([&] { verify_file(weights, Verify::always, 2); }).code == Exit::bad_file);

  // The same size and modification time, but other contents.
  const auto modified = std::filesystem::last_write_time(path);
  damage(path);
  std::filesystem::last_write_time(path, modified);
  const Error error = error_of([&] { verify_file(*open_quipu(path), Verify::once, 2); });
  CHECK(error.code == Exit::bad_file);
  CHECK(std::string(error.what()).find("the file is damaged") != std::string::npos);
}

TEST_CASE("verify: an undamaged file runs even if its stamp cannot be stored") {
  TempFolder folder;
  write_sound(folder / "m.quipu");
  const std::string before = std::getenv("XDG_CACHE_HOME");
  ::setenv("XDG_CACHE_HOME", "/proc/no-such-place", 1);
  CHECK_NOTHROW(verify_file(*open_quipu(folder / "m.quipu"), Verify::once, 2));
  ::setenv("XDG_CACHE_HOME", before.c_str(), 1);
}

TEST_CASE("verify: a file without checksums causes a notice") {
  const Outcome o = chaski_run({"run", "-m", golden("gguf/tiny_llama_q8_0.gguf"), "-p", "a", "-n",
                                "1", "--verify", "always"});
  CHECK(o.error_says("has no checksums to verify"));
}
