// Multi-head latent attention (DeepSeek-V2, 2024). The keys and values of all heads are made from
// one row of a token, its latent row, and only this row is kept: latent_rank channels, and rope.dim
// channels that rotate and belong to all heads.
//
//   key of head h     K_h latent, then the rotated channels
//   value of head h   V_h latent
//
// K_h and V_h are absorbed into the query and the result: q (K_h latent) = (K_h^T q) latent, and
// the sum of weighted values is V_h times the sum of weighted latent rows. So attention is that of
// `heads` queries over one key whose first channels are the value (Paged::v_inside_k). A decode
// step reads latent_rank + rope.dim numbers of a token and no K_h or V_h of it.
//
// Prompts are computed in the same way, because the order of additions, and so the bits, must be
// those of decode steps. For a query, head and position that is 2 latent_rank + rope.dim multiply-
// adds. With expanded keys and values it would be head_dim + value_dim. In DeepSeek's models that
// is 192 + 128 = 320 instead of 1088.
#pragma once
#include "models/blocks/experts.h"

namespace chaski {

class Mla : public Experts {
 public:
  void agree(const std::string& file) const override;

 protected:
  int64_t query_rank = 0;                  // of the queries' own latent row; 0: they have none
  int64_t latent_rank = 0, value_dim = 0;  // value_dim: of a head
  float log_multiplier = 0;                // GGUF's rope.scaling.yarn_log_multiplier

  // All widths, counts and rotary positions. head_dim is that of a query: channels that do not
  // rotate, then rope.dim that do.
  void latent_keys(Keys& keys);
  void attend_slots(Slots& slots, int64_t i) override;
  ValueId attend(Graph& g, ValueId n, size_t i) const override;
  // The keys of DeepSeek V3 after latent_keys().
  void v3_keys(Keys& keys);
  // Attention of layer i over the latent rows. `n` is the layer's input, `latent_q` the row that
  // the queries `q` are made from.
  virtual ValueId look(Graph& g, ValueId q, StateId kv, [[maybe_unused]] ValueId n,
                       [[maybe_unused]] ValueId latent_q, [[maybe_unused]] size_t i) const {
    return g.attention(q, kv, latent_scale());
  }
  float latent_scale() const;

 private:
  // q has the channels of all heads' queries without rotary positions, q_rope those with them.
  struct Latent {
    Linear q_a, q_a_norm, q, q_rope, kv, kv_norm, k_rope, k_b, v_b, output;
  };
  int64_t plain_dim() const { return head_dim - rope.dim; }
  std::vector<Latent> latents;
  int64_t key_length = 0, value_length = 0;  // of GGUF files without *_length_mla
};

}  // namespace chaski
