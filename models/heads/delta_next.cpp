#include "models/heads/delta_next.h"

namespace chaski {

void DeltaNext::read(const Metadata& meta) {
  model_ = model_of(meta);
  layer_ = dynamic_cast<DeltaNet*>(model_.get());
  if (!layer_)
    fail(Exit::bad_file,
         "{}: general.architecture is {}, expected qwen3next, qwen35 or qwen35moe for a layer that "
         "predicts one token more",
         meta.origin, meta.str("general.architecture"));
  const auto expect = [&](const char* key, int64_t of_target) {
    if (const int64_t found = meta.integer(key); found != of_target)
      fail(Exit::bad_file, "{}: {} is {}, expected {}, as in {}", meta.origin, key, found,
           of_target, target_path());
  };
  expect("model.embedding_length", columns());
  expect("model.vocab_size", target_.vocab);
  layer_->only_next_layer();
  vocab = layer_->vocab, context = layer_->context, n_layers = layer_->n_layers;
}

void DeltaNext::tensors(Slots& s) { layer_->next_slots(s); }

void DeltaNext::bound(const std::string& file) {
  layer_->weights = weights;
  layer_->bound(file);
  row_columns = columns();
}

void DeltaNext::expect_sessions(int64_t positions) { layer_->expect_sessions(positions); }

void DeltaNext::build(Graph& g) const {
  target_.logits(g, layer_->next_row(g, g.get_rows(*table_), g.take_input(row_columns)));
}

}  // namespace chaski
