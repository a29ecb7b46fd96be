// Command R7B and Command A: three of four layers have a window and rope; the fourth has neither.
#include "models/blocks/cohere.h"

namespace chaski {

namespace {

class Cohere2 : public Cohere {
  void keys(Keys& k) override {
    size_keys(k);
    rope_keys(k);
    cohere_keys(k);
    window_key(k);
    k["sliding_window"].hf_null_is(int64_t{0}).hf_otherwise(int64_t{4096});
    window_pattern_key(k, 4);
  }

  bool turns(int layer) const override { return has_window(layer); }
};

}  // namespace

extern const Architecture kCohere2;
const Architecture kCohere2{"cohere2", {"Cohere2ForCausalLM"}, make_model<Cohere2>};

}  // namespace chaski
