#include "engine/quantize/awq.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_map>

#include "engine/quantize/tensor_encoder.h"
#include "engine/quantize/weight_job.h"
#include "engine/session/memory_need.h"
#include "ggml-like-tensor/file/chunks.h"
#include "quant/encode/encode.h"

namespace chaski {

namespace {

// Finds the readers and makers of the values of a graph.
class Makers {
 public:
  Makers(const Graph& graph, const Model& model) : graph_(graph) {
    for (const Model::BoundWeight& w : model.weights) roles_.emplace(w.weight, w.role);
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      for (const ValueId v : graph.nodes[n].in) {
        readers_[v].push_back(n);
        if (const Weight* weight = graph.values[size_t(v)].weight) ++uses_[weight];
      }
      for (const ValueId v : graph.nodes[n].out) made_by_[v] = n;
    }
  }

  std::vector<Fold> folds() const {
    std::vector<Fold> all;
    for (const Node& node : graph_.nodes) {
      if (std::holds_alternative<Norm>(node.op)) add_norm(node, all);
      if (std::holds_alternative<Binary>(node.op)) add_product(node, all);
      if (std::holds_alternative<Attention>(node.op)) add_attention(node, all);
    }
    return all;
  }

 private:
  const Node* maker_of(ValueId v) const {
    const auto found = made_by_.find(v);
    return found == made_by_.end() ? nullptr : &graph_.nodes[found->second];
  }
  // The tensor, if it is one of the model's and nothing else reads it; else null.
  const Weight* own(ValueId v) const {
    const Weight* weight = graph_.values[size_t(v)].weight;
    return weight && roles_.count(weight) && uses_.at(weight) == 1 ? weight : nullptr;
  }

  // The matrices of a value's readers, if all of them are matmuls; empty otherwise.
  std::vector<std::string> matmuls_of(ValueId v) const {
    std::vector<std::string> names;
    if (v == graph_.result || v == graph_.hidden || readers_.count(v) == 0) return {};
    for (const size_t n : readers_.at(v)) {
      const Node& node = graph_.nodes[n];
      const auto* matmul = std::get_if<MatMul>(&node.op);
      const Weight* weight =
          matmul && matmul->weights == 1 && node.in[0] == v ? own(node.in[1]) : nullptr;
      if (!weight || roles_.at(weight) != Role::matmul || !weight->info.tiled()) return {};
      names.push_back(weight->info.name);
    }
    return names;
  }
  // A node's weight and bias (if it has one), which begin at input `at`; empty if another node
  // reads them too.
  std::vector<std::string> own_parts(const Node& node, size_t at) const {
    std::vector<std::string> names;
    for (size_t i = at; i < node.in.size(); ++i) {
      const Weight* weight = own(node.in[i]);
      if (!weight) return {};
      names.push_back(weight->info.name);
    }
    return names;
  }
  // The matmul that makes `v`, if only one node reads `v`; else null.
  const Node* matmul_for_one(ValueId v) const {
    const Node* node = maker_of(v);
    const auto* matmul = node ? std::get_if<MatMul>(&node->op) : nullptr;
    return matmul && matmul->weights == 1 && v != graph_.result && v != graph_.hidden &&
                   readers_.at(v).size() == 1
               ? node
               : nullptr;
  }

  static void add(std::vector<Fold>& all, Fold fold) {
    if (!fold.readers.empty() && !fold.makers.empty()) all.push_back(std::move(fold));
  }
  static std::vector<int64_t> in_order(int64_t n) {
    std::vector<int64_t> rows;
    for (int64_t i = 0; i < n; ++i) rows.push_back(i);
    return rows;
  }

  void add_norm(const Node& node, std::vector<Fold>& all) const {
    const auto& norm = std::get<Norm>(node.op);
    if (norm.heads > 1 || norm.adds) return;
    const int64_t cols = graph_.values[size_t(node.out[0])].shape.cols;
    add(all, {matmuls_of(node.out[0]), own_parts(node, 1), in_order(cols), cols});
  }

  // The maker of a product is the factor that is a matmul's unchanged result.
  void add_product(const Node& node, std::vector<Fold>& all) const {
    if (std::get<Binary>(node.op).kind != Binary::Kind::mul) return;
    const int64_t cols = graph_.values[size_t(node.out[0])].shape.cols;
    const Node* maker = matmul_for_one(node.in[1]);
    if (!maker) maker = matmul_for_one(node.in[0]);
    if (maker) add(all, {matmuls_of(node.out[0]), own_parts(*maker, 1), in_order(cols), cols});
  }

  // Attention keeps the channels of values apart, so V's rows make the columns of its output.
  void add_attention(const Node& node, std::vector<Fold>& all) const {
    const auto& attention = std::get<Attention>(node.op);
    if (attention.source != Attention::Source::pages || attention.kv.v_inside_k) return;
    const Node* write = nullptr;
    for (const Node& other : graph_.nodes) {
      const StateId* state = state_of(other.op);
      if (&other == &node || !state || *state != attention.state) continue;
      if (write || !std::holds_alternative<KvWrite>(other.op))
        return;  // several nodes read or write the state
      write = &other;
    }
    const Node* maker = write && write->in.size() > 1 ? matmul_for_one(write->in[1]) : nullptr;
    if (!maker) return;
    const int64_t v_dim = attention.kv.v_dim;
    Fold fold{matmuls_of(node.out[0]), own_parts(*maker, 1), {}, attention.kv.heads * v_dim};
    for (int64_t c = 0; c < attention.heads * v_dim; ++c)
      fold.row_of.push_back(c / v_dim / attention.group() * v_dim + c % v_dim);
    add(all, std::move(fold));
  }

  const Graph& graph_;
  std::unordered_map<const Weight*, Role> roles_;
  std::unordered_map<const Weight*, int> uses_;
  std::unordered_map<ValueId, std::vector<size_t>> readers_;
  std::unordered_map<ValueId, size_t> made_by_;
};

constexpr int kPowers = 10;        // 0, .1, ... .9
constexpr int64_t kAwqStrips = 4;  // sample of a reader

// The mean square of the inputs, by the makers' row. Channels without input have the floor of
// InputSquares::factors().
std::vector<double> squares_of(const Fold& fold, const InputSquares& inputs) {
  std::vector<double> squares(size_t(fold.rows));
  double mean = 0;
  for (const float sum : inputs.sums) mean += double(sum) / double(inputs.sums.size());
  const double each = double(fold.rows) / double(fold.row_of.size());
  for (size_t c = 0; c < fold.row_of.size(); ++c)
    squares[size_t(fold.row_of[c])] += each * std::max(double(inputs.sums[c]), 1e-4 * mean);
  return squares;
}

// The roots of the mean squares to a power, with a geometric mean of 1.
std::vector<float> scales_of(const std::vector<double>& squares, double power) {
  double mean = 0;
  for (const double x : squares) mean += std::log(x) / double(squares.size());
  std::vector<float> scales;
  for (const double x : squares)
    scales.push_back(float(std::exp(power / 2 * (std::log(x) - mean))));
  return scales;
}

// The mean squared error, by column, of inputs that a matmul rounds to codes of 8 bits. The range
// of the codes is set by the largest of 32 numbers. Its square is at most the sum of all mean
// squares, and about five times the largest of them if all are similar.
std::vector<double> rounded_away(const InputSquares& inputs) {
  constexpr double kSteps = 12.0 * 127 * 127;  // squared range / mean squared error
  std::vector<double> lost(inputs.sums.size());
  for (size_t from = 0; from < lost.size(); from += 32) {
    const size_t end = std::min(from + 32, lost.size());
    double sum = 0, most = 0;
    for (size_t c = from; c < end; ++c)
      sum += double(inputs.sums[c]), most = std::max(most, double(inputs.sums[c]));
    std::fill(lost.begin() + ptrdiff_t(from), lost.begin() + ptrdiff_t(end),
              std::min(sum, 5 * most) / kSteps);
  }
  return lost;
}

// The relative squared error of some rows' outputs, if columns were independent of each other.
double lost_of(const WeightJob& job, const Fold& fold, const std::vector<float>& by_row) {
  const TensorSource& tensor = job.source;
  const Format to = job.choice.to;
  Scales scales;
  apply(fold, by_row, scales);
  const std::vector<float>& columns = scales.at(tensor.info.name).columns;
  const TensorSource source = scaled(tensor, {columns, {}});
  const InputSquares inputs = scaled(*job.inputs, columns);
  const std::vector<float> factors = inputs.factors().at(0);
  std::vector<double> rounded(inputs.sums.size());
  if (!info(to).floating) rounded = rounded_away(inputs);
  const int64_t cols = tensor.info.cols, all = strips_of(tensor.info);
  std::vector<std::byte> floats(strip_bytes(Format::f32, cols)), codes(strip_bytes(to, cols));
  std::vector<float> rows(size_t(kStrip * cols)), decoded(static_cast<size_t>(cols));
  double lost = 0, whole = 0;
  for (int64_t i = 0; i < std::min(kAwqStrips, all); ++i) {
    const int64_t strip = i * all / std::min(kAwqStrips, all);
    const int n = int(std::min<int64_t>(kStrip, tensor.info.rows - strip * kStrip));
    source.read(strip, strip + 1, floats.data());
    for (int r = 0; r < n; ++r)
      decode_row(Format::f32, floats.data(), r, cols, rows.data() + r * cols);
    encode_strip(to, rows.data(), cols, n, cols, codes.data(), factors.data());
    for (int r = 0; r < n; ++r) {
      decode_row(to, codes.data(), r, cols, decoded.data());
      for (size_t c = 0; c < size_t(cols); ++c) {
        const double x = rows[size_t(r * cols) + c], off = x - decoded[c], m = inputs.sums[c];
        lost += m * off * off + rounded[c] * x * x, whole += m * x * x;
      }
    }
  }
  return whole > 0 ? lost / whole : 0;
}

}  // namespace

std::vector<Fold> folds_of(const ModelSource& in) {
  ShapedModel model(in);
  Batch one;
  one.tokens.resize(1), one.outputs.resize(1);
  Graph graph(one);
  (*model).build(graph);
  return Makers(graph, *model).folds();
}

void apply(const Fold& fold, const std::vector<float>& by_row, Scales& scales) {
  std::vector<float> columns;
  for (const int64_t row : fold.row_of) columns.push_back(by_row[size_t(row)]);
  for (const std::string& reader : fold.readers) scales[reader].columns = columns;
  for (const std::string& maker : fold.makers) scales[maker].rows = by_row;
}

TensorSource scaled(const TensorSource& tensor, const TensorScales& by) {
  TensorInfo to = tensor.info;
  to.format = Format::f32;
  return {
      to, [tensor, by](int64_t first, int64_t last, std::byte* dst) {
        const TensorInfo& from = tensor.info;
        const int64_t cols = from.cols;
        std::vector<std::byte> packed(from.tiled() ? strip_bytes(from.format, cols) : from.bytes());
        std::vector<float> x(size_t(kStrip * cols));
        for (int64_t s = first; s < last; ++s) {
          tensor.read(s, s + 1, packed.data());
          if (!from.tiled()) {
            decode_plain_row(from.format, packed.data(), cols, x.data());
            for (size_t c = 0; c < by.rows.size(); ++c) x[c] /= by.rows[c];
            return void(std::memcpy(dst, x.data(), size_t(cols) * sizeof(float)));
          }
          const int rows = int(std::min<int64_t>(kStrip, from.rows - s * kStrip));
          for (int r = 0; r < rows; ++r) {
            float* row = x.data() + r * cols;
            decode_row(from.format, packed.data(), r, cols, row);
            const double whole = by.rows.empty() ? 1 : by.rows[size_t(s * kStrip + r)];
            for (int64_t c = 0; c < cols; ++c)
              row[c] = float(row[c] * (by.columns.empty() ? 1.0 : by.columns[size_t(c)]) / whole);
          }
          encode_strip(Format::f32, x.data(), cols, rows, cols, dst);
          dst += strip_bytes(Format::f32, cols);
        }
      }};
}

InputSquares scaled(const InputSquares& inputs, const std::vector<float>& columns) {
  InputSquares result = inputs;
  for (size_t c = 0; c < columns.size(); ++c) result.sums[c] /= columns[c] * columns[c];
  return result;
}

void scale_inputs(const ModelSource& in, WeightJobs& jobs, int threads) {
  std::unordered_map<std::string, WeightJob*> named;
  for (WeightJob& job : jobs) named[job.source.info.name] = &job;
  std::vector<Fold> folds;
  for (Fold& fold : folds_of(in)) {
    const bool reads = std::ranges::all_of(fold.readers, [&](const auto& name) {
      return named.at(name)->gets_blocks() && named.at(name)->has_inputs();
    });
    const bool makes = std::ranges::all_of(fold.makers, [&](const auto& name) {
      return !named.at(name)->source.info.tiled() || named.at(name)->gets_blocks();
    });
    if (reads && makes) folds.push_back(std::move(fold));
  }

  struct Trial {
    size_t fold, reader;
    int power;
    double lost = 0;
  };
  std::vector<Trial> trials;
  for (size_t f = 0; f < folds.size(); ++f)
    for (int power = 0; power < kPowers; ++power)
      for (size_t r = 0; r < folds[f].readers.size(); ++r) trials.push_back({f, r, power});
  const auto by_row = [&](const Fold& fold, int power) {
    return scales_of(squares_of(fold, *named.at(fold.readers[0])->inputs), double(power) / kPowers);
  };
  for_each_job(trials.size(), threads, [&](size_t i) {
    Trial& trial = trials[i];
    const Fold& fold = folds[trial.fold];
    trial.lost = lost_of(*named.at(fold.readers[trial.reader]), fold, by_row(fold, trial.power));
  });

  Scales scales;
  for (auto at = trials.begin(); at != trials.end();) {
    const Fold& fold = folds[at->fold];
    const auto n = ptrdiff_t(fold.readers.size());
    const auto lost = [&](int power) {
      double sum = 0;
      for (ptrdiff_t r = 0; r < n; ++r) sum += (at + power * n + r)->lost;
      return sum;
    };
    int best = 0;
    for (int power = 1; power < kPowers; ++power)
      if (lost(power) < lost(best)) best = power;
    if (best > 0) {
      apply(fold, by_row(fold, best), scales);
      for (ptrdiff_t r = 0; r < n; ++r)
        named.at(fold.readers[size_t(r)])->power = {double(best) / kPowers,
                                                    (at + best * n + r)->lost, (at + r)->lost};
    }
    at += kPowers * n;
  }
  for (const auto& [name, by] : scales) {
    WeightJob& job = *named.at(name);
    job.scales = by, job.source = scaled(TensorSource(job.source), by);
    if (job.inputs && !by.columns.empty()) job.inputs = scaled(*job.inputs, by.columns);
  }
}

}  // namespace chaski
