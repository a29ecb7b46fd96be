// DeepSeek sparse attention (DeepSeek-V3.2-Exp, 2025): latent attention over the cells that an
// indexer chooses for each token (ops/lightning_index.h). The indexer has its own queries, made
// from the latent row of the attention's queries, and a key of each token, which is kept in pages
// of its own. A token that sees few cells chooses all of them, and then the bits are those of
// latent attention.
#pragma once
#include "models/blocks/mla.h"

namespace chaski {

class SparseMla : public Mla {
 public:
  void agree(const std::string& file) const override;

 protected:
  // 1 for each layer with an indexer, which chooses its cells; the others attend to the cells that
  // the layer before attends to. Empty: all layers have one.
  std::vector<int64_t> indexed;
  // Queries and keys of the indexer rotate channels that are half of the rotated part apart.
  bool index_half_split = false;

  // The keys of DeepSeek V3 and of the indexer. The queries always have a latent row.
  void sparse_keys(Keys& keys);
  void attend_slots(Slots& slots, int64_t i) override;
  ValueId look(Graph& g, ValueId q, StateId kv, ValueId n, ValueId latent_q,
               size_t i) const override;

 private:
  struct Indexer {
    Linear q, k, k_norm, weights;
  };
  bool has_indexer(size_t layer) const { return indexed.empty() || indexed[layer] == 1; }
  int index_heads = 0, index_dim = 0, chosen_cells = 0;
  std::vector<Indexer> indexers;
};

}  // namespace chaski
