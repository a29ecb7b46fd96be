// The shape of a block of the prompt kernel (matmul_tiles.cuh): slots of a pair of strips, two
// warps of 64 tokens to each.
#pragma once

namespace chaski {

struct TileShape {
  static constexpr int kSlots = 4, kTokens = 128, kWarpTokens = 64, kTiles = kWarpTokens / 8;
  static constexpr int kThreads = 32 * kSlots * (kTokens / kWarpTokens);
};
// A lane's sums: [tile of 8 tokens][token 2t + j of it][row 4g + i].
using TileSums = float[TileShape::kTiles][2][4];

}  // namespace chaski
