#include "engine/measure/kv_loss.h"

#include <malloc.h>

#include <algorithm>
#include <cmath>
#include <new>
#include <sstream>

#include "engine/machine/cache_folder.h"
#include "engine/measure/divergence.h"
#include "engine/shelf/converted.h"
#include "ggml-like-tensor/kv_formats.h"
#include "ggml-like-tensor/ops/kv_saturation.h"

namespace chaski {

namespace {

// Prose, a program and figures, with about 230 tokens in a vocabulary of 50 000 tokens.
constexpr std::string_view kText =
    R"(The town lies where two rivers meet, about forty kilometres from the sea. In 1887 its first
bridge was built of wood. A flood took it away eleven years later, and the second one, made of iron,
is still in use. "We never close it," says Marta Lind, who has kept the bridge for thirty years, "but
in winter only one car at a time may cross." Most of the 2,300 people work in the paper mill.

A program that counts words needs few lines:

def count(text):
    words = {}
    for word in text.lower().split():
        words[word] = words.get(word, 0) + 1
    return sorted(words.items(), key=lambda pair: -pair[1])

To bake the bread of the region, mix 500 g of flour with 10 g of salt and a spoon of honey. Add 350
ml of warm water, knead it for ten minutes, and let the dough rest until it has doubled.
)";
constexpr int kTokens = 192;  // that are read; the second half is compared

struct KvFacts {
  Format format;
  const char *help, *loss;  // kv_help(), kv_loss()
  double most_loss;         // most_kv_loss()
};

// chaski eval -m M --kl M --kv FORMAT --base-kv f16 -f wiki.test.raw --chunks 2
constexpr KvFacts kFacts[] = {
    {Format::f32, "exact; twice the memory of f16", "", 0},
    {Format::f16, "the default; answers hardly differ from f32", "", 0},
    {Format::f8, "half the memory of f16: floats of 8 bits (e4m3) without a scale, up to 448",
     ".0035 to .0080", .01},
    {Format::q8,
     "slightly more than half of f16: integers of 8 bits with scales; more precise than f8",
     ".0001 to .0004", .001},
    {Format::q4_0,
     "slightly more than a quarter of f16: integers of 4 bits; answers differ, long texts fit",
     ".011 to .045", .08},
};

constexpr const KvFacts* facts_of(Format format) {
  return std::ranges::find(kFacts, format, &KvFacts::format);
}
static_assert(std::ranges::all_of(kKvTypes, [](const KvType& type) {
  return facts_of(type.format) != std::end(kFacts);
}));

std::string place_of(const std::string& model, Format format) {
  const std::string name = kept_name("kv", model);
  return name.empty() ? "" : fmt::format("{}-{}", name, info(format).name);
}

}  // namespace

std::string kv_help(Format format) { return facts_of(format)->help; }
std::string kv_loss(Format format) { return facts_of(format)->loss; }
double most_kv_loss(Format format) { return facts_of(format)->most_loss; }

std::optional<KvLoss> kept_kv_loss(const std::string& model, Format format) {
  const std::string place = place_of(model, format);
  if (place.empty()) return std::nullopt;
  std::istringstream in(kept_text(place));
  std::string state;
  KvLoss loss;
  if (!std::getline(in, state) || state != state_of_model(model) ||
      !(in >> loss.kl >> loss.standard_error))
    return std::nullopt;
  return loss;
}

bool can_keep_kv_loss(const std::string& model, Format format) {
  const std::string place = place_of(model, format);
  return !place.empty() && !state_of_model(model).empty() && can_keep_text(place);
}

void keep_kv_loss(const std::string& model, Format format, const KvLoss& loss) {
  const std::string place = place_of(model, format), state = state_of_model(model);
  if (!place.empty() && !state.empty())
    keep_text(place, fmt::format("{}\n{} {}\n", state, loss.kl, loss.standard_error));
}

KvLoss kv_loss_of(const Divergence& d) {
  return {std::max(0.0, d.kl.mean - d.floor.mean),
          std::hypot(d.kl.standard_error(), d.floor.standard_error())};
}

// With engines of its own, so that no page or figure of `engine` changes.
std::optional<KvLoss> measure_kv_loss(const Engine& engine,
                                      const std::function<void()>& on_begin) try {
  if (engine.device() != "cpu" || engine.expert_facts() || engine.streamed_bytes() > 0)
    return std::nullopt;
  const std::vector<TokenId> tokens = engine.tokenizer().encode_prompt(std::string(kText));
  const int window =
      std::min({kTokens, engine.context_length(), int(std::min<size_t>(tokens.size(), kTokens))});
  if (window < kLeastWindow) return std::nullopt;
  const struct Trim {  // what malloc keeps of the engines below would be missing in a small group
    ~Trim() { ::malloc_trim(0); }
  } trim;
  EngineOptions options;
  options.device = "cpu", options.threads = engine.threads();
  options.context = window, options.rope_scaling = engine.rope_scaling();
  options.kv = engine.kv_format();
  const std::shared_ptr<Engine> model = engine.with(options);
  options.kv = Format::f16;
  const std::shared_ptr<Engine> base = engine.with(options);
  options.kv = Format::f32;
  const std::shared_ptr<Engine> twin = engine.with(options);
  if (model->state_bytes(window) == base->state_bytes(window)) return std::nullopt;  // no KV cache
  on_begin();
  return kv_loss_of(divergence(*base->session(), *model->session(), twin->session().get(), tokens,
                               window, 1, [](const Divergence&, uint64_t) {}));
} catch (const Error&) {  // the text itself will say what is wrong
  return std::nullopt;
} catch (const std::bad_alloc&) {
  return std::nullopt;
}

std::string kv_saturation() {
  return !kv_saturated() ? ""
                         : "--kv f8: the model has keys or values above 448, the largest number of "
                           "f8, which were stored as 448; --kv q8 has no such limit";
}

}  // namespace chaski
