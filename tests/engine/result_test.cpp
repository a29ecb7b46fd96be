// Other results of a pass: hidden states and embeddings.
#include "engine/passes/pipeline.h"
#include "engine/session/engine.h"
#include "engine/session/session.h"
#include "tests/kit/engine_support.h"
#include "tests/kit/scratch_model.h"

using namespace chaski;
using namespace chaski::test;

namespace {

std::vector<float> copied(std::span<const float> x) { return {x.begin(), x.end()}; }

const Weight& head_of(const Engine& e) {
  const Weight* head = nullptr;
  for (const Model::BoundWeight& w : e.model().weights)
    if (w.role == Role::head || (w.role == Role::token_table && !head)) head = w.weight;
  return *head;
}

// Undoes the scaling or soft cap that an architecture applies to the output of the head. The
// numbers are from config.json of the golden folders.
double undone(const std::string& model, double logit) {
  const std::string name = std::filesystem::path(model).filename();
  if (name.starts_with("command_r") || name == "cohere2") return logit / 0.25;
  for (const char* granite : {"granite", "granitemoe", "granite_swa", "granite_hybrid"})
    if (name == granite) return logit * 2.5;
  if (name == "falcon_h1") return logit / 0.5;
  if (name == "minicpm") return logit * 2;
  if (name == "muse_glimmer") return 10 * std::atanh(logit / 10) / 0.6;
  for (const char* bounded : {"gemma2", "gemma3n", "gemma4"})
    if (name.starts_with(bounded)) return 10 * std::atanh(logit / 10);
  return logit;
}

// Relative error of the logits that the head computes from the hidden states: mean squared error
// over mean square.
double hidden_error(const Engine& e, const std::string& model, std::span<const float> hidden,
                    std::span<const float> logits) {
  const TensorInfo& w = head_of(e).info;
  const Weight* bias = e.weights()->find(w.name + ".bias");
  std::vector<float> row(size_t(w.cols));
  double error = 0, size = 0;
  for (int64_t v = 0; v < w.rows; ++v) {
    decode_row(w.format, head_of(e).data + size_t(v / kStrip) * strip_bytes(w.format, w.cols),
               int(v % kStrip), w.cols, row.data());
    for (size_t t = 0; t < hidden.size() / row.size(); ++t) {
      double sum = bias ? reinterpret_cast<const float*>(bias->data)[v] : 0;
      for (size_t c = 0; c < row.size(); ++c) sum += double(row[c]) * hidden[t * row.size() + c];
      const double got = undone(model, logits[t * size_t(w.rows) + size_t(v)]);
      error += (sum - got) * (sum - got), size += got * got;
    }
  }
  return error / size;
}

}  // namespace

TEST_CASE("result: the head computes the logits from the hidden states") {
  const TempFolder temp;
  std::vector<std::string> models{write_scratch_model(temp / "scratch.quipu", Format::f32)};
  for (const std::string& model : golden_models()) models.push_back(model);
  for (const std::string& model : models) {
    CAPTURE(model);
    const auto e = open_on_cpu(model, Format::f32);
    const auto t = tokens_for(*e, 20);
    const auto hidden = copied(e->session()->hidden(t, 20));
    REQUIRE(int(hidden.size()) == 20 * e->hidden_size());
    const auto logits = copied(e->session()->extend(t, 20));
    CHECK(hidden_error(*e, model, hidden, logits) < 1e-9);

    // In other batches, and with passes of both kinds in one session.
    const auto s = e->session();
    std::vector<float> by_passes = copied(s->hidden(std::span(t).first(7), 7));
    for (const TokenId& token : std::span(t).subspan(7, 5))
      for (const float x : s->hidden({&token, 1})) by_passes.push_back(x);
    CHECK(std::equal(by_passes.begin(), by_passes.end(), hidden.begin()));
    const auto rest = s->extend(std::span(t).subspan(12), 8);
    CHECK(std::equal(rest.begin(), rest.end(), logits.end() - long(rest.size())));
  }
}

TEST_CASE("result: an embedding is the hidden state of the last token, or the mean of all") {
  const TempFolder temp;
  const auto e = open_on_cpu(write_scratch_model(temp / "scratch.quipu"), Format::f32);
  const auto t = tokens_for(*e, 50);
  const size_t cols = size_t(e->hidden_size());
  const auto hidden = copied(e->session()->hidden(t, 50));
  CHECK(e->session()->pooled(t) == std::vector<float>(hidden.end() - long(cols), hidden.end()));

  const_cast<Model&>(e->model()).pooling = Model::Pooling::mean;
  std::vector<float> mean;
  for (size_t c = 0; c < cols; ++c) {
    double sum = 0;
    for (size_t i = c; i < hidden.size(); i += cols) sum += hidden[i];
    mean.push_back(float(sum / 50));
  }
  for (const int pass : {256, 13, 1}) {
    e->pipeline().max_batch = pass;
    const auto s = e->session();
    CHECK(s->pooled(t) == mean);
    CHECK(s->position() == 50);
  }
}
