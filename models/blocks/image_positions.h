// Rotary positions of models that read images too (Wang et al. 2024, "Qwen2-VL"). Tokens of an
// image have several positions, and each section of a head's channels rotates by one of them. All
// positions of a text token are equal, so for text the sections change nothing.
#pragma once
#include "models/blocks/decoder.h"

namespace chaski {

inline const int64_t kSections = 4;  // in GGUF files; config.json may have three

inline Key& section_key(Keys& keys, std::vector<int64_t>& sections, const char* name,
                        const char* older_name) {
  const std::string inside[] = {"rope_parameters.", "rope_scaling."};
  return keys.integers(sections, "rope_sections", kSections)
      .in_gguf("rope.dimension_sections")
      .in_hf(std::vector<std::string>{inside[0] + name, inside[1] + name, inside[0] + older_name,
                                      inside[1] + older_name})
      .filled_in_hf(0)
      .range(0, 1 << 20);
}

// Throws Error(bad_file) if the sections are not as wide as the rotated pairs of channels.
inline void expect_sections(const std::string& file, const std::vector<int64_t>& sections,
                            int64_t pairs) {
  int64_t sum = 0;
  for (const int64_t section : sections) sum += section;
  if (sum != pairs)
    fail(Exit::bad_file, "{}: model.rope_sections add up to {}, expected {}: half of rope_dim",
         file, sum, pairs);
}

}  // namespace chaski
