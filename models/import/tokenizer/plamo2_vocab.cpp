#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/base/mapping.h"
#include "models/import/tokenizer/tokenizer_parts.h"

namespace chaski {

TokenizerParts read_plamo2_vocab(const std::string& path) {
  TokenizerParts parts;
  parts.file = path;
  parts.kind = "plamo2";
  const auto mapping = Mapping::open(path);
  std::string_view lines(reinterpret_cast<const char*>(mapping->bytes().data()),
                         mapping->bytes().size());
  for (size_t number = 1; !lines.empty(); ++number) {
    const std::string_view line = lines.substr(0, lines.find('\n'));
    lines.remove_prefix(std::min(lines.size(), line.size() + 1));
    if (line.find_first_not_of(" \r") == line.npos) continue;
    const Json piece = parse_json(fmt::format("{}: line {}", path, number), line);
    const std::string text = piece.at(0).str(), type = piece.at(2).str("NORMAL");
    const bool steers = type == "CONTROL" || (text.starts_with("<|plamo:") && text.ends_with("|>"));
    parts.put(int64_t(parts.pieces++), text,
              type == "BYTE"      ? kByte
              : type == "UNKNOWN" ? kUnknown
              : steers            ? kControl
                                  : kNormal);
    parts.scores.push_back(piece.at(1).number());
    if (type == "UNKNOWN") parts.unk = text;
  }
  return parts;
}

}  // namespace chaski
