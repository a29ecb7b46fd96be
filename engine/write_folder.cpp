#include "engine/write_folder.h"

#include "ggml-like-tensor/cores.h"
#include "models/import/write_packed.h"

namespace chaski {

std::vector<std::string> write_folder(const ModelSource& source, const std::string& folder,
                                      const std::string& layout, int threads,
                                      const OnProgress& progress) {
  if (source.verify) source.verify(threads > 0 ? threads : usable_cores());
  const uint64_t total = totals_of(source).bytes;
  uint64_t written = 0;
  const PackedFolder made =
      write_packed(folder, source, layout == "awq" ? PackedLayout::awq : PackedLayout::gptq,
                   [&](uint64_t bytes) {
                     written += bytes;
                     if (progress) progress({"", std::min(written, total), total});
                   });
  if (progress) progress({"", total, total});
  std::vector<std::string> notes;
  if (!made.why_eight.empty())
    notes.push_back(fmt::format(
        "{}: codes have 8 bits, because {} needs them, and a folder has one number of bits", folder,
        made.why_eight));
  if (!made.has_tokenizer)
    notes.push_back(
        fmt::format("{}: has no tokenizer, expected tokenizer.json and tokenizer_config.json of "
                    "the folder that "
                    "the model was made from beside config.json",
                    folder));
  return notes;
}

}  // namespace chaski
