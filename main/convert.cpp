// chaski convert: a foreign model to .quipu, or any model to GGUF when the output is named so.
// No weight changes.
#include <memory>

#include "engine/model_file.h"
#include "main/commands.h"
#include "main/options.h"
#include "main/output.h"
#include "main/progress.h"

namespace chaski {

namespace {

struct ConvertFlags {
  std::string in, out, tokenizer;
  int threads = 0;
};

int convert(ConvertFlags& flags) {
  const ModelSource source = open_model(flags.in, flags.tokenizer).source;
  expect_runnable(source);
  const ModelTotals totals = totals_of(source);
  const double amount = double(totals.bytes) / 1e6;
  put_summary(fmt::format("{}: {}, {} tensors, {:.2f} MB of weights", escaped(source.path),
                          source.kind, totals.tensors, amount));
  ProgressBar bar({amount, "MB"});
  convert_model(source, flags.out, flags.threads, bar.callback());
  return int(Exit::done);
}

}  // namespace

Action declare_convert(Flags parser) {
  auto flags = std::make_shared<ConvertFlags>();
  parser.add("IN", flags->in, "GGUF file, Hugging Face folder, llama2.c or .quipu file")
      .not_empty("a model file or folder")
      .required();
  parser.add("OUT", flags->out, "the .quipu file to write, or GGUF if it ends in .gguf")
      .not_empty("a file to write")
      .required();
  declare_tokenizer(parser, flags->tokenizer);
  declare_threads(parser, flags->threads);
  return [flags] { return convert(*flags); };
}

}  // namespace chaski
