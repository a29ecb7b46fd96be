// Finds the layer of a tensor by its name.
#pragma once
#include <charconv>
#include <string_view>

namespace chaski {

// 3 for "layer.3.attn_q", -1 for "output".
inline int layer_of(std::string_view name) {
  constexpr std::string_view kPrefix = "layer.";
  int layer = -1;
  if (name.starts_with(kPrefix))
    std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), layer);
  return layer;
}

}  // namespace chaski
