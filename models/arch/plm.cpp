// PLM (1.8B): latent attention without a latent row of queries, and a feed-forward without a gate
// whose activation is relu squared (relu2).
#include "models/blocks/mla.h"

namespace chaski {

namespace {

class Plm : public Mla {
  std::vector<PlainWeights> plains;

  void keys(Keys& k) override {
    latent_keys(k);
    k["query_rank"].hf_otherwise(int64_t{0});
    rms_norm_key(k);
    activation_key(k, "hidden_act", "relu2");
    k.hf_expects({"use_sliding_window"}, {false});
    k.hf_tied = true;
  }

  void feed_slots(Slots& s, int64_t i) override {
    plains.resize(layers.size());
    PlainWeights& w = plains[size_t(i)];
    s.add(w.up, "ffn_up", ffn, dim).in_hf("mlp.up_proj");
    s.add(w.down, "ffn_down", dim, ffn).in_hf("mlp.down_proj");
  }
  ValueId feed(Graph& g, ValueId n, size_t i) const override { return plain(g, n, plains[i]); }
};

}  // namespace

extern const Architecture kPlm;
const Architecture kPlm{"plm", {"PLMForCausalLM"}, make_model<Plm>};

}  // namespace chaski
