// The forward pass of one batch shape, as a model writes it: a list of ops over values. Models call
// the builder functions. Nothing here depends on backends, fusions or the place of keys and values.
#pragma once
#include <string>
#include <vector>

#include "ggml-like-tensor/batch.h"
#include "ggml-like-tensor/file/quipu.h"
#include "ggml-like-tensor/ops.h"

namespace chaski {

using ValueId = int32_t;
constexpr ValueId kNone = -1;

struct GraphValue {
  Shape shape;
  const Weight* weight = nullptr;  // not null: a constant
  ValueKind kind = ValueKind::f32;
};

struct Node {
  AnyOp op;
  std::vector<ValueId> in, out;  // out: kNone if there is no reader
  ValueId in_acts = kNone;       // in[0], quantized
  ValueId acts = kNone;          // out[0], quantized
};

class Graph {
 public:
  explicit Graph(const Batch& batch, Network network = Network::decoder)
      : network(network), batch_(&batch) {}

  Network network;  // that Model::build() writes

  ValueId take_input(int64_t cols);  // (tokens, cols), given to each run by the caller
  ValueId get_rows(const Weight& table, GetRows::By by = GetRows::By::token);
  ValueId take_outputs(ValueId x);  // rows of the tokens whose logits are wanted
  ValueId matmul(ValueId x, const Weight& w, const Weight* bias = nullptr);
  // heads > 1: each of `heads` slices of a row is normed by itself. They share one weight or have
  // one weight each.
  ValueId rms_norm(ValueId x, const Weight& w, float eps, int heads = 1);
  ValueId layer_norm(ValueId x, const Weight& w, const Weight& bias, float eps, int heads = 1);
  ValueId rope(ValueId x, int heads, int head_dim, const RopeSpec& spec);
  // Declares what is kept of a sequence from pass to pass. States are numbered in the order of
  // these calls.
  StateId state(const State& s);
  // v: kNone if the values are inside k. centre: constants of the keys, scales: powers of
  // two, which the attention over them needs too (ops/kv_write.h); or null.
  void kv_write(StateId kv, ValueId k, ValueId v = kNone, const Weight* centre = nullptr,
                const Weight* scales = nullptr);
  ValueId attention(ValueId q, StateId kv, float scale, float soft_cap = 0);
  // Attention with all its parameters; heads and the state's sizes are filled in. sinks: (1,
  // heads), or null.
  ValueId attention(ValueId q, Attention parameters, const Weight* sinks = nullptr,
                    const Weight* key_scales = nullptr);
  // Attention over the keys and values of the pass itself, as in an encoder. parameters.kv
  // describes them.
  ValueId attention(ValueId q, ValueId k, ValueId v, Attention parameters,
                    const Weight* sinks = nullptr);
  // The cells of its sequence that each token attends to, at most `most`; and attention over them.
  // keys: a state of one head without values.
  ValueId lightning_index(ValueId q, ValueId weights, StateId keys, int most);
  ValueId sparse_attention(ValueId q, ValueId cells, StateId kv, float scale);
  // These have a state of their own. ops/*.h describe their inputs; sizes and the state are filled
  // in.
  ValueId short_conv(ValueId x, const Weight& w, const Weight* bias = nullptr, bool silu = false);
  ValueId selective_scan(ValueId x, ValueId dt, ValueId b, ValueId c, const Weight& decays,
                         const Weight& direct);
  ValueId state_scan(ValueId xbc, ValueId dt, StateScan op, const Weight& decays,
                     const Weight& direct);
  // Without time steps and a direct path.
  ValueId state_scan(ValueId xbc, StateScan op, const Weight& decays);
  ValueId delta_rule(ValueId q, ValueId k, ValueId v, ValueId dt, ValueId beta, DeltaRule op,
                     const Weight& decays);
  ValueId taylor_scan(ValueId q, ValueId k, ValueId v, TaylorScan op);
  // The inputs of RWKV 6, in the order of ops/wkv.h.
  ValueId wkv(std::vector<ValueId> in, Wkv op, const Weight& bonus);
  struct Recalled {
    ValueId y, bonus;
  };
  // Those of RWKV 7, without the bonus' weight: r, k, v, w, kk, a.
  Recalled wkv7(std::vector<ValueId> in, Wkv op, const Weight& bonus);
  ValueId add(ValueId a, ValueId b) { return append(Binary{Binary::Kind::add}, {a, b}).out[0]; }
  ValueId mul(ValueId a, ValueId b) { return append(Binary{Binary::Kind::mul}, {a, b}).out[0]; }
  // b: (1, columns of a), for each row.
  ValueId mul(ValueId a, const Weight& b) {
    return append(Binary{Binary::Kind::mul}, {a, weight(b)}).out[0];
  }
  ValueId clamped_swiglu(ValueId gate, ValueId up) {
    return append(Binary{Binary::Kind::clamped_swiglu}, {gate, up}).out[0];
  }
  ValueId activate(Activation kind, ValueId x) { return append(Unary{kind}, {x}).out[0]; }
  ValueId silu(ValueId x) { return activate(Activation::silu, x); }
  ValueId scale(ValueId x, float factor) { return append(Scale{factor, 0}, {x}).out[0]; }
  ValueId soft_cap(ValueId x, float cap) { return append(Scale{1, cap}, {x}).out[0]; }
  ValueId clip(ValueId x, float most) { return append(Scale{1, 0, most}, {x}).out[0]; }
  ValueId xielu(ValueId x, const Xielu& op) { return append(op, {x}).out[0]; }
  ValueId soft_max(ValueId x, float scale) { return append(SoftMax{scale}, {x}).out[0]; }
  ValueId columns(ValueId x, int64_t first, int64_t count) {
    return append(Columns{first, count}, {x}).out[0];
  }
  ValueId reorder(ValueId x, const Weight& order) {
    return append(Reorder{}, {x, weight(order)}).out[0];
  }
  struct Aside {
    ValueId rest, taken;
  };
  // Nodes that set aside the same columns of x share one SetAside node.
  Aside set_aside(ValueId x, const Weight& numbers);
  // The sum of the values `of`, each times one column of `weights`; the columns start at `first`.
  // At most seven values.
  ValueId blend(std::vector<ValueId> of, ValueId weights, int64_t first = 0) {
    of.push_back(weights);
    return append(Blend{first}, std::move(of)).out[0];
  }
  ValueId mean_product(ValueId a, ValueId b) { return append(MeanProduct{}, {a, b}).out[0]; }
  ValueId mean_product(ValueId a, const Weight& b) { return mean_product(a, weight(b)); }
  struct Rounded {
    ValueId whole, unit;  // (tokens, cols) and (tokens, 1): their product is about x
  };
  Rounded round_rows(ValueId x) {
    const Node& node = append(RoundRows{}, {x});
    return {node.out[0], node.out[1]};
  }

  // A mixture of experts: top_k chooses a token's experts, expert_matmul applies them, mix adds
  // their results.
  struct Chosen {
    ValueId experts, values;  // (tokens, k): i32 expert numbers, and their values of x
  };
  Chosen top_k(ValueId x, int k) {
    const Node& node = append(TopK{k}, {x});
    return {node.out[0], node.out[1]};
  }
  // op.bias is filled in. bias: (1, columns of x), or null.
  struct Routed {
    ValueId experts, weights;  // (tokens, k)
  };
  Routed route(ValueId x, Route op, const Weight* bias = nullptr) {
    std::vector<ValueId> in{x};
    if (bias) in.push_back(weight(*bias));
    op.bias = bias != nullptr;
    const Node& node = append(op, std::move(in));
    return {node.out[0], node.out[1]};
  }
  // scales: (1, experts).
  ValueId scale_chosen(ValueId x, ValueId chosen, const Weight& scales) {
    return append(ScaleChosen{}, {x, chosen, weight(scales)}).out[0];
  }
  ValueId sparse_mixer(ValueId scores, ValueId chosen, float limit) {
    return append(SparseMixer{limit}, {scores, chosen}).out[0];
  }
  // biases: (1, experts * outputs), or null.
  ValueId expert_matmul(ValueId x, const Weight& w, int experts, ValueId chosen,
                        const Weight* biases = nullptr) {
    std::vector<ValueId> in{x, weight(w), chosen};
    if (biases) in.push_back(weight(*biases));
    return append(ExpertMatMul{experts, biases != nullptr}, std::move(in)).out[0];
  }
  ValueId mix(ValueId x, ValueId weights) { return append(Mix{}, {x, weights}).out[0]; }
  // Each head's slice of x times that head's matrix; w has them one below the other.
  ValueId head_matmul(ValueId x, const Weight& w, int heads) {
    return append(HeadMatMul{heads}, {x, weight(w)}).out[0];
  }
  // The slices of a and b of each head, one after the other.
  ValueId join(ValueId a, ValueId b, int heads) { return append(Join{heads}, {a, b}).out[0]; }

  // of: the hidden rows that the logits are made from, if the model can return those too.
  void set_result(ValueId logits, ValueId of = kNone) { result = logits, hidden = of; }
  // Sets what a pass returns, if not the logits. Drops nodes that are not needed for it.
  void want(Result what);

  std::vector<GraphValue> values;
  std::vector<Node> nodes;
  std::vector<RopeSpec> ropes;
  std::vector<State> states;  // by StateId
  ValueId result = kNone, hidden = kNone;
  ValueId all_hidden = kNone;  // kept until the end of the pass, like the result
  ValueId input = kNone;       // given to each run by the caller: take_input(), split.h

 private:
  void take_outputs_last();
  ValueId weight(const Weight& w);
  ValueId append_attention(Attention op, std::vector<ValueId> in, const Weight* sinks);
  Node& append(AnyOp op, std::vector<ValueId> in);
  const Batch* batch_;
};

// All weights that the graph reads, each once, in the order of the nodes.
std::vector<const Weight*> weights_of(const Graph& graph);

// One line for each node: "3 matmul %5 (7, 2048) x layer.0.attn_q (2048, 2048) q4 -> %9".
std::string to_text(const Graph& graph);

}  // namespace chaski
