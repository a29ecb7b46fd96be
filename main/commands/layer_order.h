// Sorts tensors for a table: first those outside of layers, then layer 0, 1, 2 and so on. (Files
// often have layer 10 before layer 2.) Within a layer the file's order stays.
#pragma once
#include <algorithm>
#include <vector>

#include "engine/passes/layer_of.h"

namespace chaski {

// `name` returns the name of a tensor. The list must outlive the result.
template <class Tensor, class Name>
std::vector<const Tensor*> by_layers(const std::vector<Tensor>& tensors, Name name) {
  std::vector<const Tensor*> order;
  for (const Tensor& tensor : tensors) order.push_back(&tensor);
  std::ranges::stable_sort(order, {}, [&](const Tensor* t) { return layer_of(name(*t)); });
  return order;
}

}  // namespace chaski
