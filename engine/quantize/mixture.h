// llama-quantize's mixtures: the format of each weight by its part of a layer and by the layer.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/quantize/budget.h"

namespace chaski {

// Q4_K_M and so on, fewest bits first.
std::vector<std::string> mixture_names();
// quantize_types(), then the mixtures, then llama-quantize's other names of these, such as Q4_K.
std::vector<std::string> types_and_mixtures();

// Whether weights can be quantized to the format, and not only read.
bool is_written(Format format);

// The format of most weights; nothing for a name that is no mixture. Names with _S, _M or _L may
// be in small letters. Those without are formats of chaski in small letters.
std::optional<Format> base_of_mixture(std::string_view name);

// The number of a mixture in GGUF's general.file_type. For another name, that of `otherwise`, the
// format of all matrices. -1: none.
int file_type_of(std::string_view mixture, std::optional<Format> otherwise = {});

// The formats of a mixture for this model: llama.cpp's if `type` is a GGUF format (with blocks of
// 32 columns if those of 256 do not fit), else chaski's of about as many bits. `calibrated`: as
// with an imatrix. Nothing for a name that is no mixture.
std::optional<Recipe> recipe_of_mixture(std::string_view name, const WeightJobs& jobs,
                                        const Metadata& meta, Format type, bool calibrated);

}  // namespace chaski
