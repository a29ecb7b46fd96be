#include "engine/quantize/sensitivity.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "engine/measure/perplexity.h"
#include "engine/passes/layer_of.h"
#include "engine/passes/pipeline.h"
#include "ggml-like-tensor/cores.h"
#include "ggml-like-tensor/file/chunks.h"
#include "ggml-like-tensor/split.h"
#include "quant/encode/encode.h"

namespace chaski {

namespace {

// What is read for each weight: pieces from all over the text, because a single piece has one
// subject, and the tokens after their first third.
constexpr int kPieces = 4, kPieceTokens = 96, kScored = 64;

// Whether a recipe may choose the weight's format.
bool is_candidate(const WeightJob& job) {
  const TensorInfo& weight = job.from();
  return !job.slot.gguf.empty() && weight.tiled() && !keeps_format(job.slot.role) &&
         weight.cols % info(kProbe).block == 0 && info(weight.format).bits() > info(kProbe).bits();
}

// The predictions of the base at all scored tokens.
class BasePredictions {
 public:
  BasePredictions(size_t vocab, int threads) : vocab_(vocab), threads_(threads) {}

  void add(std::span<const float> logits) {
    const size_t before = sum_p_ln_p_.size(), tokens = logits.size() / vocab_;
    p_.resize(p_.size() + logits.size()), sum_p_ln_p_.resize(before + tokens);
    for_each_job(tokens, threads_, [&](size_t t) {
      const auto row = logits.subspan(t * vocab_, vocab_);
      const double sum = log_of_sum(row);
      float* p = &p_[(before + t) * vocab_];
      double all = 0;
      for (size_t i = 0; i < vocab_; ++i) {
        const double ln_p = double(row[i]) - sum;
        p[i] = float(std::exp(ln_p)), all += double(p[i]) * ln_p;
      }
      sum_p_ln_p_[before + t] = all;
    });
  }
  // The divergences of other logits at the tokens from `first` on.
  void divergences(std::span<const float> logits, size_t first, std::vector<double>& to) const {
    const size_t tokens = logits.size() / vocab_;
    to.resize(first + tokens);
    for_each_job(tokens, threads_, [&](size_t t) {
      const auto row = logits.subspan(t * vocab_, vocab_);
      const float* p = &p_[(first + t) * vocab_];
      const double sum = log_of_sum(row);
      double kl[4] = {};  // four chains, so that no addition waits for another
      for (size_t i = 0; i < vocab_; ++i) kl[i % 4] += double(p[i]) * (sum - double(row[i]));
      to[first + t] = std::max(0.0, sum_p_ln_p_[first + t] + (kl[0] + kl[1] + kl[2] + kl[3]));
    });
  }

 private:
  const size_t vocab_;
  const int threads_;
  std::vector<float> p_;
  std::vector<double> sum_p_ln_p_;
};

// A weight in the probe's format, with the bytes that it refers to.
struct ProbeWeight {
  AlignedBytes bytes;
  Weight weight;
};
void encode_probe(const WeightJob& job, const std::string& file, const Calibration& calibration,
                  int threads, ProbeWeight& to) {
  TensorEncoder encoder(job.source, kProbe, file,
                        {inputs_of(calibration, job), nullptr, RoundingMethod::search});
  TensorInfo as = job.from();
  as.format = kProbe;
  to.bytes.grow(as.bytes());
  const size_t stride = strip_bytes(kProbe, as.cols);
  for_each_job(size_t(strips_of(as)), threads,
               [&](size_t s) { encoder.encode(int64_t(s), to.bytes.data() + s * stride); });
  to.weight = {as, to.bytes.data()};
}

// The measurement of a weight. Costs are in tokens through the whole model.
struct Measurement {
  size_t job;
  int begin;  // the layer from which the model is run
  uint64_t cost;
};
struct Measurements {
  std::vector<Measurement> all;  // sorted by `begin`
  uint64_t base_cost;            // of the base's own passes
  uint64_t cost() const {
    return std::accumulate(all.begin(), all.end(), base_cost,
                           [](uint64_t sum, const Measurement& m) { return sum + m.cost; });
  }
};

// The layer from which the model is run for a weight: the last one, up to the weight's own, at
// which reading can begin.
int begin_of(const WeightJob& job, const std::vector<bool>& cuts) {
  int layer =
      job.slot.role == Role::head ? int(cuts.size()) - 1 : std::max(layer_of(job.from().name), 0);
  while (layer > 0 && !cuts[size_t(layer)]) --layer;
  return layer;
}

Measurements measurements_of(const WeightJobs& jobs, const Model& model, const TextPieces& pieces) {
  // Encoding takes as long as this many multiplications with a token for each weight.
  constexpr double kEncoding = 2000;
  double in_layers = 0, in_head = 0;
  for (const WeightJob& job : jobs) {
    const double weights = double(job.from().rows) * double(job.from().cols);
    if (layer_of(job.from().name) >= 0) in_layers += job.from().tiled() ? weights : 0;
    if (job.slot.role == Role::head || (job.slot.role == Role::token_table && in_head == 0))
      in_head = weights;
  }
  in_layers = std::max(in_layers, 1.0);
  const double read = double(pieces.count * pieces.length),
               scored = double(pieces.count * pieces.scored) * in_head / in_layers;
  Measurements found{{}, uint64_t(2 * read + scored)};
  const std::vector<bool> cuts = cuts_of(model);
  const int layers = int(model.n_layers);
  for (const size_t i : candidates(jobs)) {
    const TensorInfo& weight = jobs[i].from();
    const int begin = begin_of(jobs[i], cuts);
    const double cost = 1 + read * double(layers - begin) / layers + scored +
                        kEncoding * double(weight.rows) * double(weight.cols) / in_layers;
    found.all.push_back({i, begin, uint64_t(cost)});
  }
  std::ranges::stable_sort(found.all, {}, &Measurement::begin);
  return found;
}

}  // namespace

TextPieces text_pieces(const CalibrationText& text) {
  const int window = window_of(*text.engine), all = text.windows * window;
  TextPieces p{{}, 0, std::min(kPieceTokens, window), 0};
  p.count = std::clamp(all / p.length, 1, kPieces);
  p.scored = std::min(kScored, std::max(1, p.length * 2 / 3));
  for (int i = 0; i < p.count; ++i) {
    const auto from =
        text.tokens.begin() + ptrdiff_t(int64_t(i) * (all - p.length) / std::max(1, p.count - 1));
    p.tokens.insert(p.tokens.end(), from, from + p.length);
    if (text.engine->has_tokenizer() && text.engine->tokenizer().adds_bos())
      p.tokens[size_t(i * p.length)] = text.engine->tokenizer().bos();
  }
  return p;
}

const InputSquares* inputs_of(const Calibration& calibration, const WeightJob& job) {
  const auto found = calibration.inputs.find(job.slot.gguf);
  return found != calibration.inputs.end() && found->second.fit(job.from()) ? &found->second
                                                                            : nullptr;
}

std::vector<size_t> candidates(const WeightJobs& jobs) {
  std::vector<size_t> all;
  for (size_t i = 0; i < jobs.size(); ++i)
    if (is_candidate(jobs[i])) all.push_back(i);
  return all;
}

std::vector<bool> cuts_of(const Model& model) {
  Batch one;
  one.tokens.resize(1);
  const Graph whole = stage_graph(model, all_layers(model), one);
  std::vector<bool> cuts;
  for (int layer = 0; layer < int(model.n_layers); ++layer)
    cuts.push_back(layer == 0 || can_split(whole, layer));
  return cuts;
}

uint64_t sensitivity_work(const CalibrationText& text, const WeightJobs& jobs) {
  return measurements_of(jobs, text.engine->model(), text_pieces(text)).cost();
}

void measure_sensitivity(const CalibrationText& text, const WeightJobs& jobs,
                         Calibration& calibration, int threads, const OnProgress& progress,
                         const OnMeasured& keep) {
  if (threads <= 0) threads = usable_cores();
  const auto weights = text.engine->weights();
  const Model& model = text.engine->model();
  const int layers = int(model.n_layers);
  const TextPieces pieces = text_pieces(text);
  const Measurements measured = measurements_of(jobs, model, pieces);

  // The engine's own weights, which only this function changes. Without the tokenizer, because the
  // tokens are known.
  auto changed = std::make_shared<Weights>(*weights);
  for (const auto& [key, value] : weights->meta.all())
    if (key.starts_with("tokenizer.")) changed->meta.erase(key);
  EngineOptions options;
  options.device = "cpu", options.threads = threads, options.context = pieces.length;
  const auto engine = Engine::over(changed, options);

  std::vector<std::vector<float>> rows(size_t(pieces.count));  // the input of layer `at`, by piece
  int at = 0;
  const auto read = [&](const LayersRead& part) {
    read_for_inputs(
        *engine, pieces.tokens, pieces.count, {}, [](int) {}, part);
  };
  const auto score = [&](auto on_logits) {
    LayersRead part{at, layers, &rows, true};
    part.outputs = pieces.scored;
    part.on_logits = on_logits;
    read(part);
  };
  BasePredictions base(size_t(engine->vocab_size()), threads);
  score([&](int, std::span<const float> logits) { base.add(logits); });

  uint64_t done = measured.base_cost;
  ProbeWeight probe;
  std::vector<double> kl;
  for (const Measurement& m : measured.all) {
    const WeightJob& job = jobs[m.job];
    Weight& weight = changed->tensors[m.job];
    ENSURE(weight.info.name == job.from().name, "the jobs are those of the text's model");
    done += m.cost;
    if (!calibration.kl.count(job.slot.gguf)) {
      if (at < m.begin) read(LayersRead{at, m.begin, &rows}), at = m.begin;
      encode_probe(job, text.engine->path(), calibration, threads, probe);
      // The next read makes its plans for the exchanged weight, because those of the last one end
      // with it.
      const Weight original = std::exchange(weight, probe.weight);
      kl.clear();
      score([&](int, std::span<const float> logits) { base.divergences(logits, kl.size(), kl); });
      weight = original;
      // Rounded as in the saved file, so that a run that reads the file chooses the same formats.
      calibration.kl[job.slot.gguf] =
          double(float(std::accumulate(kl.begin(), kl.end(), 0.0) / double(kl.size())));
      if (keep) keep(calibration);
    }
    if (progress) progress({job.from().name, done, measured.cost()});
  }
}

}  // namespace chaski
