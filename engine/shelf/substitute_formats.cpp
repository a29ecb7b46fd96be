#include "engine/shelf/substitute_formats.h"

namespace chaski {

// The head and the embedding affect every token, so they get at least 6 bits. With a GGUF type the
// file should stay exportable to GGUF, which has no q6. Its own 6 bits have blocks of 256 columns.
Format least_of_head(Format type, int64_t cols) {
  if (info(type).gguf_type < 0) return Format::q6;
  const Format six = Format::q6_k;
  return info(type).block == info(six).block && cols % info(six).block == 0 ? six : Format::q8;
}

Format stand_in(Format type, int64_t cols) {
  Format other = Format::f16;
  if (type == Format::q2_k || type == Format::q3_k || type == Format::iq4_xs)
    other = Format::iq4_nl;
  if (type == Format::q4_k) other = Format::q5_0;
  if (type == Format::q5_k) other = Format::q5_1;
  if (type == Format::q6_k) other = Format::q8;
  return cols % info(other).block == 0 ? other : Format::f16;
}

}  // namespace chaski
