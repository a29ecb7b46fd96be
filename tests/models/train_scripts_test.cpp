// scripts/train/prune.py and distill.py: what they write and refuse. Skipped without torch.
#include "tests/kit/import_support.h"
#include "tests/kit/program.h"

namespace chaski::test {
namespace {

using Floats = std::vector<float>;

// The Python for scripts that use torch: CHASKI_PYTHON, default python3. Prints a line and returns
// an empty text if a package is missing.
std::string python_with_torch() {
  const char* named = std::getenv("CHASKI_PYTHON");
  const std::string python = named ? named : "python3";
  for (const char* package : {"gguf", "safetensors", "tokenizers", "torch", "transformers"})
    if (std::system((python + " -c 'import " + package + "' > /dev/null 2>&1").c_str()) != 0) {
      std::fprintf(stderr, "SKIPPED: %s has no %s (CHASKI_PYTHON names another)\n", python.c_str(),
                   package);
      return "";
    }
  return python;
}

// For a layer's rows (of `size` values, or blocks of rows) from which some were removed: the index
// in `from` of each row of `part`. Each occurs once, in order.
std::vector<size_t> places_of(const Floats& part, const Floats& from, size_t size) {
  std::vector<size_t> places;
  size_t at = 0;
  for (size_t i = 0; i < part.size(); i += size, ++at) {
    const auto is_here = [&] { return std::equal(&part[i], &part[i] + size, &from[at * size]); };
    while ((at + 1) * size <= from.size() && !is_here()) ++at;
    REQUIRE((at + 1) * size <= from.size());
    places.push_back(at);
  }
  return places;
}

// The columns of a matrix at these places, `width` columns each.
Floats columns_at(const Floats& matrix, size_t cols, const std::vector<size_t>& places,
                  size_t width) {
  Floats out;
  for (size_t row = 0; row < matrix.size(); row += cols)
    for (size_t place : places) {
      const auto first = matrix.begin() + std::ptrdiff_t(row + place * width);
      out.insert(out.end(), first, first + std::ptrdiff_t(width));
    }
  return out;
}

TEST_CASE("import/scripts/prune.py and distill.py write folders that run") {
  const std::string python = python_with_torch();
  if (python.empty()) return;
  const TempFolder temp;
  REQUIRE(chaski_run({"convert", kStory, temp / "story.gguf"}).status == 0);
  std::string text;
  while (text.size() < 4000)
    text += "Once upon a time there was a little dog named Tim. He liked to play in the park.\n";
  write_file(temp / "text", text);
  const auto script = [&](const std::string& arguments) {
    return std::system(("cd " + temp.path + " && " + python + " " +
                        std::filesystem::absolute("scripts").string() + "/" + arguments +
                        " --threads 1 > out 2> err")
                           .c_str());
  };
  const std::string prune = "prune.py story.gguf ";
  const std::string fewer = " --text text --tokens 512 --layers 4 --heads 4 --ffn 256";
  REQUIRE_MESSAGE(script(prune + "pruned" + fewer) == 0, read_file(temp / "err"));
  const std::string said = read_file(temp / "out");
  CHECK_MESSAGE(contains(said, " is removed: the loss is "), said);
  CHECK_MESSAGE(contains(said, "256 channels are removed, "), said);
  CHECK_MESSAGE(contains(said, "parameters remain"), said);

  // The remaining weights are unchanged, and matching rows and columns were removed together.
  const ModelSource whole = import_model(temp / "story.gguf"), part = import_model(temp / "pruned");
  const auto of = [](const ModelSource& model, int layer, const std::string& name) {
    return values_of(tensor(model, fmt::format("layer.{}.{}", layer, name)));
  };
  CHECK(values_of(tensor(part, "token_embd")) == values_of(tensor(whole, "token_embd")));
  CHECK(part.meta.integer("model.block_count") == 4);
  int from = -1;
  for (int layer = 0; layer < 4; ++layer) {
    CAPTURE(layer);
    do REQUIRE(++from < 6);
    while (of(part, layer, "attn_norm") != of(whole, from, "attn_norm"));
    const auto groups = places_of(of(part, layer, "attn_v"), of(whole, from, "attn_v"), 32 * 192);
    CHECK(groups.size() == 2);
    CHECK(places_of(of(part, layer, "attn_k"), of(whole, from, "attn_k"), 32 * 192) == groups);
    CHECK(places_of(of(part, layer, "attn_q"), of(whole, from, "attn_q"), 64 * 192) == groups);
    CHECK(of(part, layer, "attn_output") ==
          columns_at(of(whole, from, "attn_output"), 192, groups, 64));
    const auto channels = places_of(of(part, layer, "ffn_up"), of(whole, from, "ffn_up"), 192);
    CHECK(channels.size() == 256);
    CHECK(places_of(of(part, layer, "ffn_gate"), of(whole, from, "ffn_gate"), 192) == channels);
    CHECK(of(part, layer, "ffn_down") == columns_at(of(whole, from, "ffn_down"), 512, channels, 1));
  }

  const Arguments run = {"run", "-p", "Once upon a time", "-n", "24", "--temp", "0", "-q"};
  const auto with = [&](const std::string& flag, const std::string& value) {
    Arguments all = run;
    all.insert(all.end(), {flag, value});
    const Outcome outcome = chaski_run(all);
    CHECK_MESSAGE(outcome.status == 0, outcome.err);
    return outcome.out;
  };
  CHECK(!with("-m", temp / "pruned").empty());
  const auto distill = [&](const std::string& out, const std::string& start) {
    const int status =
        script("distill.py story.gguf " + out + " --text text --steps 2 --batch 1 " + start);
    REQUIRE_MESSAGE(status == 0, read_file(temp / "err"));
    return read_file(temp / out + "/model.safetensors");
  };
  const std::string tiny = "--width 64 --layers 1 --heads 2 --ffn 64";
  CHECK((distill("tiny", tiny) == distill("again", tiny)));
  distill("repaired", "--from pruned");
  for (const char* small : {"tiny", "repaired"}) {
    CAPTURE(small);
    CHECK(!with("-m", temp / small).empty());
    CHECK(with("--draft", temp / small) == with("--draft", "none"));
  }

  // A refused call leaves no files and does not change the input.
  const std::string story = read_file(temp / "story.gguf");
  write_file(temp / "short", "Once upon a time.");
  write_file(temp / "damaged/config.json", "{");
  Gguf with_head = tiny_llama();
  with_head.drop("tokenizer.ggml.model").str("tokenizer.ggml.model", "gpt2");
  with_head.tensor("output.weight", {4, 5}, 0, floats(20));
  write_file(temp / "head.gguf", with_head.build());
  const size_t before = files_in(temp.path);
  for (const auto& [arguments, says] : std::initializer_list<std::pair<std::string, const char*>>{
           {prune + "pruned" + fewer, "prune.py: pruned: already exists"},
           {prune + "x --text text --heads 3", "--heads is 3, expected a multiple of 2"},
           {prune + "x --text short --layers 5", "short: 6 tokens, expected at least 256"},
           {"prune.py damaged x --text text --layers 5", "damaged/config.json: "},
           {"prune.py head.gguf x --text text --layers 5",
            "head.gguf: tensor output.weight is not in the bundled model"},
           {"distill.py story.gguf x --text text --from pruned --width 64",
            "--width is 64 together with --from, expected one of them"},
           {"distill.py story.gguf x --text text --lr 0", "--lr is 0.0, expected more than 0"},
           {"distill.py story.gguf x --text text --width 50",
            "--width is 50, expected 3 heads of an even number of channels"}}) {
    CAPTURE(arguments);
    CHECK(script(arguments) != 0);
    const std::string err = read_file(temp / "err");
    CHECK_MESSAGE(contains(err, says), err);
    CHECK_MESSAGE(std::count(err.begin(), err.end(), '\n') == 1, err);
    CHECK(files_in(temp.path) == before);
  }
  CHECK((read_file(temp / "story.gguf") == story));
}

}  // namespace
}  // namespace chaski::test
