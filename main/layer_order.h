// The order of tensors in a table: what belongs to no layer, then layer 0, 1, 2 and so on, where
// files often have layer 10 before layer 2. Within a layer the file's order stays.
#pragma once
#include <algorithm>
#include <charconv>
#include <string_view>
#include <vector>

namespace chaski {

// 3 for "layer.3.attn_q", -1 for "output".
inline int layer_of(std::string_view name) {
  constexpr std::string_view kPrefix = "layer.";
  int layer = -1;
  if (name.starts_with(kPrefix))
    std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), layer);
  return layer;
}

// `name` gives the name of a tensor. The list must outlive what is returned.
template <class Tensor, class Name>
std::vector<const Tensor*> by_layers(const std::vector<Tensor>& tensors, Name name) {
  std::vector<const Tensor*> order;
  for (const Tensor& tensor : tensors) order.push_back(&tensor);
  std::ranges::stable_sort(order, {}, [&](const Tensor* t) { return layer_of(name(*t)); });
  return order;
}

}  // namespace chaski
