#include "engine/shelf/write_folder.h"

#include <fmt/format.h>

#include "engine/text/tokenizer/tokenizer_files.h"
#include "ggml-like-tensor/cores.h"
#include "models/import/hf/write_packed.h"

namespace chaski {

namespace {

std::string in_megabytes(uint64_t bytes) { return fmt::format("{:.2f} MB", double(bytes) / 1e6); }

}  // namespace

std::vector<std::string> write_folder(const ModelSource& source, const std::string& folder,
                                      const std::string& layout, int threads,
                                      const OnProgress& progress) {
  if (source.verify) source.verify(threads > 0 ? threads : usable_cores());
  const uint64_t total = totals_of(source).bytes;
  const TokenizerFiles tokenizer = tokenizer_files(source.meta);
  std::vector<NamedText> files;
  if (tokenizer.why_not.empty())
    // tokenizer.json comes last, because its presence shows that the folder has a tokenizer
    files = {{"tokenizer_config.json", tokenizer.config}, {"tokenizer.json", tokenizer.tokenizer}};
  uint64_t written = 0;
  const PackedFolder made = write_packed(
      folder, source, layout == "awq" ? PackedLayout::awq : PackedLayout::gptq,
      [&](uint64_t bytes) {
        written += bytes;
        if (progress) progress({"", std::min(written, total), total});
      },
      files);
  if (progress) progress({"", total, total});
  std::vector<std::string> notes;
  if (!made.why_eight.empty())
    notes.push_back(fmt::format(
        "{}: codes have 8 bits, because {} needs them and all weights of a folder share one size",
        folder, made.why_eight));
  if (made.bytes > total) {
    std::string line = fmt::format("{}: weights need {}, they had {} before", folder,
                                   in_megabytes(made.bytes), in_megabytes(total));
    for (const PackedFolder::Grown& one : made.grown)
      line += fmt::format("{} {} was stored as {}, now as {} ({} instead of {})",
                          &one == made.grown.data() ? ":" : ";", one.name, one.from, one.to,
                          in_megabytes(one.after), in_megabytes(one.before));
    notes.push_back(line + (made.grown.empty()
                                ? ""
                                : ", because the layout stores embedding and head only as floats"));
  }
  if (!made.stayed.empty())
    notes.push_back(fmt::format("{}: {} {} in the folder before and may belong to another model",
                                folder, fmt::join(made.stayed, ", "),
                                made.stayed.size() == 1 ? "was" : "were"));
  if (!made.has_tokenizer)
    notes.push_back(
        fmt::format("{} has no tokenizer ({}); copy tokenizer.json and tokenizer_config.json from "
                    "the model's original folder into it",
                    folder, tokenizer.why_not));
  return notes;
}

}  // namespace chaski
