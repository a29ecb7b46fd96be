#include "engine/write_folder.h"

#include "engine/text/tokenizer_files.h"
#include "ggml-like-tensor/cores.h"
#include "models/import/write_packed.h"

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
    // tokenizer.json, by which a folder is known to have one, comes last
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
        "{}: codes have 8 bits, because {} needs them, and a folder has one number of bits", folder,
        made.why_eight));
  if (made.bytes > total)
    notes.push_back(fmt::format(
        "{}: weights take {}, {} before{}", folder, in_megabytes(made.bytes), in_megabytes(total),
        made.grown.name.empty()
            ? ""
            : fmt::format(": {}, {} before, is {} here, because the layout "
                          "has embedding and head as floats only ({} for {})",
                          made.grown.name, made.grown.from, made.grown.to,
                          in_megabytes(made.grown.after), in_megabytes(made.grown.before))));
  if (!made.has_tokenizer)
    notes.push_back(
        fmt::format("{}: has no tokenizer yet ({}): copy tokenizer.json and tokenizer_config.json "
                    "into it, from "
                    "the folder that the model was first made from",
                    folder, tokenizer.why_not));
  return notes;
}

}  // namespace chaski
