// Command lines of llama.cpp's tools and of ollama with the real program: each works, or fails with
// one line that says how to do it with chaski.
#include <sstream>

#include "tests/kit/program.h"

using namespace chaski::test;

namespace {

struct Line {
  const char* typed;  // words separated by spaces; MODEL is the bundled model's file, OUT a new one
  // A part of the error; "": it works. After "note: ": it works, and prints this note.
  const char* answer;
};

// Commands that work are short: -n 1, or an empty standard input for a chat.
constexpr Line kLines[] = {
    {"run -m MODEL -p Once -n 1", ""},
    {"run -m MODEL -p Once --n-predict 1", ""},
    {"run -m MODEL -p Once --predict 1", ""},
    {"run -m MODEL -p Once -n 1 -c 256", ""},
    {"run -m MODEL -p Once -n 1 --ctx-size 256", ""},
    {"run -m MODEL -p Once -n 1 --ctx_size=256", ""},
    {"run -m MODEL -p Once -n 1 -c 1k", ""},
    {"run -m MODEL -p Once -n 1 -c 0", ""},
    {"run -m MODEL -p Once -n 1 -c 1M", "note: models/bundled/story.quipu: the context of 1048576"},
    {"run -m MODEL -p Once -n 1M -c 64 --ignore-eos", ""},
    {"run -m MODEL -p Once -c 10G",
     "--ctx is \"10G\", expected a number from 0 to 2147483647, such as 4096, 4k or 1M"},
    {"run -m MODEL -p Once -c 4.5k", "--ctx is \"4.5k\", expected a number from 0"},
    {"run -m MODEL -p Once -c 3000M", "--ctx is \"3000M\", expected a number from 0"},
    {"run -m MODEL -p Once -n 1 -t4", ""},
    {"run -m MODEL -p Once -n 1 -s 42", ""},
    {"run -m MODEL -p Once -n 1 --seed -1", ""},
    {"run -m MODEL -p=Once -n 1", ""},
    {"run -m MODEL -p Once -n 1 --temperature 0.7 --top_k 40 --top_p 0.9 --min_p 0", ""},
    {"run -m MODEL -p Once -n 1 --repeat_penalty 1.1", ""},
    {"run -m MODEL -p Once -n 1 -ngl 0", ""},
    {"run -m MODEL -p Once -n 1 -ngl 99", ""},
    {"run -m MODEL -p Once -n 1 -ngl all", ""},
    {"run -m MODEL -p Once -n 1 --cpu-moe",
     "--cpu-experts is given, but models/bundled/story.quipu"},
    {"run -m MODEL -p Once -n 1 -ngl 0 --cpu-experts",
     "--cpu-experts is given with --gpu-layers 0, expected a device for the other layers"},
    {"run -m MODEL -p Once --gpu-layers some", "expected auto, all or a number from 0 to"},
    {"run -m MODEL -p Once --max-new-tokens 1 --repetition-penalty 1.1 --cpu", ""},
    {"run -m MODEL -p Once --max-tokens 1 --context-length 64 --num-threads 1 --silent", ""},
    {"run -m MODEL -p Once -n 1 --kv-cache-dtype q8 --stop-string x --random-seed 1", ""},
    {"run -m MODEL -p Once -n 1 --n-gpu-layers 0", ""},
    {"run -m MODEL -p Once -n 1 -md MODEL --draft-max 4", ""},
    {"run -m MODEL -p Once -n 1 --no-mmap", ""},
    {"run -m MODEL -p Once -n 1 --ignore-eos", ""},
    {"run -m MODEL -p Once -n 1 -r User:", ""},
    {"run -m MODEL -p Once -n 1 -no-cnv", ""},
    {"run -m MODEL -p Once -n 1 -st --no-display-prompt --simple-io", ""},
    {"run -m MODEL -p Once -n 1 --no-warmup --log-disable --color", ""},
    {"run -m MODEL -p Once -n 1 -dev cpu", ""},
    {"run -m MODEL -p Once -n 1 --kv Q8_0", ""},
    {"run -m MODEL -bf MODEL-is-not-there", "MODEL-is-not-there: cannot be opened"},
    {"run -m MODEL -p Once -n 1 -tb 4",
     "note: -tb has no effect: prompts and answers use the same threads: -t N"},
    {"run -m MODEL -p Once -n 1 --threads-batch 4", "note: --threads-batch has no effect"},
    {"run -m MODEL -p Once -n 1 -b 512", "note: -b has no effect: chaski chooses the batch size"},
    {"run -m MODEL -p Once -n 1 -ub=512", "note: -ub has no effect: chaski chooses"},
    {"run -m MODEL -p Once -n 1 -fa", "note: -fa has no effect: chaski always uses attention"},
    {"run -m MODEL -fa on -p Once -n 1", "note: -fa has no effect: chaski always uses attention"},
    {"run -m MODEL --flash-attn -p Once -n 1", "note: --flash-attn has no effect"},
    {"run -m MODEL -p Once -n 1 -ctk q8_0 -ctv q8_0", ""},
    {"run -m MODEL -p Once -n 1 -ctk q8_0", "note: -ctk sets the format of keys and values"},
    {"run -m MODEL -p Once -n 1 --cache-type-v q8_0",
     "note: --cache-type-v sets the format of keys and values"},
    {"run -m MODEL -p Once -n 1 -ctk f16 -ctv q8_0",
     "-ctk is f16 and -ctv is q8_0, expected the same for both: --kv sets them together"},
    {"run -m MODEL -p Once -n 1 -ctk f16 -ctk q8_0", ""},
    {"run -m MODEL -p Once\\n -n 1 -e", ""},
    {"run -m MODEL -p Once -n 1 --temp-range 0.2", ""},
    {"run -m MODEL -p Once -n 1 --no-kv-offload -cb", "note: -cb has no effect"},
    {"run -m MODEL -p Once -n 1 --keep -1", "note: --keep has no effect"},
    {"run -m MODEL -p Once -n 1 --prio 2 --poll 0", "note: --poll has no effect"},
    {"run -m MODEL -p Once -n 1 --no-repack --swa-full", "note: --no-repack has no effect"},
    {"run -m MODEL -p Once -n 1 -fit on -cram 100 --perf", "note: -cram has no effect"},
    {"run -m MODEL -p Once -n 1 -ctkd f16 -td 4 -dio", "note: -td has no effect: the draft model"},
    {"run -m MODEL -p Once --mmproj x", "--mmproj: chaski reads only text, no images"},
    {"run --version", "--version: use chaski --version"},
    {"run -m MODEL -p Once -n 1 --mirostat 2 --top-k 20 --min-p 0.1",
     "note: --top-k, --min-p have no effect with --mirostat 2"},
    {"run -m MODEL -p Once -n 1 --temp 0 --top-p 0.5", "note: --top-p has no effect at --temp 0"},
    {"run -m MODEL -p Once -n 1 --dry-base 2",
     "note: --dry-base has no effect without --dry-multiplier"},
    {"run -m MODEL -p Once -i", "-i: chaski chat is for conversations"},
    {"run -m MODEL -p Once -cnv", "-cnv: chaski chat is for conversations"},
    {"run -m MODEL -p Once -sys short",
     "-sys: chaski run has no system message; use chaski chat --system"},
    {"run -hf ggml-org/gemma-3-1b-it-GGUF", "ggml-org/gemma-3-1b-it-GGUF: CHASKI_HUB=none forbids"},
    {"run -hfr TheBloke/some -hff model.gguf", "-hff: chaski pull NAME"},
    {"run -mu https://example.org/model.gguf", "-mu: chaski pull NAME"},
    {"run -m MODEL -p Once -n 1 --mirostat 2 --mirostat-lr 0.2 --mirostat-ent 4", ""},
    {"run -m MODEL -p Once -n 1 --presence_penalty 0.5 --frequency-penalty 0.5", ""},
    {"run -m MODEL -p Once -n 1 --repeat-last-n -1 --typical 0.9 --top-nsigma 1", ""},
    {"run -m MODEL -p Once -n 1 --xtc-probability 0.5 --xtc-threshold 0.1", ""},
    {"run -m MODEL -p Once -n 1 --dynatemp-range 0.2 --dynatemp-exp 1.5", ""},
    {"run -m MODEL -p Once -n 1 --dry-multiplier 0.8 --dry-sequence-breaker none", ""},
    {"run -m MODEL -p Once -n 1 -l 15+1 -l 16-inf", ""},
    {"run -m MODEL -p Once -n 1 --samplers top_k;typ_p;temperature", ""},
    {"run -m MODEL -p Once -n 1 --sampling-seq kft", "write the names of the steps"},
    {"run -m MODEL -p Once --seed 1 -r zqx --grammar-file tests/golden/grammars/list.gbnf", ""},
    {"run -m MODEL -p Once -j {\"enum\":[1]}", ""},
    {"run -m MODEL -p Once --format json", "--format: use --json-schema '{}' for any JSON"},
    {"run -m MODEL -p Once -n 1 --mlock", "note: --mlock has no effect: the system keeps used"},
    {"run -m MODEL -p Once -n 1 --numa distribute", "note: --numa has no effect: the system"},
    {"run -m MODEL -p Once --lora adapter.gguf", "--lora: chaski cannot read adapters"},
    {"run -m MODEL -p Once -n 1 --prompt-cache-all",
     "note: --prompt-cache-all has no effect: in chaski chat, /save"},
    {"run -m MODEL -p Once --tools file", "--tools: use chaski chat -p TEXT --tools FILE"},
    {"run -m MODEL -p Once --draft 16", "--draft-len 16 sets the number of tokens"},
    {"run -m MODEL -p Once --list-devices", "chaski doctor lists GPUs"},
    {"run MODEL Hello -n 1", ""},
    {"run MODEL say hello -n 1", ""},
    {"run -m MODEL hello -n 1", ""},
    {"run MODEL -p Once hello", "unexpected \"hello\""},
    {"run qwen say hello", "qwen is neither a file nor a model on this machine"},
    {"tokenize MODEL Hello",
     "did you mean chaski tokenize -m models/bundled/story.quipu -p \"Hello\"?"},
    {"run -m MODEL -p Once -n 1 -p again", "note: --prompt is given again: again replaces Once"},
    {"run -m MODEL -p Once -n 1 -sp", "-sp: control tokens are not printed; --parse-special reads"},
    {"tokenize -m MODEL -p Once --no-parse-special", ""},
    {"chat -m MODEL -cnv -i --jinja --lines", ""},
    {"chat -m MODEL -sys short -ngl 0 --lines", ""},
    {"chat -m MODEL -st -n 1 -p Hello", ""},
    {"chat -m MODEL -n 1 -p Hello --hidethinking --nowordwrap", ""},
    {"chat -m MODEL --reasoning-format none",
     "chaski chat --think shows, hides or turns off thinking"},
    {"chat -m MODEL -no-cnv", "-no-cnv: chaski chat is for conversations, chaski run completes"},
    {"chat -m MODEL --chat-template-file none.jinja --lines",
     "--chat-template is none.jinja, expected a Jinja file or"},
    {"run -m MODEL --chat-template chatml", "chat uses the template in the model's file"},
    {"chat -m MODEL --keepalive 5m --lines",
     "note: --keepalive has no effect: chaski serve is the server"},
    {"eval -m MODEL -f README.md -ngl 0 --chunks 1 -c 4", ""},
    {"bench -m MODEL -p 1 -n 1 -r 1 -ngl 0", ""},
    {"bench -m MODEL -p 1 -n 1 -r 1 --n-depth 0k", ""},
    {"bench -m MODEL -p 16385k", "--prompt is \"16385k\", expected numbers from 0"},
    {"bench -m MODEL -p 1 -n 1 -r 1 -o json", "-o: use --json or --csv"},
    {"tokenize -m MODEL --stdin -p Once --ids", ""},
    {"quantize MODEL OUT.gguf Q8_0", ""},
    {"quantize MODEL OUT Q4_K_M", ""},
    {"quantize MODEL OUT.gguf q4", "q4 is chaski's own format, expected one that GGUF files have"},
    {"quantize MODEL OUT --imatrix none.dat", "none.dat: cannot be opened"},
    {"quantize MODEL OUT --bits 4", "--bits: use --bpw X for X bits per weight on average, or"},
    {"quantize MODEL -o OUT", "-o: use chaski quantize IN OUT TYPE"},
    {"quantize MODEL OUT --qtype q4 --calib none.txt --nsamples 4", "none.txt: cannot be opened"},
    {"quantize MODEL OUT --max-size 5M", "need --calibrate TEXT"},
    {"pull a/b --token x", "--token: use --token-file FILE"},
    {"load-test http://127.0.0.1:1 --api-key x", "put the key into the variable CHASKI_API_KEY"},
    {"load-test http://127.0.0.1:1 --goodput ttft:5", "use --ttft-limit MS and --itl-limit MS"},
    {"load-test http://127.0.0.1:1 --model m --request-rate 2 --num-prompts 1 -c 2",
     "expected one of them"},
    {"load-test http://127.0.0.1:1 --model m -c 0", "--clients is"},
    {"load-test http://127.0.0.1:1 --dataset /no", "/no: cannot be opened"},
    {"quantize --leave-output-tensor MODEL OUT q4", "--leave-output-tensor: head and embedding"},
    {"quantize --token-embedding-type q8_0 MODEL OUT q4", "use --recipe FILE with lines"},
    {"eval -m MODEL -f README.md --kl-divergence", "--kl-divergence: use --kl BASE"},
    {"bench -m MODEL -p 1 -n 1 -r 1 -fa 1 -mmp 0", "note: -mmp has no effect: use --load"},
    {"run -m MODEL -p Once -n 1 --no-penalize-nl", "note: --no-penalize-nl has no effect"},
    {"chat -m MODEL --think=false -n 1 -p Hello",
     "note: the chat template cannot turn thinking off"},
    {"pull llama3.2", "llama3.2 is not the name of a model, did you mean llama3.2:1b?"},
    {"ls", "ls: chaski list shows the models"},
    {"ps", "ps: chaski serve is the server"},
    {"server", "server: use chaski serve"},
    {"batch --answer-cache DIR", "--answer-cache: only run and chat have this flag"},
    {"run -m MODEL --port 1", "--port: chaski serve is the server"},
    {"serve -m MODEL --port 0 -np 2 -a name --metrics --check", ""},
    {"serve -m MODEL --api-key x", "--api-key: use --api-keys FILE"},
    {"show llama3.2", "show: chaski inspect FILE"},
    {"rm llama3.2", "rm: models are files"},
    {"create mine -f Modelfile", "create: chaski quantize"},
    {"help run", ""},
    {"help", ""},
    {"help formats", ""},
    {"formats", "formats is a help topic, not a command: chaski help formats"},
    {"MODEL", "is a file, not a command; to chat with a model: chaski chat -m "},
    {"-m MODEL -p Once", "-m comes before a command, expected a command first: run, chat"},
};

Arguments words_of(const std::string& line) {
  std::istringstream in(line);
  Arguments words;
  static const TempFolder folder;
  for (std::string word; in >> word;)
    words.push_back(word == "MODEL" ? kStory : word.starts_with("OUT") ? folder / word : word);
  return words;
}

}  // namespace

TEST_CASE("habits/flags of other programs work, or one line says what to use") {
  for (const Line& line : kLines) {
    CAPTURE(std::string(line.typed));
    const Outcome outcome = chaski_run(words_of(line.typed));
    const std::string_view answer = line.answer;
    if (answer.starts_with("note: ")) {
      CHECK_MESSAGE(outcome.status == 0, outcome.err);
      CHECK_MESSAGE(outcome.error_says("chaski: " + std::string(answer)), outcome.err);
    } else if (!answer.empty()) {
      CHECK_MESSAGE((outcome.status == 2 || outcome.status == 5), outcome.err);
      CHECK_MESSAGE(outcome.one_error_line(), outcome.err);
      CHECK_MESSAGE(outcome.error_says(line.answer), outcome.err);
      CHECK(outcome.out.empty());
    } else {
      CHECK_MESSAGE(outcome.status == 0, outcome.err);
    }
  }
}

TEST_CASE("habits/synonyms give the same text") {
  const auto text = [](const std::string& more) {
    const Outcome outcome = chaski_run(words_of("run -m MODEL -p Once " + more));
    CHECK_MESSAGE(outcome.status == 0, outcome.err);
    return outcome.out;
  };
  const std::string story = text("-n 20 --seed 7 --temp 0.9 --stop zebra");
  CHECK(!story.empty());
  CHECK(text("--n-predict 20 -s 7 --temperature=0.9 -r zebra") == story);
  CHECK(text("-n=20 -s=7 --temp 0.9 -no-cnv -dev cpu") == story);
  CHECK(text("-n20 -s7 --temp 0.9 -q") == story);
  CHECK(text("-n 20 --seed -1") != text("-n 20 --seed -1"));
  const auto of_prompt = [](const Arguments& more) {
    Arguments all = {"run", "-n", "10", "-s", "1"};
    all.insert(all.end(), more.begin(), more.end());
    return chaski_run(all).out;
  };
  CHECK(of_prompt({"-e", "-p", "One\\n\"two\\\"\\q"}) == of_prompt({"-p", "One\n\"two\"\\q"}));
  CHECK(of_prompt({"-p", "One\\ntwo"}) != of_prompt({"-p", "One\ntwo"}));
}

TEST_CASE("habits/a mistyped flag or command gets a suggestion") {
  const std::pair<const char*, const char*> lines[] = {
      {"run --tokns 4", "chaski run has no flag --tokns, did you mean --tokens?"},
      {"run --n-predit 4", "chaski run has no flag --n-predit, did you mean --n-predict?"},
      {"run -temp 0", "chaski run has no flag -temp, did you mean --temp?"},
      {"chat --sytem x", "did you mean --system?"},
      {"bench --repetition 1", "did you mean --repetitions?"},
      {"run --decode 5", "chaski run has no flag --decode, but chaski tokenize has it"},
      {"run --depth 5", "chaski run has no flag --depth, but chaski bench has it"},
      {"run --frobnicate", "chaski run has no flag --frobnicate, see chaski run --help"},
      // Another first letter is another word.
      {"quantize a b --bize 5M", "chaski quantize has no flag --bize, see chaski quantize --help"},
      {"run --etmp 0", "chaski run has no flag --etmp, did you mean --temp?"},
      {"rnu -p a", "unknown command rnu, did you mean run?"},
      {"quantise a b", "unknown command quantise, did you mean quantize?"},
      {"frobnicate", "unknown command frobnicate, expected one of run, chat"},
      {"--version run", "--version takes no arguments, found \"run\""},
      {"--help rnu", "unknown command rnu, did you mean run?"},
      {"quantize MODEL Q4_K_M",
       "Q4_K_M is in the place of the output file, expected chaski "
       "quantize IN OUT TYPE, such as chaski quantize models/bundled/story.quipu small.quipu "
       "Q4_K_M"},
      {"quantize MODEL q8", " small.quipu q8"},
      {"quantize MODEL F16", "F16 is in the place of the output file"},
      {"run -p", "-p needs a value after it"},
      {"run --json=yes", "--json takes no value"},
      {"run -p a --draft ngarm", "a smaller model with the same vocabulary (nearest: ngram)"},
      // Only the ends of a list that grows.
      {"run -p a --draft wizard", "--draft is wizard, expected auto, "},
      {"run -p a --draft wizard", ", none, a folder of Medusa heads"},
      {"run --kv q9 -p a", "--kv is \"q9\", expected f32, "},
      {"run --kv q9 -p a", " (nearest: q8)"},
  };
  for (const auto& [line, answer] : lines) {
    CAPTURE(std::string(line));
    check_one_line(chaski_run(words_of(line)), 2, answer);
  }
}

TEST_CASE("habits/flags are checked before a model is read, and an error is printed alone") {
  const TempFolder folder;
  const std::string gguf = folder / "story.gguf";
  REQUIRE(chaski_run({"convert", kStory, gguf}).status == 0);
  const std::pair<Arguments, std::string> lines[] = {
      {{"run", "-m", gguf, "-p", "a", "--draft", folder / "none"},
       "none, which does not exist, expected auto, "},
      {{"run", "-m", gguf, "-f", folder / "none"}, "none: cannot be opened"},
      {{"eval", "-m", gguf, "-f", folder / "none"}, "none: cannot be opened"},
      {{"run", "-m", gguf, "-p", "a", "--rope-scaling", "bent"}, "--rope-scaling is bent"},
      {{"run", "-m", gguf, "-p", "a", "--device", "tpu"}, "--device is tpu"},
      {{"run", "-m", gguf, "-p", "a", "--top-p", "2"}, "--top-p"},
      {{"run", "-m", gguf, "-p", "a", "-c", "400000000"}, "a context of 400000000 needs"},
      {{"run", "-m", golden("models/gpt2"), "-p", "a", "-c", "100k"},
       "models/gpt2: --ctx is 102400, expected 1 to "},
  };
  for (const auto& [arguments, answer] : lines) {
    CAPTURE(answer);
    const Outcome outcome = chaski_run(arguments);
    CHECK_MESSAGE(outcome.one_error_line(), outcome.err);
    CHECK_MESSAGE(outcome.error_says(answer), outcome.err);
  }
}

TEST_CASE("habits/of a flag that is given twice the last counts, and -v says so") {
  const auto ran = [](const std::string& more) {
    const Outcome outcome = chaski_run(words_of("run -m MODEL -p Once -n 20 --seed 7 " + more));
    CHECK_MESSAGE(outcome.status == 0, outcome.err);
    return outcome;
  };
  const std::string warm = ran("--temp 0.9").out;
  const Outcome again = ran("--temp 0.1 --temperature 0.5 --temp=0.9 -v");
  CHECK(again.out == warm);
  CHECK_MESSAGE(again.error_says("note: --temp is given again: 0.5 replaces 0.1\n"), again.err);
  CHECK_MESSAGE(again.error_says("note: --temp is given again: 0.9 replaces 0.5\n"), again.err);
  CHECK_FALSE(ran("--temp 0.1 --temp 0.9").error_says("given again"));
  CHECK_FALSE(ran("--temp 0.9 --temp 0.9 -q -q -v").error_says("given again"));
  CHECK(ran("--temp 0.9 -m none.gguf -m MODEL").out == warm);
  // Flags that may be repeated add up.
  const std::string text = ran("--temp 0.9 --stop Lily --stop zebra").out;
  CHECK(ran("--temp 0.9 --stop zebra --stop Lily").out == text);
}

TEST_CASE("habits/-ctk and -ctv together need no note") {
  const Arguments run = words_of("run -m MODEL -p Once -n 1 -ctk q8_0 -ctv q8_0");
  CHECK_FALSE(chaski_run(run).error_says("keys and values"));
}

TEST_CASE("habits/notices are marked as notes, and -q hides them") {
  const TempFolder folder;
  const std::string gguf = folder / "story.gguf";
  REQUIRE(chaski_run({"convert", kStory, gguf, "-q"}).err.empty());
  setenv("CUDA_VISIBLE_DEVICES", "", 1);  // hides a GPU
  const Arguments run = {"run", "-m", gguf, "-p", "Once", "-n", "1", "-s", "1"};
  const auto with = [&](const Arguments& more) {
    Arguments all = run;
    all.insert(all.end(), more.begin(), more.end());
    return chaski_run(all);
  };
  const Outcome plain = with({}), quiet = with({"-q"}), verbose = with({"-v"}),
                layers = with({"-ngl", "99"}), all_layers = with({"-ngl", "all"});
  CHECK_MESSAGE(plain.err.starts_with("chaski: note: " + gguf + ": GGUF v3"), plain.err);
  CHECK(!plain.error_says("on the CPU"));
  CHECK_MESSAGE(quiet.err.empty(), quiet.err);
  CHECK(quiet.out.size() == plain.out.size());
  CHECK_MESSAGE(verbose.error_says("\nchaski: note: on the CPU: "), verbose.err);
  CHECK_MESSAGE(layers.error_says("\nchaski: note: on the CPU: --gpu-layers is 99, but "),
                layers.err);
  CHECK_MESSAGE(all_layers.error_says("\nchaski: note: on the CPU: --gpu-layers is all, but "),
                all_layers.err);
  CHECK_MESSAGE(!contains(chaski_run({"doctor"}).out, "GPU           good"), "no GPU is not good");
  check_one_line(chaski_run({"run", "-q", "-m", folder / "none", "-p", "a"}), 5, "none: ");
  unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST_CASE(
    "habits/the last line: no exponents, no draft tokens without gain, singular for 1 token") {
  const Arguments run = {"run", "-m", kStory, "-p", "Once", "-n", "1", "-s", "10"};
  const Outcome one = chaski_run(run);
  CHECK_MESSAGE(one.error_says("; answer 1 token;"), one.err);
  Arguments longer = run;
  longer[6] = "200", longer.insert(longer.end(), {"--temp", "1.5"});
  const Outcome plain = chaski_run(longer);
  CHECK_MESSAGE(plain.err.find("e+") == std::string::npos, plain.err);
  CHECK_MESSAGE(!plain.error_says("guesses"), plain.err);
  longer[6] = "1000", longer.insert(longer.end(), {"--ignore-end", "-c", "2000", "-v"});
  const Outcome verbose = chaski_run(longer);
  CHECK_MESSAGE(verbose.error_says(" draft tokens accepted"), verbose.err);
}

TEST_CASE("habits/tables are sorted by layer") {
  const std::string model = "/SmolLM2-135M-Instruct.Q4_1.gguf";
  const char* real = std::getenv("CHASKI_REAL_MODELS");
  if (!real || !have(real + model)) return;
  const std::string table = chaski_run({"inspect", real + model}).out;
  CHECK(table.find("layer.9.attn_q ") < table.find("layer.10.attn_q "));
  CHECK(table.find("layer.1.attn_q ") < table.find("layer.2.attn_q "));
}

TEST_CASE("habits/bench stores the memory speed, and run prints it without measuring") {
  const TempFolder folder;
  const std::string before = std::getenv("XDG_CACHE_HOME");
  setenv("XDG_CACHE_HOME", folder.path.c_str(), 1);
  const Outcome bench =
      chaski_run({"bench", "--device", "cpu", "-t", "1", "-p", "1", "-n", "1", "-r", "1"});
  CHECK_MESSAGE(bench.status == 0, bench.err);
  const std::string speeds = folder / "chaski/speed";
  REQUIRE(files_in(speeds) == 1);
  const std::string kept = std::filesystem::directory_iterator(speeds)->path();
  CHECK_MESSAGE(read_file(kept).ends_with(" bytes per second of cpu, -t 1\n"), read_file(kept));
  const char* real = std::getenv("CHASKI_REAL_MODELS");
  const std::string model = std::string(real ? real : "") + "/SmolLM2-135M-Instruct.Q4_1.gguf";
  if (have(model)) {
    write_file(kept, "1e12");
    const auto run = [&](const char* threads) {
      return chaski_run(
          {"run", "--device", "cpu", "-t", threads, "-m", model, "-p", "A", "-n", "3"});
    };
    CHECK_MESSAGE(run("1").error_says("% of the memory bandwidth of 1000.0 GB/s"), run("1").err);
    CHECK(!run("2").error_says("of the memory bandwidth"));  // never measured with two threads
    write_file(kept, "not a number");
    CHECK(!run("1").error_says("of the memory bandwidth"));
    CHECK(files_in(speeds) == 1);
  }
  setenv("XDG_CACHE_HOME", before.c_str(), 1);
}

TEST_CASE("habits/doctor: one verdict a line, and the memory speed is stored") {
  const TempFolder folder;
  const std::string before = std::getenv("XDG_CACHE_HOME");
  setenv("XDG_CACHE_HOME", folder.path.c_str(), 1);
  const Outcome table = chaski_run({"doctor"});
  CHECK_MESSAGE(table.status == 0, table.err);
  CHECK(table.err.empty());
  std::istringstream lines(table.out);
  size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count)
    CHECK_MESSAGE((line.substr(14, 6) == "good  " || line.substr(14, 6) == "look  " ||
                   line.starts_with("GPU           none  ")),
                  line);
  CHECK(count == 8);
  for (const char* what : {"CPU ", "cores ", "CPU quota ", "memory ", "memory speed ",
                           "huge pages ", "GPU ", "cache folder "})
    CHECK_MESSAGE(("\n" + table.out).find(std::string("\n") + what) != std::string::npos, what);
  CHECK(files_in(folder / "chaski/speed") == 1);
  CHECK(chaski_run({"doctor", "--json"}).out.starts_with("{\"schema\":1,\"findings\":["));
  setenv("XDG_CACHE_HOME", before.c_str(), 1);
}
