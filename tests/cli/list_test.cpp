// chaski list, names as values of -m, and completion.
#include <nlohmann/json.hpp>

#include "tests/kit/program.h"

using namespace chaski::test;
namespace fs = std::filesystem;

namespace {

void touch(const std::string& path, const std::string& text = "x") {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path) << text;
}

}  // namespace

TEST_CASE("cli/list: models of all stores by name, and -m accepts the names") {
  const TempFolder tmp;
  for (const char* name : {"HF_HOME", "OLLAMA_MODELS"}) unsetenv(name);
  const std::string home = tmp / "home", own = tmp / "own";
  setenv("HOME", home.c_str(), 1), setenv("XDG_CACHE_HOME", (home + "/.cache").c_str(), 1);
  setenv("CHASKI_MODELS", (tmp / "nothing" + ":" + own).c_str(), 1);
  const std::string none = chaski_run({"list"}).err;
  CHECK_MESSAGE(none.starts_with("chaski: note: no models found"), none);

  fs::create_directories(own);
  fs::copy_file(kStory, own + "/stories.quipu");
  touch(own + "/deep/big-00001-of-00002.gguf");
  touch(own + "/deep/big-00002-of-00002.gguf");
  touch(own + "/deep/mmproj-big.gguf");
  fs::create_symlink(own + "/stories.quipu", own + "/deep/again.quipu");
  const std::string hub = home + "/.cache/huggingface/hub/models--someone--tiny/snapshots/0123/";
  touch(hub + "config.json");
  touch(hub + "model.safetensors", "12345");
  touch(
      home + "/.ollama/models/manifests/registry/library/llama3.2/1b",
      R"({"layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:ab"}]})");
  touch(home + "/.ollama/models/manifests/registry/library/llama3.2/3b", "no JSON");
  touch(home + "/.ollama/models/blobs/sha256-ab", "123");

  for (const char* link : {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"})
    fs::create_directory_symlink(".", own + "/deep/" + link);
  touch(own + "/gone/config.json");
  fs::create_symlink("nowhere", own + "/gone/model.safetensors");

  const Outcome listed = chaski_run({"list", "--json"});
  CHECK_MESSAGE(listed.status == 0, listed.err);
  std::vector<std::string> found;
  const nlohmann::json object = nlohmann::json::parse(listed.out);
  for (const auto& m : object["models"])
    found.push_back(m["name"].get<std::string>() + " of " + m["place"].get<std::string>() + ", " +
                    std::to_string(m["bytes"].get<uint64_t>()));
  const std::string bytes = std::to_string(fs::file_size(kStory));
  CAPTURE(listed.out);
  CHECK(found == std::vector<std::string>{
                     "big-00001-of-00002 of CHASKI_MODELS, 2", "llama3.2:1b of ollama, 3",
                     "someone/tiny of Hugging Face, 5", "stories of CHASKI_MODELS, " + bytes});

  const Arguments story = {"run", "-p", "The", "-n", "4", "--seed", "1", "-m"};
  const auto with = [&](const std::string& model) {
    Arguments all = story;
    all.push_back(model);
    return chaski_run(all);
  };
  CHECK(!with(kStory).out.empty());
  CHECK(with("stories").out == with(kStory).out);
  CHECK(with("sto").out == with(kStory).out);
  // Notes use the name that the user typed, not the path.
  const Outcome called = chaski_run({"run", "-p", "The", "-n", "1", "-c", "1k", "-m", "sto"});
  CHECK_MESSAGE(called.error_says("note: sto: the context of 1024 is larger than"), called.err);
  check_one_line(with("nowhere"), 5,
                 "nowhere is neither a file nor a model on this machine; the nearest");
  check_one_line(with("nowhere.gguf"), 5, "nowhere.gguf: cannot be opened");
  // A part of the name is enough, and a note says which model was taken.
  const Outcome part = with("ORIE");
  CHECK(part.out == with(kStory).out);
  CHECK_MESSAGE(part.error_says("note: the name ORIE matches the model stories, which is used\n"),
                part.err);
  CHECK(!with("stories").error_says("is used"));
  const Arguments after = {"-n", "4", "--seed", "1", "-q"};
  Arguments words = {"run", "ories", "The"};
  words.insert(words.end(), after.begin(), after.end());
  CHECK(chaski_run(words).out == with(kStory).out);
  CHECK(chaski_run(words).err.empty());
  CHECK(chaski_run({"run", "ories", "-n", "4", "--seed", "1", "--", "The"}).out ==
        with(kStory).out);
  for (const char* name : {"/st2.gguf", "/st3.gguf", "/st4.gguf"}) touch(own + name);
  check_one_line(with("st"), 2,
                 "4 models have names that begin with st, expected one of them: st2, st3 and st4 "
                 "are the nearest (chaski list shows all)");
  CHECK_MESSAGE(with("t3").error_says("own/st3.gguf: content is not"), with("t3").err);
  CHECK_MESSAGE(with("big").error_says("big-00001-of-00002.gguf: content"), with("big").err);
}

TEST_CASE("cli/list: one line for each model, what it is good for, and no parts of models") {
  const TempFolder tmp;
  const OwnVariable models("CHASKI_MODELS", tmp.path), home("HOME", tmp / "home"),
      cache("XDG_CACHE_HOME", tmp / "cache");
  fs::copy_file(kStory, tmp / "story.quipu");
  const auto encoder = [&](const std::string& folder, const std::string& config) {
    touch(tmp / folder + "/config.json", config);
    touch(tmp / folder + "/model.safetensors", std::string("\2\0\0\0\0\0\0\0{}", 10));
  };
  encoder("mini", R"({"architectures": ["BertModel"], "max_position_embeddings": 512})");
  touch(tmp / "mini/modules.json", "[]");
  encoder("mini/2_Dense", R"({"in_features": 768})");
  encoder("whisper", R"({"architectures": ["WhisperForConditionalGeneration"]})");
  touch(tmp / "broken.gguf", "GGUF");
  touch(tmp / "other.gguf", "GGUF");
  const Outcome listed = chaski_run({"list"});
  const std::string out = squeezed(listed.out);
  CAPTURE(out);
  CHECK(contains(out, "story 3.3 MB 512 context text to continue CHASKI_MODELS\n"));
  CHECK(contains(out, " 512 context embeddings, which chaski does not run CHASKI_MODELS\n"));
  CHECK(contains(out, "speech recognition model, which chaski does not run"));
  CHECK(!contains(out, "2_Dense"));
  CHECK(!contains(out, "broken"));
  CHECK(lines_of(listed.out).size() == 3);
  CHECK(listed.err ==
        "chaski: note: cannot run: broken, other (chaski inspect NAME or list -v says why)\n");
  CHECK(contains(chaski_run({"list", "-v"}).out, tmp / "broken.gguf"));
  const nlohmann::json all = nlohmann::json::parse(chaski_run({"list", "--json"}).out)["models"];
  for (const auto& m : all)
    if (m["name"] == "mini") {
      CHECK(m["good_for"] == "embeddings");
      CHECK(m["runs"] == false);
    }
}

TEST_CASE("cli/list: a wrong name of -m gets the nearest, for run and chat without embeddings") {
  const TempFolder tmp;
  const OwnVariable models("CHASKI_MODELS", tmp.path), home("HOME", tmp / "home"),
      cache("XDG_CACHE_HOME", tmp / "cache");
  for (const char* name : {"SmolLM2-135M-Instruct.Q4_1", "gemma-3", "small", "other-long-name"})
    fs::copy_file(kStory, tmp / std::string(name) + ".quipu");
  touch(tmp / "smol/config.json", R"({"architectures": ["BertModel"]})");
  touch(tmp / "smol/model.safetensors", std::string("\2\0\0\0\0\0\0\0{}", 10));
  touch(tmp / "smol/modules.json", "[]");
  const std::string unknown =
      "smolm2 is neither a file nor a model on this machine; the nearest names ";
  for (const char* command : {"run", "chat"})
    check_one_line(chaski_run({command, "-m", "smolm2", "-p", "a"}), 5,
                   unknown + "are SmolLM2-135M-Instruct.Q4_1, small and gemma-3 (chaski list");
  check_one_line(chaski_run({"tokenize", "-m", "smolm2", "-p", "a"}), 5,
                 unknown + "are SmolLM2-135M-Instruct.Q4_1, smol and small (chaski list");
  // A part of a name that chaski pull knows.
  check_one_line(chaski_run({"run", "-m", "coder", "-p", "a"}), 5,
                 " (chaski list shows all); chaski pull NAME downloads one of these: "
                 "qwen2.5-coder:0.5b, qwen2.5-coder:1.5b\n");
}

TEST_CASE("cli/completion: valid shell scripts with every flag of every command") {
  const TempFolder tmp;
  for (const std::string shell : {"bash", "zsh", "fish"}) {
    CAPTURE(shell);
    const Outcome script = chaski_run({"completion", shell});
    REQUIRE_MESSAGE(script.status == 0, script.err);
    for (const char* word : {"quantize", "calibrate", "top-p", "answers"})
      CHECK(script.out.find(word) != std::string::npos);
    touch(tmp / shell, script.out);
    if (std::system((shell + " -n /dev/null 2>/dev/null").c_str()) == 0)
      CHECK(std::system((shell + " -n " + tmp / shell).c_str()) == 0);
  }
  // Calls the function as bash does: with the words and the index of the completed one.
  const auto completed = [&](const std::string& words, int at) {
    const std::string out = tmp / "out";
    const std::string line = "bash -c '. " + tmp / "bash" + "; COMP_WORDS=(" + words +
                             "); COMP_CWORD=" + std::to_string(at) + "; COMP_LINE=\"" + words +
                             "\"; COMP_POINT=${#COMP_LINE}" +
                             "; _chaski 2>/dev/null; echo ${COMPREPLY[*]}' > " + out;
    CHECK(std::system(line.c_str()) == 0);
    return read_file(out);
  };
  CHECK(completed("chaski qu", 1) == "quantize\n");
  const std::string top = completed("chaski run --top-", 2);
  for (const char* name : {"--top-k", "--top-p", "--top-n-sigma"}) CHECK(contains(top, name));
  std::istringstream words(top);
  for (std::string word; words >> word;) CHECK(word.starts_with("--top-"));
  CHECK(completed("chaski quantize --top-", 2) == "\n");
  // Values, also after "=", where bash splits words.
  const std::string kv = completed("chaski run --kv q", 3);
  CHECK_MESSAGE(kv.starts_with("q8 q4_0"), kv);
  CHECK(completed("chaski run --kv=q", 4) == kv);
  CHECK(completed("chaski run --device ", 3) == "auto cpu cuda\n");
  CHECK(completed("chaski chat --think h", 3) == "hide\n");
  CHECK(completed("chaski quantize a b --type mx", 5) == "mxfp4\n");
  CHECK(completed("chaski completion f", 2) == "fish\n");
  CHECK(completed("chaski help f", 2) == "formats\n");
  CHECK(completed("chaski he", 1) == "help\n");
  CHECK(completed("chaski run -p ", 3) == "\n");
  // Names of models from chaski list; bash splits words at colons.
  touch(
      tmp / "models/manifests/host.example/library/alpaca/7b",
      R"({"layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:ab"}]})");
  touch(tmp / "models/blobs/sha256-ab", "GGUF");
  touch(tmp / "models/gguf/smallest.gguf", "GGUF");
  setenv("OLLAMA_MODELS", (tmp / "models").c_str(), 1);
  setenv("CHASKI_MODELS", (tmp / "models/gguf").c_str(), 1);
  const std::string program = std::filesystem::absolute(chaski_binary());
  CHECK(completed(program + " run -m sma", 3) == "smallest\n");
  CHECK(completed(program + " inspect sma", 2) == "smallest\n");
  CHECK(completed(program + " chat --model alpa", 3) == "alpaca:7b\n");
  CHECK(completed(program + " chat --model alpaca:", 3) == "7b\n");
  // A command in a name is not executed.
  touch(tmp / "models/gguf/smell$(touch ran).gguf", "GGUF");
  CHECK(completed(program + " run -m smell", 3) == "smell$(touch ran)\n");
  CHECK_FALSE(have("ran"));
  unsetenv("OLLAMA_MODELS");
  unsetenv("CHASKI_MODELS");
  check_one_line(chaski_run({"completion"}), 2, "SHELL");
  check_one_line(chaski_run({"completion", "csh"}), 2, "expected bash, zsh or fish");
}
