// Decides which steps run as one kernel, and starts them.
#include "cuda/backend/fused.h"

#include <algorithm>

#include "cuda/matmul/matmul.h"

namespace chaski {
namespace {

template <class Op>
const Op* op_at(const Plan& plan, size_t i) {
  return i < plan.steps.size() ? std::get_if<Op>(&plan.steps[i].op) : nullptr;
}

// True if no step but `reader` reads value v, as floats or quantized.
bool only_read_by(const Graph& g, ValueId v, size_t reader) {
  if (v == g.result) return false;
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    const Node& n = g.nodes[i];
    if (i != reader && (n.in_acts == v || std::count(n.in.begin(), n.in.end(), v))) return false;
  }
  return true;
}

// True if the norm at step i feeds only the matmul at i + 1. Other steps may read only the sum that
// the norm leaves.
bool can_fuse_norm(const Plan& plan, size_t i, size_t shared_limit) {
  if (!op_at<Norm>(plan, i) || op_at<Norm>(plan, i)->heads > 1 ||
      !(op_at<MatMul>(plan, i + 1) || op_at<GatedMatMul>(plan, i + 1)))
    return false;
  const Graph& g = plan.graph();
  const Node &norm = g.nodes[i], &matmul = g.nodes[i + 1];
  const ValueId y = norm.out[0] != kNone ? norm.out[0] : norm.acts;
  if (matmul.in[0] != norm.out[0] && (norm.acts == kNone || matmul.in_acts != norm.acts))
    return false;
  if (y == kNone || !only_read_by(g, y, i + 1) ||
      (norm.acts != kNone && !only_read_by(g, norm.acts, i + 1)))
    return false;
  return RowSums<1>::bytes(2, kMostSegments) + sizeof(Act) +
             normed_bytes(int(plan.steps[i].args.in[0].shape.cols)) <=
         shared_limit;
}

// True if the matmul at step i makes the q, k and v of the kv_write at i + 1. The fused kernel
// rotates and stores 32 channels of one head at a time.
bool can_fuse_kv_write(const Plan& plan, size_t i) {
  const auto* matmul = op_at<MatMul>(plan, i);
  const auto* write = op_at<KvWrite>(plan, i + 1);
  if (!matmul || matmul->weights != 3 || !write || !write->rope) return false;
  const Graph& g = plan.graph();
  const Node &from = g.nodes[i], &to = g.nodes[i + 1];
  for (int k = 0; k < 3; ++k)
    if (!std::count(from.out.begin(), from.out.end(), to.in[size_t(k)]) ||
        !only_read_by(g, to.in[size_t(k)], i + 1))
      return false;
  return write->kv.k_dim % kPairRows == 0 && write->kv.v_dim % kPairRows == 0;
}

}  // namespace

FusedSteps fused_steps(const Plan& plan, size_t first, size_t shared_limit) {
  FusedSteps f{first, 1, first};
  const Operand& in = plan.steps[first].args.in[0];
  if ((in.weight ? plan.steps[first].args.out[0].shape.rows : in.shape.rows) != 1) return f;
  if (can_fuse_norm(plan, first, shared_limit)) ++f.matmul, ++f.count;
  if (can_fuse_kv_write(plan, f.matmul)) ++f.count;
  return f;
}

void launch_fused(const Plan& plan, const FusedSteps& f, const LaunchContext& c) {
  MatMulJob job;
  if (f.norm()) job.norm = norm_row_of(*op_at<Norm>(plan, f.first), plan.steps[f.first].args);
  const Step& step = plan.steps[f.matmul];
  if (const auto* gated = op_at<GatedMatMul>(plan, f.matmul))
    return launch_op(*gated, step.args, job, c);
  StoredHeads heads;
  if (f.kv_write()) {
    const KvWrite& write = *op_at<KvWrite>(plan, f.matmul + 1);
    const OpArgs& a = plan.steps[f.matmul + 1].args;
    heads = {a.in[2].floats(), a.in[0].floats(), a.in[1].floats(), a.out[0].out_row(0)};
    job.store = {kv_state(write, a, c.batch), c.batch, c.batch.ropes[write.k.spec], write.k.dim};
  }
  launch_op(*op_at<MatMul>(plan, f.matmul), step.args, job, heads, c);
}

}  // namespace chaski
