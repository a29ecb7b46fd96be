// The list of all formats, in the order of their ids. A new format adds its header and one word
// here. This file is the only one of the folder that includes those of its sub-folders.
#pragma once
#include <array>
#include <utility>

#include "quant/floats.h"
#include "quant/gguf/iq1_s.h"
#include "quant/gguf/iq2.h"
#include "quant/gguf/iq3.h"
#include "quant/gguf/iq4.h"
#include "quant/gguf/q2_k.h"
#include "quant/gguf/q3_k.h"
#include "quant/gguf/q4_0.h"
#include "quant/gguf/q4_1.h"
#include "quant/gguf/q4_k.h"
#include "quant/gguf/q5.h"
#include "quant/gguf/q5_k.h"
#include "quant/gguf/q6_k.h"
#include "quant/gguf/q8.h"
#include "quant/gguf/tq.h"
#include "quant/own/q4.h"
#include "quant/own/q4h.h"
#include "quant/own/q6.h"
#include "quant/own/trellis.h"
#include "quant/packed/fp4.h"
#include "quant/packed/scaled_floats.h"

namespace chaski {

using Formats =
    FormatList<F32, F16, BF16, Q8, Q4_0, Q8F, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K,
               IQ4_NL, IQ4_XS, Q4, Q4H, F8, TQ1_0, TQ2_0, MXFP4, NVFP4, IQ3_S, IQ3_XXS, IQ2_S,
               IQ2_XS, IQ2_XXS, IQ1_S, IQ1_M, NF4, FP4, F8S, NVFP4S, Q3, Q2, Q6, Q4T, Q5>;
static_assert(Formats::kCount == kFormatCount);

// Whether chaski can write a format: whether it has an encoder (quant/encode/encode.h).
template <class F>
constexpr bool kEncodes = requires {
  &F::encode;
};

// Floats in blocks: the scale multiplies a sum of codes. The other floats have blocks of one
// column.
template <class F>
constexpr bool kScaledFloat = F::kFloat && (F::kBlock > 1);

// Whether unpack() reads bytes from a table (V::lookup_low). A format without kLooksUp has no
// kernels of its own for AVX-512 VBMI.
template <class F>
constexpr bool kLooksUpBytes = requires {
  F::kLooksUp;
};

// The format whose tile layout a format uses: itself, unless it names another one as Tiles. There
// are kernels only for formats with their own tiles.
template <class F>
struct TilesOfFormat {
  using Type = F;
};
template <class F>
requires requires { typename F::Tiles; }
struct TilesOfFormat<F> {
  using Type = typename F::Tiles;
};
template <class F>
using TilesOf = typename TilesOfFormat<F>::Type;

// Whether cuda/ has kernels for it.
template <class F>
constexpr bool kOnDevice = !requires {
  F::kHostOnly;
};
// fn(F{}) for the format whose tiles `format` has, if the device has kernels for it.
template <class Fn>
void with_device_format(Format format, Fn&& fn) {
  Formats::with(format, [&]<class F>(F) {
    if constexpr (kOnDevice<F>) fn(TilesOf<F>{});
  });
}

// The version of a format's tile layout, which files record. Layout 1 of the formats that are now
// at 2 kept 16 blocks next to each other.
template <class F>
constexpr uint32_t kTileLayout = [] {
  if constexpr (requires { F::kTileLayout; }) return F::kTileLayout;
  return uint32_t(1);
}();

// Most formats keep everything in their blocks. The few with a RowHeader get it as the first
// argument. Only the templates below distinguish the two kinds.
template <class F>
constexpr bool kHasHeader = requires {
  typename F::RowHeader;
};
template <class F>
constexpr size_t kHeaderBytes = [] {
  if constexpr (kHasHeader<F>) return sizeof(typename F::RowHeader);
  return size_t(0);
}();

// One row of a strip or of row layout: its header, and how to decode its blocks.
template <class F>
struct RowOf {
  const void* header;  // of this row

  constexpr float at(const typename F::Block& b, int i) const {
    if constexpr (kHasHeader<F>)
      return F::at(unit(), b, i);
    else
      return F::at(b, i);
  }
  constexpr void panel(const typename F::Block& b, int sub, RowPanel& p) const {
    if constexpr (kHasHeader<F>)
      F::row_panel(unit(), b, sub, p);
    else
      F::row_panel(b, sub, p);
  }
  constexpr auto unit() const {
    typename F::RowHeader h;
    __builtin_memcpy(&h, header, sizeof h);
    return h;
  }
};

// A strip: 16 headers, then tiles.
template <class F>
struct StripOf {
  const std::byte* bytes;
  constexpr explicit StripOf(const void* strip) : bytes(static_cast<const std::byte*>(strip)) {}
  constexpr const typename F::Tile* tiles() const {
    return reinterpret_cast<const typename F::Tile*>(bytes + kStrip * kHeaderBytes<F>);
  }
  constexpr RowOf<F> row(int r) const { return {bytes + size_t(r) * kHeaderBytes<F>}; }
  template <class V>
  inline __attribute__((always_inline)) void unpack(int64_t tile, int sub, Panel<V>& p) const {
    if constexpr (kHasHeader<F>)
      F::template unpack<V>(reinterpret_cast<const typename F::RowHeader*>(bytes), tiles()[tile],
                            sub, p);
    else
      F::template unpack<V>(tiles()[tile], sub, p);
  }
};

}  // namespace chaski
