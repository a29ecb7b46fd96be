#include "engine/shelf/write_folder.h"

#include <fmt/format.h>

#include "engine/text/tokenizer/tokenizer_files.h"
#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/cores.h"
#include "models/import/hf/write_floats.h"
#include "models/import/hf/write_packed.h"

namespace chaski {

namespace {

std::string in_megabytes(uint64_t bytes) { return fmt::format("{:.2f} MB", double(bytes) / 1e6); }

std::string sizes(const std::string& folder, uint64_t after, uint64_t before) {
  return fmt::format("{}: weights need {}, they had {} before", folder, in_megabytes(after),
                     in_megabytes(before));
}

WrittenFolder write_packed_folder(const ModelSource& source, const std::string& folder,
                                  PackedLayout layout, uint64_t total,
                                  const std::vector<NamedText>& tokenizer, const OnWritten& done,
                                  FolderReport& report) {
  const PackedFolder made = write_packed(folder, source, layout, done, tokenizer);
  if (!made.why_eight.empty())
    report.notes.push_back(fmt::format(
        "{}: codes have 8 bits, because {} needs them and all weights of a folder share one size",
        folder, made.why_eight));
  if (made.bytes > total) {
    std::string line = sizes(folder, made.bytes, total);
    for (const PackedFolder::Grown& one : made.grown)
      line += fmt::format("{} {} was stored as {}, now as {} ({} instead of {})",
                          &one == made.grown.data() ? ":" : ";", one.name, one.from, one.to,
                          in_megabytes(one.after), in_megabytes(one.before));
    report.notes.push_back(line +
                           (made.grown.empty()
                                ? ""
                                : ", because the layout stores embedding and head only as floats"));
  }
  return made;
}

WrittenFolder write_float_folder(const ModelSource& source, const std::string& folder,
                                 FloatLayout layout, uint64_t total,
                                 const std::vector<NamedText>& tokenizer, const OnWritten& done,
                                 FolderReport& report) {
  const FloatFolder made = write_floats(folder, source, layout, done, tokenizer);
  if (layout == FloatLayout::fp8) {
    report.error = made.error;
    report.notes.push_back(fmt::format(
        "{}: {} {} fp8, {} of them without an error; mean relative squared error {:.2e}{}", folder,
        made.matrices, made.matrices == 1 ? "matrix is" : "matrices are", made.exact, made.error,
        made.worst.empty() ? ""
                           : fmt::format(", at most {:.2e} in {}", made.worst_error, made.worst)));
    if (!made.wide.empty())
      report.notes.push_back(fmt::format(
          "{}: {} {} bf16, because the number of inputs is not a multiple of 64: {}{}", folder,
          made.wide.size(), made.wide.size() == 1 ? "matrix is" : "matrices are", made.wide[0],
          made.wide.size() > 1 ? ", ..." : ""));
  }
  report.rounded = made.rounded;
  report.notes.push_back(
      made.rounded == 0 ? fmt::format("{}: bf16 represents all of the {} weights in bf16 exactly",
                                      folder, made.weights)
                        : fmt::format("{}: {} of {} weights in bf16 were rounded to it", folder,
                                      made.rounded, made.weights));
  if (made.bytes > total) report.notes.push_back(sizes(folder, made.bytes, total));
  return made;
}

}  // namespace

FolderReport write_folder(const ModelSource& source, const std::string& folder,
                          const std::string& layout, int threads, const OnProgress& progress) {
  if (source.verify) source.verify(threads > 0 ? threads : usable_cores());
  const uint64_t total = totals_of(source).bytes;
  const TokenizerFiles tokenizer = tokenizer_files(source.meta);
  std::vector<NamedText> files;
  if (tokenizer.why_not.empty())
    // tokenizer.json comes last, because its presence shows that the folder has a tokenizer
    files = {{"tokenizer_config.json", tokenizer.config}, {"tokenizer.json", tokenizer.tokenizer}};
  const OnWritten done = [&](uint64_t written, uint64_t all) {
    if (progress) progress({"", written, all});
  };
  FolderReport report;
  const bool floats = layout == "bf16" || layout == "fp8";
  const WrittenFolder made =
      floats ? write_float_folder(source, folder,
                                  layout == "fp8" ? FloatLayout::fp8 : FloatLayout::bf16, total,
                                  files, done, report)
             : write_packed_folder(source, folder,
                                   layout == "awq" ? PackedLayout::awq : PackedLayout::gptq, total,
                                   files, done, report);
  if (progress) progress({"", made.bytes, made.bytes});
  if (!made.stayed.empty())
    report.notes.push_back(
        fmt::format("{}: {} {} in the folder before and may belong to another model", folder,
                    fmt::join(made.stayed, ", "), made.stayed.size() == 1 ? "was" : "were"));
  if (!made.left_out.empty())
    report.notes.push_back(fmt::format(
        "{}: {} of {} {} not copied; other programs may need {}", folder,
        escaped(fmt::format("{}", fmt::join(made.left_out, ", "))), source.path,
        made.left_out.size() == 1 ? "was" : "were", made.left_out.size() == 1 ? "it" : "them"));
  if (!made.has_tokenizer)
    report.notes.push_back(
        fmt::format("{} has no tokenizer ({}); copy tokenizer.json and tokenizer_config.json from "
                    "the model's original folder into it",
                    folder, tokenizer.why_not));
  return report;
}

}  // namespace chaski
