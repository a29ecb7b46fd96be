#include "main/habits.h"

#include <algorithm>
#include <utility>

namespace chaski {

namespace {

constexpr const char *kDownload =
                         "chaski downloads nothing: fetch the GGUF file, for example with curl -LO "
                         "URL, and run it with -m",
                     *kService =
                         "there is no service: a model is in memory while chaski run or chat works",
                     *kTalk = "chaski chat talks, chaski run completes one prompt",
                     *kDraws =
                         "chaski draws by --temp, --top-k, --top-p, --min-p and "
                         "--repeat-penalty",
                     *kOneKv = "keys and values have one format here: --kv f16, f8, q8 or q4_0",
                     *kPasses =
                         "chaski chooses how many tokens a pass has, and no text depends on "
                         "it: leave it away",
                     *kTemplate =
                         "chat takes the template of the model's own file, which chaski "
                         "template FILE shows",
                     *kStretch =
                         "positions are stretched by --rope-scaling linear:F, dynamic:F or yarn:F",
                     *kKeep = "/save FILE in chaski chat keeps a conversation, /load goes on",
                     *kAsk = "chat reads questions from standard input: echo 'Hello' | chaski chat",
                     *kUnforced =
                         "answers are not forced into a form; chaski run --json tells of "
                         "an answer in JSON",
                     *kAdapters = "chaski reads no adapters: merge them into the weights first",
                     *kRoom = "layers go to the device as far as they fit: --device, --gpu-layers";

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
    {"", "--usage", "--help"},
    {"", "--log-disable --no-perf", "--quiet"},

    // A prompt, or a conversation.
    {"chat", "-cnv --conversation -i --interactive -if --interactive-first -ins --instruct", ""},
    {"run", "-cnv --conversation -i --interactive -if --interactive-first -ins --instruct", kTalk},
    {"run", "-no-cnv --no-conversation -st --single-turn --no-display-prompt", ""},
    {"chat", "-no-cnv --no-conversation", kTalk},
    {"chat", "-st --single-turn -p --prompt -f --file", kAsk},
    {"run", "-sys --system --system-prompt -sysf --system-prompt-file",
     "a prompt goes in as it stands: chaski chat --system TEXT has a system message"},
    {"chat", "-sysf --system-prompt-file", "the shell reads a file: --system \"$(cat FILE)\""},
    {"chat", "-mli --multiline-input",
     "a message of several lines stands between two \"\"\", or is pasted"},
    {"", "--display-prompt", "standard output carries the completion and nothing else"},
    {"", "-e --escape", "the shell makes line ends and tabs: -p $'one\\ntwo'"},
    {"", "--no-escape --simple-io --warmup --no-warmup --nowordwrap -co --color", ""},
    {"", "--in-prefix --in-suffix --in-prefix-bos --chat-template --chat-template-file --template",
     kTemplate},
    {"chat", "--jinja", ""},
    {"", "--jinja --no-jinja", kTemplate},
    {"", "--think --hidethinking --reasoning-format --reasoning-budget",
     "what a model thinks is shown as it is written"},
    {"", "-sp --special", "control tokens are not shown: chaski tokenize shows those of a text"},
    {"", "--verbose-prompt", "chaski tokenize -p TEXT shows the tokens of a prompt"},
    {"", "--prompt-cache --prompt-cache-all --prompt-cache-ro", kKeep},
    {"", "--context-shift", "--context-policy shift"},
    {"", "--keep", "a full context keeps what --context-policy says"},
    {"", "--no-context-shift", ""},

    // How tokens are drawn.
    {"", "--repeat-last-n", "the last 64 tokens are those of --repeat-penalty"},
    {"", "--samplers --sampling-seq --sampler-seq --typical --top-nsigma --xtc-probability",
     kDraws},
    {"", "--xtc-threshold --presence-penalty --frequency-penalty --dry-multiplier --dry-base",
     kDraws},
    {"", "--dry-allowed-length --dynatemp-range --dynatemp-exp --mirostat --mirostat-lr", kDraws},
    {"", "--mirostat-ent -l --logit-bias --tfs", kDraws},
    {"", "--grammar --grammar-file -j --json-schema -jf --json-schema-file --format", kUnforced},

    // How the machine is used.
    {"", "-tb --threads-batch", "prompts and answers have the same threads: -t N"},
    {"", "-b --batch-size --num-batch -ub --ubatch-size", kPasses},
    {"", "-fa --flash-attn", "attention keeps no table of scores in any case: leave it away"},
    {"", "-ctk --cache-type-k -ctv --cache-type-v", kOneKv},
    {"", "-nkvo --no-kv-offload -sm --split-mode -ts --tensor-split -ngld --gpu-layers-draft",
     kRoom},
    {"", "-ot --override-tensor -cmoe --cpu-moe -ncmoe --n-cpu-moe -devd --device-draft", kRoom},
    {"", "-mg --main-gpu", "the Nth GPU is --device cuda:N"},
    {"", "--list-devices", "chaski doctor lists GPUs; the Nth is --device cuda:N"},
    {"", "--mlock",
     "the system keeps what is read often; --load copy reads weights into memory of their own"},
    {"", "--numa -C --cpu-mask -Cr --cpu-range --cpu-strict --prio --poll",
     "the system places threads: numactl, taskset or nice in front of chaski; -t N is how many"},
    {"", "-np --parallel --cont-batching",
     "run --answers N makes several texts to one prompt, bench --sequences times several"},
    {"", "--draft-min --draft-p-min -cd --ctx-size-draft",
     "chaski guesses as far as it pays, --draft-len K at most"},
    {"", "--rope-scale --rope-freq-base --rope-freq-scale -gan --grp-attn-n", kStretch},
    {"", "--yarn-orig-ctx --yarn-ext-factor --yarn-attn-factor", kStretch},

    // Models and files.
    {"", "-hf -hfr --hf-repo -hff --hf-file -hft --hf-token -hfd --hf-repo-draft", kDownload},
    {"", "-mu --model-url -dr --docker-repo --insecure", kDownload},
    {"", "--lora --lora-scaled --control-vector", kAdapters},
    {"", "--override-kv", "chaski takes a model's file as it is"},
    {"", "--keepalive", kService},
    {"", "--log-file", "the shell keeps what is said in a file: 2> FILE"},
    {"", "--log-verbosity -lv", "less is said with -q, more with -v"},
    {"bench", "-o --output", "the forms beside the table are --json and --csv"},
    {"bench", "-pg",
     "prompts (-p) and decoding (-n) are timed by themselves; --depth N decodes after N tokens"},
    {"convert", "-o --outfile --outtype",
     "chaski convert IN OUT; chaski quantize IN OUT --type FORMAT changes the format"},
    {"quantize", "--allow-requantize", ""},
    {"tokenize", "--stdin", ""},

    // Commands of their own.
    {"", "pull", kDownload},
    {"", "list ls", "models are files where you put them: -m FILE"},
    {"", "show", "chaski inspect FILE shows what is in a model, chaski template FILE its template"},
    {"", "serve server ps stop", kService},
    {"", "create", "chaski quantize IN OUT makes a model smaller, chat --system TEXT instructs it"},
    {"", "rm cp", "models are files: rm and cp of the shell"},
    {"", "push signin signout", "chaski sends nothing anywhere"},
    {"", "help", "chaski --help lists the commands, chaski COMMAND --help their flags"},
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

// Formats as GGUF and torch name them.
constexpr std::pair<std::string_view, std::string_view> kValues[] = {
    {"q8_0", "q8"},  {"fp16", "f16"},    {"float16", "f16"},
    {"fp32", "f32"}, {"float32", "f32"}, {"bfloat16", "bf16"}};

}  // namespace

std::span<const Habit> habits() { return kHabits; }

std::string_view value_here(std::string_view value) {
  for (const auto& [there, here] : kValues)
    if (there == value) return here;
  return value;
}

}  // namespace chaski
