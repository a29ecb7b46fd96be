#include "engine/quantize/feedback.h"

#include <algorithm>

#include "engine/passes/layer_of.h"
#include "engine/passes/pipeline.h"
#include "engine/quantize/sensitivity.h"
#include "ggml-like-tensor/cores.h"
#include "ggml-like-tensor/file/chunks.h"

namespace chaski {

namespace {

CalibrationText spread(CalibrationText text) {
  const int most = Feedbacks::kMostWindows, length = window_of(*text.engine);
  if (text.windows <= most) return text;
  std::vector<TokenId> tokens;
  for (int64_t w = 0; w < most; ++w) {
    const auto from = text.tokens.begin() + w * text.windows / most * length;
    tokens.insert(tokens.end(), from, from + length);
  }
  text.tokens = std::move(tokens), text.windows = most;
  return text;
}

// The Gram matrices of some weights' inputs. Weights that read the same values share one.
class Grams {
 public:
  Grams(std::set<WeightRows> wanted, const Feedbacks::Divisors& divisors)
      : wanted_(std::move(wanted)), divisors_(divisors) {}

  void keep(const Plan& plan, size_t step) {
    const OpArgs& a = plan.steps[step].args;
    if (const auto experts = experts_of(plan, step)) return keep_experts(*experts);
    std::shared_ptr<Gram> gram;
    for (const Weight* weight : weights_of(plan, step)) {
      if (wanted_.count({weight->info.name}) == 0 || a.in[0].shape.rows == 0) continue;
      auto& of = grams_[{weight->info.name}];
      if (!gram && !of) all_.push_back(of = std::make_shared<Gram>(weight->info.cols));
      const auto by = divisors_.find(weight->info.name);
      if (!gram)
        of->keep(a.in[0].shape.rows, [&](int64_t t, float* to) {
          input_row(a, t, to);
          if (by == divisors_.end()) return;
          for (size_t c = 0; c < by->second.size(); ++c) to[c] /= by->second[c];
        });
      gram = of = gram ? gram : of;
    }
  }

  // Gate and up of an expert share a Gram matrix.
  void keep_experts(const ExpertStep& step) {
    std::vector<std::vector<int64_t>> rows(size_t(step.op.experts));
    for (int64_t row = 0; row < step.args.in[2].shape.rows * step.args.in[2].shape.cols; ++row)
      rows[size_t(ExpertMatMul::expert_of(step.args, row))].push_back(
          ExpertMatMul::input_of(step.args, row));
    for (int64_t e = 0; e < step.op.experts; ++e) {
      std::shared_ptr<Gram> gram;
      for (const Weight* weight : step.weights) {
        const WeightRows of_expert{weight->info.name, e};
        if (wanted_.count(of_expert) == 0) continue;
        auto& of = grams_[of_expert];
        if (!gram && !of) all_.push_back(of = std::make_shared<Gram>(weight->info.cols));
        const auto& chosen = rows[size_t(e)];
        if (!gram && !chosen.empty())
          of->keep(int64_t(chosen.size()),
                   [&](int64_t t, float* to) { input_row(step.args, chosen[size_t(t)], to); });
        gram = of = gram ? gram : of;
      }
    }
  }

  // Adds the kept rows, panel by panel.
  void add(int threads) {
    std::vector<std::pair<Gram*, int64_t>> jobs;
    for (const auto& gram : all_)
      for (int64_t panel = gram->panels(); panel-- > 0;) jobs.emplace_back(gram.get(), panel);
    for_each_job(jobs.size(), threads, [&](size_t i) { jobs[i].first->add(jobs[i].second); });
    for (const auto& gram : all_) gram->drop_kept();
  }

  std::map<WeightRows, std::shared_ptr<const Feedback>> feedbacks(int threads) {
    std::vector<std::shared_ptr<const Feedback>> made(all_.size());
    for_each_job(all_.size(), threads, [&](size_t i) {
      if (all_[i]->tokens() > 0) made[i] = std::make_shared<Feedback>(*all_[i]);
    });
    std::map<WeightRows, std::shared_ptr<const Feedback>> out;
    for (const auto& [weight, gram] : grams_) {
      // With fewer tokens than columns, the matrix says little about the columns of an expert.
      if (weight.expert >= 0 && gram->tokens() < gram->cols()) continue;
      out[weight] = made[size_t(std::find(all_.begin(), all_.end(), gram) - all_.begin())];
    }
    return out;
  }

 private:
  const std::set<WeightRows> wanted_;
  const Feedbacks::Divisors& divisors_;
  std::map<WeightRows, std::shared_ptr<Gram>> grams_;
  std::vector<std::shared_ptr<Gram>> all_;
};

}  // namespace

Feedbacks::Feedbacks(CalibrationText text, int threads, uint64_t group_bytes)
    : text_(spread(std::move(text))),
      threads_(threads > 0 ? threads : usable_cores()),
      group_bytes_(group_bytes) {}

void Feedbacks::skip(const std::string& weight) {
  const std::lock_guard lock(guard_);
  std::erase_if(weights_, [&](const Expected& w) { return w.rows.weight == weight; });
}

std::shared_ptr<const Feedback> Feedbacks::of(const WeightRows& rows) {
  const std::lock_guard lock(guard_);
  for (const Group* group : {&now_, &before_})
    if (const auto found = group->find(rows); found != group->end()) return found->second;
  const auto at = std::ranges::find(weights_, rows, &Expected::rows);
  if (at == weights_.end()) return nullptr;
  before_ = std::move(now_);
  now_ = measure(size_t(at - weights_.begin()));
  return now_.at(rows);
}

template <class Look, class OnRead>
void Feedbacks::read(size_t first, size_t last, Look look, OnRead on_read) {
  const Model& model = text_.engine->model();
  const int layers = int(model.n_layers);
  if (cuts_.empty()) cuts_ = cuts_of(model);
  int begin = layers, end = 0;
  for (size_t i = first; i < last; ++i) {
    const int layer = layer_of(
        weights_[i].rows.weight);  // a weight outside the layers may be read by any of them
    begin = std::min(begin, std::max(layer, 0));
    end = std::max(end, layer < 0 ? layers : layer + 1);
  }
  while (end < layers && !cuts_[size_t(end)]) ++end;
  if (begin < at_) at_ = 0;
  const int next =
      last < weights_.size() ? std::max(layer_of(weights_[last].rows.weight), 0) : layers;
  const bool goes_on = next >= end;
  rows_.resize(size_t(text_.windows));
  read_for_inputs(*text_.engine, text_.tokens, text_.windows, look, on_read,
                  LayersRead{at_, end, &rows_, !goes_on});
  layers_read_ += end - at_;
  if (goes_on) at_ = end < layers ? end : 0;
  if (at_ == 0) rows_ = {};
}

Feedbacks::Group Feedbacks::measure(size_t first) {
  size_t last = first + 1;
  uint64_t bytes = Gram::bytes(weights_[first].cols);
  for (; last < weights_.size(); ++last) {
    bytes += Gram::bytes(weights_[last].cols);
    if (bytes > group_bytes_) break;
  }
  const auto layer = [&](size_t i) { return layer_of(weights_[i].rows.weight); };
  if (last < weights_.size()) {  // back to the beginning of a layer, unless the group gets empty
    size_t whole = last;
    while (whole > first && layer(whole - 1) == layer(last)) --whole;
    if (whole > first) last = whole;
  }
  std::set<WeightRows> wanted;
  for (size_t i = first; i < last; ++i) wanted.insert(weights_[i].rows);
  Grams grams(wanted, divisors_);
  read(
      first, last, [&](const Plan& plan, size_t step) { grams.keep(plan, step); },
      [&](int read) {
        grams.add(threads_);
        if (on_read) on_read(read, text_.windows);
      });
  Group group = grams.feedbacks(threads_);
  for (const WeightRows& rows : wanted) group.try_emplace(rows);  // no matmul reads it
  return group;
}

}  // namespace chaski
