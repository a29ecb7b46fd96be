// One line of help for each weight format and KV cache format.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "main/flags/flags.h"

namespace chaski {

// All formats that chaski quantize writes, in tables: chaski's own six, GGUF's, special ones.
std::vector<Manual::Table> weight_format_tables();

// The names of chaski's own six formats, from the fewest bits per weight to the most.
std::vector<std::string> own_weight_formats();

// Whether the text is the name of a format, or of a llama.cpp type such as Q4_K_M.
bool is_name_of_type(std::string text);

// What --type takes in place of a type of llama-quantize that chaski reads and does not write, such
// as IQ3_M. Empty for other texts.
std::string type_instead(std::string text);

// A row of a format's name and description for each of `names`. The formats have to be known.
std::vector<std::pair<std::string, std::string>> weight_formats(
    const std::vector<std::string>& names);
std::vector<std::pair<std::string, std::string>> kv_formats(const std::vector<std::string>& names);

}  // namespace chaski
