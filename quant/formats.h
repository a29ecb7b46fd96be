// Every format, in the order of its id: adding one is its header and one word here.
#pragma once
#include <array>
#include <utility>

#include "quant/floats.h"
#include "quant/iq4.h"
#include "quant/q2_k.h"
#include "quant/q3_k.h"
#include "quant/q4.h"
#include "quant/q4_1.h"
#include "quant/q4_k.h"
#include "quant/q5.h"
#include "quant/q5_k.h"
#include "quant/q6_k.h"
#include "quant/q8.h"

namespace chaski {

template <class... F>
struct FormatList {
  static constexpr int kCount = sizeof...(F);
  // f(F{}) for every format, in order.
  template <class Fn>
  static void each(Fn&& fn) {
    (fn(F{}), ...);
  }
  // f(F{}) for the one with this id.
  template <class Fn>
  static void with(Format id, Fn&& fn) {
    ((F::kFormat == id ? (void)fn(F{}) : (void)0), ...);
  }
};

using Formats = FormatList<F32, F16, BF16, Q8, Q4, Q8F, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS>;
static_assert(Formats::kCount == kFormatCount);

}  // namespace chaski
