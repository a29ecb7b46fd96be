#include "engine/quantize/outliers.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>

#include "engine/quantize/awq.h"
#include "engine/quantize/weight_job.h"
#include "engine/session/memory_need.h"
#include "ggml-like-tensor/base/error.h"
#include "quant/encode/encode.h"

namespace chaski {

std::vector<int64_t> outliers_of(const InputSquares& inputs, double above) {
  std::vector<float> sorted = inputs.sums;
  const auto middle = sorted.begin() + ptrdiff_t(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  const double bound = above * double(*middle);
  std::vector<int64_t> columns;
  for (int64_t c = 0; c < inputs.cols; ++c)
    if (double(inputs.sums[size_t(c)]) > bound) columns.push_back(c);
  std::stable_sort(columns.begin(), columns.end(), [&](int64_t a, int64_t b) {
    return inputs.sums[size_t(a)] > inputs.sums[size_t(b)];
  });
  columns.resize(size_t(std::min(int64_t(columns.size()), inputs.cols / kOutlierShare)));
  std::sort(columns.begin(), columns.end());
  return columns;
}

std::set<std::string> can_set_aside(const ModelSource& in) {
  ModelSource with = in;
  std::map<std::string, std::string> weights;  // by the name of their outliers
  for (const TensorSlot& slot : tensors_of(*model_of(in.meta))) {
    if (slot.role == Role::outliers) weights.emplace(slot.name, slot.of);
    const TensorSource* weight = in.find(slot.name);
    if (!weight || slot.role != Role::matmul || !weight->info.tiled()) continue;
    with.tensors.push_back(column_numbers(weight->info, {0}));
    with.tensors.push_back(columns_alone(*weight, {0}));
  }
  ShapedModel model(with);
  Batch one;
  one.tokens.resize(1), one.outputs.resize(1);
  Graph graph(one);
  (*model).build(graph);
  std::set<std::string> names;
  for (const Weight* weight : weights_of(graph))
    if (const auto found = weights.find(weight->info.name); found != weights.end())
      names.insert(found->second);
  return names;
}

void set_outliers_aside(const ModelSource& in, WeightJobs& jobs, double above) {
  if (std::ranges::any_of(jobs, [](const auto& job) { return job.slot.role == Role::outliers; }))
    fail(Exit::usage,
         "{}: this model has outliers that are set aside already, expected one without for "
         "--outliers",
         in.path);
  const std::set<std::string> able = can_set_aside(in);
  for (WeightJob& job : jobs) {
    if (!job.has_inputs() || !job.gets_blocks() || !able.count(job.source.info.name)) continue;
    job.outliers = outliers_of(*job.inputs, above);
    if (job.outliers.empty()) continue;
    job.source = without_columns(TensorSource(job.source), job.outliers);
    job.inputs = without_columns(*job.inputs, job.outliers);
  }
}

void add_outlier_jobs(WeightJobs& jobs) {
  const auto job_of = [](TensorSource source, Role role, const std::string& weight,
                         FormatChoice choice) {
    const std::string name = source.info.name;
    TensorSlot slot;
    slot.name = name, slot.of = weight, slot.role = role;
    return WeightJob{
        .source = std::move(source), .slot = std::move(slot), .choice = std::move(choice)};
  };
  WeightJobs added;
  for (const WeightJob& job : jobs) {
    if (job.outliers.empty()) continue;
    const TensorSource& weight = *job.original;
    const bool is_scaled = !job.scales.columns.empty() || !job.scales.rows.empty();
    added.push_back(job_of(
        columns_alone(is_scaled ? scaled(weight, job.scales) : weight, job.outliers),
        Role::outliers, weight.info.name,
        {weight.info.format == Format::bf16 ? Format::bf16 : Format::f16, "outliers", true}));
    added.push_back(job_of(column_numbers(weight.info, job.outliers), Role::outlier_columns,
                           weight.info.name, {Format::f32, "numbers of columns", true}));
  }
  std::ranges::move(added, std::back_inserter(jobs));
}

TensorSource without_columns(const TensorSource& weight, const std::vector<int64_t>& columns) {
  TensorScales zeros;
  zeros.columns.assign(size_t(weight.info.cols), 1);
  for (const int64_t c : columns) zeros.columns[size_t(c)] = 0;
  return scaled(weight, zeros);
}

TensorSource columns_alone(const TensorSource& weight, const std::vector<int64_t>& columns) {
  const TensorInfo from = weight.info;
  const auto n = int64_t(columns.size());
  return {{from.name + std::string(kOutlierWeight), Format::f32, from.rows, n},
          [=](int64_t first, int64_t last, std::byte* dst) {
            std::vector<std::byte> packed(strip_bytes(from.format, from.cols));
            std::vector<float> row(size_t(from.cols)), x(size_t(kStrip * n));
            for (int64_t s = first; s < last; ++s, dst += strip_bytes(Format::f32, n)) {
              weight.read(s, s + 1, packed.data());
              const int rows = int(std::min<int64_t>(kStrip, from.rows - s * kStrip));
              for (int r = 0; r < rows; ++r) {
                decode_row(from.format, packed.data(), r, from.cols, row.data());
                for (int64_t i = 0; i < n; ++i)
                  x[size_t(r * n + i)] = row[size_t(columns[size_t(i)])];
              }
              encode_strip(Format::f32, x.data(), n, rows, n, dst);
            }
          }};
}

TensorSource column_numbers(const TensorInfo& weight, const std::vector<int64_t>& columns) {
  const std::vector<float> numbers(columns.begin(), columns.end());
  return {{weight.name + std::string(kOutliers), Format::f32, 1, int64_t(numbers.size())},
          [numbers](int64_t, int64_t, std::byte* dst) {
            std::memcpy(dst, numbers.data(), numbers.size() * sizeof(float));
          }};
}

InputSquares without_columns(const InputSquares& inputs, const std::vector<int64_t>& columns) {
  InputSquares result = inputs;
  for (const int64_t c : columns) result.sums[size_t(c)] = 0;
  return result;
}

}  // namespace chaski
