// The shape of a block of the prompt kernel (matmul_tiles.cuh): each slot is a pair of strips and
// has two warps of 64 tokens.
#pragma once

namespace chaski {

struct TileShape {
  static constexpr int kSlots = 4, kTokens = 128, kWarpTokens = 64, kTiles = kWarpTokens / 8;
  static constexpr int kThreads = 32 * kSlots * (kTokens / kWarpTokens);
};
// A lane's sums: [tile of 8 tokens][token 2t + j of the tile][row 4g + i].
using TileSums = float[TileShape::kTiles][2][4];

}  // namespace chaski
