#include "main/flags/habits.h"

#include <algorithm>
#include <utility>

namespace chaski {

namespace {

constexpr const char *kDownload =
                         "chaski pull NAME or chaski pull URL fetches a model once, -m takes its "
                         "name from then on",
                     *kService =
                         "there is no service: a model is in memory while chaski run or chat works",
                     *kTalk = "chaski chat talks, chaski run completes one prompt",
                     *kPasses =
                         "chaski chooses how many tokens a pass has, and no text depends on it",
                     *kTemplate =
                         "chat takes the template of the model's own file, which chaski "
                         "template FILE shows",
                     *kStretch =
                         "positions are stretched by --rope-scaling linear:F, dynamic:F or yarn:F",
                     *kKeep = "/save FILE in chaski chat keeps a conversation, /load goes on",
                     *kAdapters = "chaski reads no adapters: merge them into the weights first",
                     *kRoom = "layers go to the device as far as they fit: --device, --gpu-layers",
                     *kMemory = "chaski places weights, keys and values itself",
                     *kThreads =
                         "the system places threads: numactl, taskset or nice in front of chaski; "
                         "-t N is how many",
                     *kGuesses = "chaski guesses as far as it pays, --draft-len K at most";

constexpr Habit::Passed kAlone = Habit::Passed::alone, kWithValue = Habit::Passed::with_value,
                        kWithSwitch = Habit::Passed::with_switch;

constexpr Habit kHabits[] = {
    // Flags of the same meaning.
    {"", "-n --n-predict --predict --num-predict --n-gen", "--tokens"},
    {"", "-c --ctx-size --n-ctx --num-ctx", "--ctx"},
    {"", "-s", "--seed"},
    {"", "--temperature", "--temp"},
    {"", "-ngl --n-gpu-layers --num-gpu", "--gpu-layers"},
    {"", "-dev", "--device"},
    {"", "-md --model-draft", "--draft"},
    {"", "--draft-max --draft-n", "--draft-len"},
    {"", "-r --reverse-prompt", "--stop"},
    {"", "--ignore-eos", "--ignore-end"},
    {"", "-bf --binary-file", "--file"},
    {"", "-sys --system-prompt", "--system"},
    {"", "--num-thread", "--threads"},
    {"", "--no-mmap", "--load copy"},
    {"", "--mmap", "--load mmap"},
    {"", "--check-tensors", "--verify always"},
    {"", "--n-prompt", "--prompt"},
    {"", "-d --n-depth", "--depth"},
    {"", "-ctk --cache-type-k -ctv --cache-type-v", "--kv"},
    {"", "--temp-range", "--dynatemp-range"},
    {"", "--usage", "--help"},
    {"", "--log-disable --no-perf --no-show-timings", "--quiet"},
    {"", "--log-verbose", "--verbose"},
    {"", "--perf --show-timings", ""},

    // A prompt, or a conversation.
    {"chat", "-cnv --conversation -i --interactive -if --interactive-first -ins --instruct", ""},
    {"run", "-cnv --conversation -i --interactive -if --interactive-first -ins --instruct", kTalk},
    {"run", "-no-cnv --no-conversation -st --single-turn --no-display-prompt", ""},
    {"chat", "-no-cnv --no-conversation", kTalk},
    {"chat", "-st --single-turn", ""},
    {"run", "-sys --system --system-prompt -sysf --system-prompt-file",
     "a prompt goes in as it stands: chaski chat --system TEXT has a system message"},
    {"chat", "-sysf --system-prompt-file", "the shell reads a file: --system \"$(cat FILE)\""},
    {"run", "-mli --multiline-input", kTalk},
    {"run", "--nowordwrap --hidethinking", ""},
    {"chat", "-mli --multiline-input",
     "a message of several lines stands between two \"\"\", or is pasted"},
    {"", "--display-prompt", "standard output carries the completion and nothing else"},
    {"", "--no-escape --simple-io --warmup --no-warmup -co --color --offline", ""},
    {"", "--in-prefix --in-suffix --in-prefix-bos --chat-template --chat-template-file --template",
     kTemplate},
    {"chat", "--jinja", ""},
    {"", "--jinja --no-jinja", kTemplate, kAlone},
    {"", "--hidethinking", "--think hide"},
    {"chat", "--nowordwrap", "--no-word-wrap"},
    {"", "--reasoning-format --reasoning-budget --chat-template-kwargs",
     "thoughts are shown, hidden or off by --think of chaski chat"},
    {"", "--mmproj --mmproj-url --image --audio", "chaski reads text, no pictures and no sound"},
    {"", "--no-mmproj", ""},
    {"", "-sp --special", "control tokens are not shown: chaski tokenize shows those of a text"},
    {"", "--verbose-prompt", "chaski tokenize -p TEXT shows the tokens of a prompt", kAlone},
    {"run", "--prompt-cache", "--cache"},
    {"", "--prompt-cache", kKeep, kWithValue},
    {"", "--prompt-cache-all --prompt-cache-ro", kKeep, kAlone},
    {"run", "--tools --tool-choice", "chaski chat -p TEXT --tools FILE asks a model that has them"},
    {"", "--context-shift", "--context-policy shift"},
    {"", "--keep", "a full context keeps what --context-policy says", kWithValue},
    {"", "--no-context-shift", ""},

    // How tokens are drawn.
    {"", "--top-nsigma", "--top-n-sigma"},
    {"", "-l", "--logit-bias"},
    {"", "--penalize-nl --no-penalize-nl", "line ends count as other tokens do", kAlone},
    {"", "--sampler-seq --sampling-seq",
     "steps have names here: --samplers top-k,top-p,temperature"},
    {"", "--tfs --tfs-z", "tail-free sampling is not there: --typical P is its successor"},
    {"", "--grammar-file", "--grammar"},
    {"", "-j -jf --json-schema-file", "--json-schema"},
    {"", "--format", "any JSON is --json-schema '{}', that of a schema --json-schema FILE"},

    // How the machine is used.
    {"", "-tb --threads-batch", "prompts and answers have the same threads: -t N", kWithValue},
    {"", "-b --batch-size --num-batch -ub --ubatch-size", kPasses, kWithValue},
    {"", "-fa --flash-attn", "attention keeps no table of scores in any case", kWithSwitch},
    {"", "-nkvo --no-kv-offload -cmoe --cpu-moe", kRoom, kAlone},
    {"", "-sm --split-mode -ts --tensor-split -ngld --gpu-layers-draft", kRoom, kWithValue},
    {"", "-ot --override-tensor -ncmoe --n-cpu-moe -devd --device-draft", kRoom, kWithValue},
    {"", "-fit --fit -fitt --fit-target -fitc --fit-ctx", kRoom, kWithValue},
    {"", "-kvu --kv-unified -no-kvu --no-kv-unified --swa-full --repack -nr --no-repack", kMemory,
     kAlone},
    {"", "--op-offload --no-op-offload --no-host -dio --direct-io -ndio --no-direct-io", kMemory,
     kAlone},
    {"", "-dt --defrag-thold -cram --cache-ram --ctx-checkpoints --swa-checkpoints", kMemory,
     kWithValue},
    {"", "-bs --backend-sampling", "a device draws what it can draw", kAlone},
    {"", "--rpc", "chaski runs on this machine alone"},
    {"", "-mg --main-gpu", "the Nth GPU is --device cuda:N"},
    {"", "--list-devices", "chaski doctor lists GPUs; the Nth is --device cuda:N"},
    {"", "--mlock",
     "the system keeps what is read often; --load copy reads weights into memory of their own",
     kAlone},
    {"", "--numa -C --cpu-mask -Cr --cpu-range --cpu-strict --prio --poll", kThreads, kWithValue},
    {"", "-Cb --cpu-mask-batch -Crb --cpu-range-batch --cpu-strict-batch --prio-batch --poll-batch",
     kThreads, kWithValue},
    {"", "-cb --cont-batching -nocb --no-cont-batching", kPasses, kAlone},
    {"", "-np --parallel",
     "run --answers N makes several texts to one prompt, bench --sequences times several"},
    {"", "--draft-min --draft-p-min -cd --ctx-size-draft", kGuesses, kWithValue},
    {"", "-lcs --lookup-cache-static -lcd --lookup-cache-dynamic", kGuesses, kWithValue},
    {"", "-td --threads-draft -tbd --threads-batch-draft", "who guesses has the threads of -t N",
     kWithValue},
    {"", "-ctkd --cache-type-k-draft -ctvd --cache-type-v-draft",
     "who guesses has keys and values as --kv says", kWithValue},
    {"", "--rope-scale --rope-freq-base --rope-freq-scale -gan --grp-attn-n", kStretch},
    {"", "--yarn-orig-ctx --yarn-ext-factor --yarn-attn-factor --yarn-beta-slow --yarn-beta-fast",
     kStretch},

    // Models and files.
    {"", "-hf -hfr --hf-repo -hff --hf-file -hft --hf-token -hfd --hf-repo-draft -hfv", kDownload},
    {"", "-mu --model-url -dr --docker-repo --insecure", kDownload},
    {"", "--lora --lora-scaled --control-vector", kAdapters},
    {"", "--override-kv", "chaski takes a model's file as it is"},
    {"", "--keepalive", kService, kWithValue},
    {"", "--log-prefix --log-timestamps --no-log-prefix --no-log-timestamps",
     "lines of chaski have one form", kAlone},
    {"", "--log-colors", "lines of chaski have no colours", kWithSwitch},
    {"", "-ptc --print-token-count", "the last line says how many tokens there were", kWithValue},
    {"", "--host --port --api-key", kService},
    {"", "--version", "chaski --version tells it"},
    {"", "--log-file", "the shell keeps what is said in a file: 2> FILE"},
    {"", "--log-verbosity -lv", "less is said with -q, more with -v", kWithValue},
    {"bench", "-o --output", "the forms beside the table are --json and --csv"},
    {"bench", "-pg",
     "prompts (-p) and decoding (-n) are timed by themselves; --depth N decodes after N tokens"},
    {"convert", "-o --outfile --outtype",
     "chaski convert IN OUT; chaski quantize IN OUT --type FORMAT changes the format"},
    {"bench", "-mmp", "how weights lie in memory is --load mmap or copy", kWithValue},
    {"quantize", "--allow-requantize", ""},
    {"quantize", "--imatrix", "--stats"},
    {"quantize", "--leave-output-tensor --pure",
     "head and embedding keep 6 bits or more, unless --recipe FILE says otherwise"},
    {"quantize", "--output-tensor-type --token-embedding-type --tensor-type --tensor-type-file",
     "formats by name are --recipe FILE: lines REGEX = TYPE"},
    {"eval", "--kl-divergence --kl-divergence-base --save-all-logits",
     "divergence is --kl BASE, which reads the other model itself"},
    {"eval", "--ppl-stride --hellaswag --winogrande --multiple-choice",
     "chaski eval measures perplexity, and divergence with --kl BASE"},
    {"tokenize", "--stdin", ""},

    // Commands of their own.
    {"", "ls", "chaski list has the models that lie here"},
    {"", "show", "chaski inspect FILE shows what is in a model, chaski template FILE its template"},
    {"", "serve server ps stop", kService},
    {"", "create", "chaski quantize IN OUT makes a model smaller, chat --system TEXT instructs it"},
    {"", "rm cp", "models are files: rm and cp of the shell"},
    {"", "push signin signout", "chaski sends nothing anywhere"},
    {"", "version", "chaski --version tells it"},
    {"", "perplexity", "chaski eval measures perplexity"},
    {"", "cli main generate complete completion", kTalk},
};

// What begins with a dash is a flag and perhaps its value, not a sentence.
constexpr bool sentences_begin_with_a_word() {
  for (const Habit& habit : kHabits)
    if (*habit.here == '-' && std::ranges::count(std::string_view(habit.here), ' ') > 1)
      return false;
  return true;
}
static_assert(sentences_begin_with_a_word());

// Formats as GGUF and torch name them, and ollama's --think=false.
constexpr std::pair<std::string_view, std::string_view> kValues[] = {
    {"q8_0", "q8"},     {"fp16", "f16"},      {"float16", "f16"}, {"fp32", "f32"},
    {"float32", "f32"}, {"bfloat16", "bf16"}, {"true", "show"},   {"false", "off"}};

}  // namespace

std::span<const Habit> habits() { return kHabits; }

std::string_view value_here(std::string_view value) {
  for (const auto& [there, here] : kValues)
    if (there == value) return here;
  return value;
}

}  // namespace chaski
