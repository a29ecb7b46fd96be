// GLM 5, 5.1 and 5.2: the layers of DeepSeek V3.2. In GLM 5.2 most layers attend to the cells that
// a layer before them has chosen.
#include "models/blocks/sparse_mla.h"

namespace chaski {

namespace {

class GlmDsa : public SparseMla {
 public:
  GlmDsa() { choice_bias = Bias::maybe, names.shared = "mlp.shared_experts"; }

  void keys(Keys& k) override {
    sparse_keys(k);
    k["norm_epsilon"].hf_otherwise(1e-5);
    k["query_rank"].hf_otherwise(int64_t{2048});
    k["head_dim"].hf_otherwise([this] { return int64_t{192} + rope.dim; });
    k["value_dim"].hf_otherwise(int64_t{256});
    for (const char* key : {"expert_group_count", "expert_group_used_count"})
      k[key].hf_otherwise(int64_t{1});
    k["indexer_head_count"].hf_otherwise(int64_t{32});
    k.integer(every, "indexer_period")
        .not_in_gguf()
        .in_hf("index_topk_freq")
        .range(1, 4096)
        .otherwise(int64_t{1});
    k.integer(first, "indexer_first_layers")
        .not_in_gguf()
        .in_hf("index_skip_topk_offset")
        .range(0, 4096)
        .otherwise(int64_t{2});
    k.hf_expects({"index_topk_pattern"}, {});
    // GGUF files of GLM 5 and 5.1 have no list, and some of 5.2 neither. These are known by their
    // context; llama.cpp assumes the pattern of that model too.
    k.flags(indexed, "indexer_layers", n_layers)
        .in_gguf("attention.indexer.types")
        .in_hf("indexer_types")
        .hf_word("full", "1")
        .hf_word("shared", "0")
        .hf_otherwise([this] { return Given(after_each(every, first)); })
        .gguf_otherwise(
            [this] { return Given(context < 1 << 20 ? after_each(1, 0) : after_each(4, 3)); });
  }

 private:
  // 1 for the first `n` layers and for every `period`-th after them.
  std::vector<int64_t> after_each(int64_t period, int64_t n) const {
    std::vector<int64_t> layers;
    for (int64_t i = 0; i < n_layers; ++i)
      layers.push_back(std::max(i - n + 1, int64_t{0}) % period == 0);
    return layers;
  }
  int64_t every = 1, first = 2;
};

}  // namespace

extern const Architecture kGlmDsa;
const Architecture kGlmDsa{"glm-dsa", {"GlmMoeDsaForCausalLM"}, make_model<GlmDsa>};

}  // namespace chaski
