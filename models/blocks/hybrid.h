// Layers that remember in a fixed space, in place of attention or in addition to it: the mixers of
// Mamba and Mamba 2. ops/selective_scan.h and ops/state_scan.h have the recurrences.
#pragma once
#include "models/blocks/experts.h"

namespace chaski {

class Hybrid : public Experts {
 public:
  void agree(const std::string& file) const override;
  void bound(const std::string& file) override;
  void tensors(Slots& slots) override;

 protected:
  Hybrid() { kv_heads = 1; }  // tensors() sets it, if layers differ

  // Sizes of the mixers, under GGUF's names. steps: the heads of Mamba 2; of Mamba, the rank of the
  // matrix that makes the time steps.
  int64_t inner = 0, states = 0, steps = 0, groups = 1, taps = 0;
  bool has_heads = true;         // the mixers are those of Mamba 2
  bool needs_norm = false;       // Mamba 2: the norm of its result is not optional
  bool normed_steps = false;     // Mamba: time steps, B and C are normed
  bool plain_norms = false;      // Mamba: these norms, without weights
  float plain_eps = 0;           // theirs
  std::vector<int64_t> kv_list;  // by layer: key heads, 0 without attention; empty: all attend

  struct LayerNames {
    std::string mixer = "mamba.", norm = "input_layernorm", ffn_norm = "post_attention_layernorm",
                last_norm = "norm";
    const char* last_norm_in_gguf = "output_norm";
  };
  LayerNames hf;

  struct Mamba {
    Linear z, x, conv, conv_bias, low, b, c, dt, dt_bias, low_norm, b_norm, c_norm, decays, direct,
        norm, out;
  };
  std::vector<Mamba> mambas;

  // The keys of the sizes; config.json has them under these names. `expand` is the number of inner
  // channels as a multiple of dim.
  void mixer_keys(Keys& keys, const char* taps, const char* expand, const char* states,
                  const char* steps);
  void group_key(Keys& keys, const char* groups);
  // config.json may say how many channels the heads of Mamba 2 have. They follow from other keys.
  void expect_head_width(Keys& keys, const char* width, const char* others) const;
  // config.json's limits of the time steps must allow all numbers.
  static void expect_no_step_limits(Keys& keys, std::vector<std::string> at = {"time_step_limit"});
  // The key heads by layer. config.json has their number and names kinds of layers at `kinds`,
  // where `attention` is the word for those with attention and `other` for those without.
  void kv_list_key(Keys& keys, const char* kinds, const char* attention, const char* other);
  bool attends(int64_t layer) const { return kv_list.empty() || kv_list[size_t(layer)] > 0; }

  void attend_slots(Slots& slots, int64_t i) override;
  ValueId attend(Graph& g, ValueId n, size_t i) const override;
  void mamba_slots(Slots& slots, Mamba& m) const;
  // `n` is normed.
  ValueId mamba(Graph& g, ValueId n, const Mamba& m) const;
  // The conv channels of Mamba 2: x, B and C.
  int64_t xbc() const { return inner + 2 * groups * states; }
  // The gated and normed result of Mamba 2's scan, before `out`.
  ValueId gated_norm(Graph& g, ValueId y, ValueId z, const Mamba& m) const;
  StateScan scan() const { return {0, int(steps), int(inner / steps), int(groups), int(states)}; }

 private:
  void slots_of_1(Slots& slots, Mamba& m) const;
  void slots_of_2(Slots& slots, Mamba& m) const;
  ValueId mamba_1(Graph& g, ValueId n, const Mamba& m) const;
  ValueId mamba_2(Graph& g, ValueId n, const Mamba& m) const;

  std::vector<float> ones;                // as many as time steps or states
  Weight unit_steps, unit_states;         // views of it
  std::vector<int64_t> attention_layers;  // config.json's list, 1 for each layer with attention
  int64_t hf_kv_heads = 0;
};

}  // namespace chaski
