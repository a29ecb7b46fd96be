// Maincoder: Llama with norms of each head's queries and keys after the rotation. q and k are
// interleaved in all files.
#include "models/blocks/late_norms.h"

namespace chaski {

namespace {

class Maincoder : public LateNorms {
 public:
  Maincoder() { qkv_bias = Bias::none, half_split_in_hf = false; }

 private:
  void keys(Keys& k) override {
    size_keys(k);
    rope_keys(k);
    rms_norm_key(k);
    k["norm_epsilon"].hf_otherwise(1e-5);
    k.hf_expects({"hidden_act"}, {"silu"});
    k.hf_expects({"use_qk_norm"}, {true});
  }
};

}  // namespace

extern const Architecture kMaincoder;
const Architecture kMaincoder{"maincoder", {"MaincoderForCausalLM"}, make_model<Maincoder>};

}  // namespace chaski
