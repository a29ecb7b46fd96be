#include "ggml-like-tensor/cpu/lanes_avx512.h"
#include "ggml-like-tensor/cpu/table.h"

namespace chaski {
namespace {

struct FormatsWithLookups {
  template <class F>
  static constexpr bool value = kLooksUpBytes<F>;
};

}  // namespace

extern const Backend kBackend_avx512vbmi;
const Backend kBackend_avx512vbmi =
    formats_of<Avx512Lanes<true, true>, Avx512Lanes<false, false>, FormatsWithLookups>();
}  // namespace chaski
