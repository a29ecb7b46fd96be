#include "main/flags/habits.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <sstream>
#include <utility>

namespace chaski {

namespace {

constexpr const char
    *kDownload =
        "chaski pull NAME or chaski pull URL downloads a model once, then -m takes its name",
    *kService = "chaski serve is the server; run and chat free their model at their end",
    *kTalk = "chaski chat is for conversations, chaski run completes one prompt",
    *kPasses = "chaski chooses the batch size itself, and the text does not depend on it",
    *kTemplate = "chat uses the template in the model's file; chaski template FILE shows it",
    *kStretch = "use --rope-scaling linear:F, dynamic:F or yarn:F",
    *kKeep = "in chaski chat, /save FILE stores a conversation and /load FILE continues it",
    *kAdapters = "chaski cannot read adapters; merge them into the weights first",
    *kLayers = "chaski puts as many layers on the GPU as fit; see --device, --gpu-layers",
    *kMemory = "chaski decides where weights and the KV cache are",
    *kBothParts = "sets the format of keys and values",
    *kThreads =
        "the system places threads; start chaski with numactl, taskset or nice; -t N sets "
        "their number",
    *kDraftLength = "chaski chooses the number of draft tokens; --draft-len K sets the maximum";

constexpr Habit::Passed kAlone = Habit::Passed::alone, kWithValue = Habit::Passed::with_value,
                        kWithSwitch = Habit::Passed::with_switch;

constexpr Habit kHabits[] = {
    // Other meanings in chaski serve than in the rows below.
    {"serve", "--api-key --api-key-file", "use --api-keys FILE"},
    {"serve", "-np --n-parallel --max-num-seqs", "--parallel"},
    {"serve", "--answer-cache",
     "only run and chat have this flag; use --cache DIR, which keeps answers and prefixes"},
    {"batch", "--answer-cache",
     "only run and chat have this flag; OUT keeps the answers of a batch"},
    {"serve", "-a --served-model-name", "--alias"},
    {"serve", "--metrics --slots --props --no-slots -cb --cont-batching",
     "these endpoints and continuous batching are always on", kAlone},

    // Flags of the same meaning.
    {"",
     "-n --n-predict --predict --num-predict --n-gen --max-tokens --max-new-tokens --num-tokens",
     "--tokens"},
    {"",
     "-c --ctx-size --n-ctx --num-ctx --context --context-size --context-length --max-seq-len "
     "--max-model-len",
     "--ctx"},
    {"", "-s --random-seed", "--seed"},
    {"", "--temperature", "--temp"},
    {"", "-ngl --n-gpu-layers --num-gpu", "--gpu-layers"},
    {"", "-dev", "--device"},
    {"", "--gpu --cuda", "--device cuda"},
    {"", "--cpu --no-gpu", "--device cpu"},
    {"", "-cmoe --cpu-moe", "--cpu-experts"},
    {"", "-md --model-draft --draft-model", "--draft"},
    {"", "--draft-max --draft-n", "--draft-len"},
    {"", "-r --reverse-prompt --stop-string --stop-sequence", "--stop"},
    {"", "--repetition-penalty", "--repeat-penalty"},
    {"", "--schema", "--json-schema"},
    {"", "--silent", "--quiet"},
    {"", "--ignore-eos", "--ignore-end"},
    {"", "-bf --binary-file", "--file"},
    {"", "-sys --system-prompt --system-message", "--system"},
    {"", "--num-thread --num-threads --n-threads --cores", "--threads"},
    {"", "--no-mmap", "--load copy"},
    {"", "--mmap", "--load mmap"},
    {"", "--check-tensors", "--verify always"},
    {"", "--n-prompt", "--prompt"},
    {"", "-d --n-depth", "--depth"},
    {"", "-ctk --cache-type-k", "--kv", Habit::Passed::no, kBothParts},
    {"", "-ctv --cache-type-v", "--kv", Habit::Passed::no, kBothParts},
    {"", "--kv-type --kv-format --kv-cache-dtype", "--kv"},
    {"", "--temp-range", "--dynatemp-range"},
    {"", "--usage", "--help"},
    {"", "--log-disable --no-perf --no-show-timings", "--quiet"},
    {"", "--log-verbose", "--verbose"},
    {"", "--perf --show-timings", ""},

    // Prompts and conversations.
    {"chat", "-cnv --conversation -i --interactive -if --interactive-first -ins --instruct", ""},
    {"run", "-cnv --conversation -i --interactive -if --interactive-first -ins --instruct", kTalk},
    {"run", "-no-cnv --no-conversation -st --single-turn --no-display-prompt", ""},
    {"chat", "-no-cnv --no-conversation", kTalk},
    {"chat", "-st --single-turn", ""},
    {"run", "-sys --system --system-prompt -sysf --system-prompt-file",
     "chaski run has no system message; use chaski chat --system TEXT"},
    {"chat", "-sysf --system-prompt-file", "let the shell read the file: --system \"$(cat FILE)\""},
    {"run", "-mli --multiline-input", kTalk},
    {"run", "--nowordwrap --hidethinking", ""},
    {"chat", "-mli --multiline-input",
     "put a message of several lines between two \"\"\", or paste it"},
    {"", "--display-prompt", "standard output contains only the completion"},
    {"", "--no-escape --simple-io --warmup --no-warmup -co --color --offline", ""},
    {"chat", "--chat-template-file", "--chat-template"},
    {"", "--in-prefix --in-suffix --in-prefix-bos --chat-template --chat-template-file --template",
     kTemplate},
    {"chat", "--jinja", ""},
    {"", "--jinja --no-jinja", kTemplate, kAlone},
    {"", "--hidethinking", "--think hide"},
    {"chat", "--nowordwrap", "--no-word-wrap"},
    {"", "--reasoning-format --reasoning-budget --chat-template-kwargs",
     "chaski chat --think shows, hides or turns off thinking"},
    {"", "--mmproj --mmproj-url --image --audio", "chaski reads only text, no images or audio"},
    {"", "--no-mmproj", ""},
    {"", "-sp --special",
     "control tokens are not printed; --parse-special reads their texts in a prompt as tokens"},
    {"", "--verbose-prompt", "chaski tokenize -p TEXT shows the tokens of a prompt", kAlone},
    {"run", "--prompt-cache", "--cache"},
    {"", "--prompt-cache", kKeep, kWithValue},
    {"", "--prompt-cache-all --prompt-cache-ro", kKeep, kAlone},
    {"run", "--tools --tool-choice", "use chaski chat -p TEXT --tools FILE"},
    {"", "--context-shift", "--context-policy shift"},
    {"", "--keep", "chaski keeps what --context-policy chooses when the context is full",
     kWithValue},
    {"", "--no-context-shift", ""},

    // Sampling.
    {"", "--top-nsigma", "--top-n-sigma"},
    {"", "-l", "--logit-bias"},
    {"", "--penalize-nl --no-penalize-nl", "the penalties treat line ends like other tokens",
     kAlone},
    {"", "--sampler-seq --sampling-seq",
     "write the names of the steps: --samplers top-k,top-p,temperature"},
    {"", "--tfs --tfs-z", "chaski has no tail-free sampling; --typical P is similar"},
    {"", "--grammar-file", "--grammar"},
    {"quantize", "--format --dtype --qtype --quant --quantization", "--type"},
    {"", "-j -jf --json-schema-file", "--json-schema"},
    {"", "--format", "use --json-schema '{}' for any JSON, --json-schema FILE for a schema"},

    // Threads, devices and memory.
    {"", "-tb --threads-batch", "prompts and answers use the same threads: -t N", kWithValue},
    {"", "-b --batch-size --num-batch -ub --ubatch-size", kPasses, kWithValue},
    {"", "-fa --flash-attn", "chaski always uses attention that stores no score matrix",
     kWithSwitch},
    {"", "-nkvo --no-kv-offload", kLayers, kAlone},
    {"", "-sm --split-mode -ts --tensor-split -ngld --gpu-layers-draft", kLayers, kWithValue},
    {"", "-ot --override-tensor -ncmoe --n-cpu-moe -devd --device-draft", kLayers, kWithValue},
    {"", "-fit --fit -fitt --fit-target -fitc --fit-ctx", kLayers, kWithValue},
    {"", "-kvu --kv-unified -no-kvu --no-kv-unified --swa-full --repack -nr --no-repack", kMemory,
     kAlone},
    {"", "--op-offload --no-op-offload --no-host -dio --direct-io -ndio --no-direct-io", kMemory,
     kAlone},
    {"", "-dt --defrag-thold -cram --cache-ram --ctx-checkpoints --swa-checkpoints", kMemory,
     kWithValue},
    {"", "-bs --backend-sampling", "the GPU samples wherever it can", kAlone},
    {"", "--rpc", "chaski --hosts a,b computes on several machines (docs/fleet.md)"},
    {"", "-mg --main-gpu", "use --device cuda:N for the Nth GPU"},
    {"", "--list-devices", "chaski doctor lists GPUs; --device cuda:N selects the Nth"},
    {"", "--mlock",
     "the system keeps used pages in memory; --load copy reads weights into private memory",
     kAlone},
    {"", "--numa -C --cpu-mask -Cr --cpu-range --cpu-strict --prio --poll", kThreads, kWithValue},
    {"", "-Cb --cpu-mask-batch -Crb --cpu-range-batch --cpu-strict-batch --prio-batch --poll-batch",
     kThreads, kWithValue},
    {"", "-cb --cont-batching -nocb --no-cont-batching", kPasses, kAlone},
    {"", "-np --parallel",
     "run --answers N writes several answers to a prompt; bench --sequences measures batches"},
    {"", "--draft-min --draft-p-min -cd --ctx-size-draft", kDraftLength, kWithValue},
    {"", "-lcs --lookup-cache-static -lcd --lookup-cache-dynamic", kDraftLength, kWithValue},
    {"", "-td --threads-draft -tbd --threads-batch-draft",
     "the draft model uses the threads of -t N", kWithValue},
    {"", "-ctkd --cache-type-k-draft -ctvd --cache-type-v-draft",
     "the draft model's KV cache has the format of --kv", kWithValue},
    {"", "--rope-scale --rope-freq-base --rope-freq-scale -gan --grp-attn-n", kStretch},
    {"", "--yarn-orig-ctx --yarn-ext-factor --yarn-attn-factor --yarn-beta-slow --yarn-beta-fast",
     kStretch},

    // Models and files.
    {"", "-hf -hfr --hf-repo", "--hub"},
    {"", "-hf -hfr --hf-repo -hff --hf-file -hft --hf-token -hfd --hf-repo-draft -hfv", kDownload},
    {"", "-mu --model-url -dr --docker-repo --insecure", kDownload},
    {"", "--lora --lora-scaled --control-vector", kAdapters},
    {"", "--override-kv", "chaski cannot override metadata of a model file"},
    {"", "--keepalive", kService, kWithValue},
    {"", "--log-prefix --log-timestamps --no-log-prefix --no-log-timestamps",
     "the format of chaski's messages is fixed", kAlone},
    {"", "--log-colors", "chaski's messages have no colors", kWithSwitch},
    {"", "-ptc --print-token-count", "chaski prints the number of tokens at the end", kWithValue},
    {"load-test", "--api-key",
     "put the key into the variable CHASKI_API_KEY: other users can see a command line"},
    {"", "--host --port --api-key", kService},
    {"", "--version", "use chaski --version"},
    {"", "--log-file", "let the shell write messages to a file: 2> FILE"},
    {"", "--log-verbosity -lv", "use -q for less output, -v for more", kWithValue},
    {"bench", "-o --output", "use --json or --csv instead of the table"},
    {"bench", "-pg",
     "prompts (-p) and decoding (-n) are timed separately; --depth N decodes after N tokens"},
    {"convert", "-o --outfile --outtype",
     "use chaski convert IN OUT; to change the format: chaski quantize IN OUT --type FORMAT"},
    {"bench", "-mmp", "use --load mmap or --load copy", kWithValue},
    {"quantize", "--allow-requantize", ""},
    {"quantize", "--imatrix", "--stats"},
    {"quantize", "--bits --bit --q-bits --bits-per-weight",
     "use --bpw X for X bits per weight on average, or --type q4 for one format"},
    {"quantize", "-o --out --output --outfile", "use chaski quantize IN OUT TYPE"},
    {"quantize", "--calib --calibration --calibration-data --dataset", "--calibrate"},
    {"quantize", "--samples --num-samples --nsamples", "--chunks"},
    {"quantize", "--target-size --max-size --budget", "--size"},
    {"pull", "-o --out --output --local-dir", "--to"},
    {"pull", "--include", "--file"},
    {"pull", "--token", "use --token-file FILE: other users can see a command line"},
    {"quantize", "--leave-output-tensor --pure",
     "head and embedding keep at least 6 bits; --recipe FILE can change that"},
    {"quantize", "--output-tensor-type --token-embedding-type --tensor-type --tensor-type-file",
     "use --recipe FILE with lines REGEX = TYPE"},
    {"eval", "--kl-divergence --kl-divergence-base --save-all-logits",
     "use --kl BASE, which runs the base model itself"},
    {"eval", "--ppl-stride --hellaswag --winogrande --multiple-choice",
     "chaski eval measures only perplexity and, with --kl BASE, KL divergence"},
    {"tokenize", "--stdin --no-parse-special", ""},
    {"run", "--no-parse-special", ""},
    {"load-test", "-m --model --served-model-name", "--model-name"},
    {"load-test", "-c --concurrency --max-concurrency --num-users --users", "--clients"},
    {"load-test", "--request-rate --rps --qps", "--rate"},
    {"load-test", "--num-prompts --num-requests", "--requests"},
    {"load-test", "--dataset --dataset-path --prompt-file --file", "--prompts"},
    {"load-test", "--ignore-eos", "--ignore-end"},
    {"load-test", "--goodput", "use --ttft-limit MS and --itl-limit MS"},

    // Commands.
    {"", "ls", "chaski list shows the models on this machine"},
    {"", "show",
     "chaski inspect FILE shows what is in a model, chaski template FILE its chat template"},
    {"", "server", "use chaski serve"},
    {"", "ps stop", kService},
    {"", "create",
     "chaski quantize IN OUT makes a model smaller; chat --system TEXT gives it instructions"},
    {"", "rm cp", "models are files; use rm and cp of the shell"},
    {"", "push signin signout", "chaski uploads nothing"},
    {"", "version", "use chaski --version"},
    {"", "perplexity", "use chaski eval, which measures perplexity"},
    {"", "cli main generate complete completion", kTalk},
};

// Text that begins with a dash is a flag and perhaps its value, so no sentence may begin so.
constexpr bool sentences_begin_with_a_word() {
  for (const Habit& habit : kHabits)
    if (*habit.here == '-' && std::ranges::count(std::string_view(habit.here), ' ') > 1)
      return false;
  return true;
}
static_assert(sentences_begin_with_a_word());

// GGUF's and torch's names of formats, and ollama's --think=false.
constexpr std::pair<std::string_view, std::string_view> kValues[] = {
    {"q8_0", "q8"},     {"fp16", "f16"},      {"float16", "f16"}, {"fp32", "f32"},
    {"float32", "f32"}, {"bfloat16", "bf16"}, {"true", "show"},   {"false", "off"}};

}  // namespace

std::span<const Habit> habits() { return kHabits; }

std::vector<std::string> words_in(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

bool is_flag(const std::string& word) {
  return word.size() > 1 && word[0] == '-' && !std::isdigit(static_cast<unsigned char>(word[1])) &&
         word[1] != '.';
}

const Habit* find_habit(std::string_view command, std::string_view word,
                        const std::function<bool(const std::string&)>& has_flag) {
  for (const Habit& habit : kHabits) {
    if (std::ranges::count(words_in(habit.names), word) == 0) continue;
    if (*habit.command && command != habit.command) continue;
    if (*habit.here != '-' || has_flag(words_in(habit.here)[0])) return &habit;
  }
  return nullptr;
}

std::string_view value_here(std::string_view value) {
  for (const auto& [there, here] : kValues)
    if (there == value) return here;
  return value;
}

}  // namespace chaski
