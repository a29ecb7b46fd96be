// chaski convert: converts any model to .quipu, to GGUF, or to a folder for transformers, vLLM and
// SGLang. The name of the output and --layout choose which. Weights keep their values, except in a
// folder of bf16 or fp8, which may round them.
#include <chrono>
#include <memory>

#include "engine/shelf/write_folder.h"
#include "main/flags/commands.h"
#include "main/flags/options.h"
#include "main/terminal/json_output.h"
#include "main/terminal/output.h"
#include "main/terminal/progress.h"

namespace chaski {

namespace {

struct ConvertFlags {
  std::string in, out, tokenizer, layout;
  int threads = 0;
  bool json = false;
};

int convert(ConvertFlags& flags) {
  const bool named_as_file = flags.out.ends_with(".quipu") || flags.out.ends_with(".gguf");
  if (flags.layout.empty() && !named_as_file)
    fail(Exit::usage,
         "{} is not the name of a model file, expected one that ends in .quipu or .gguf, or a "
         "folder with --layout",
         flags.out);
  if (!flags.layout.empty() && named_as_file)
    fail(Exit::usage, "{} is the name of a file, expected a folder with --layout {}", flags.out,
         flags.layout);
  const bool replaces = flags.layout.empty() && replaces_file(flags.out);
  if (replaces) expect_replaceable(flags.out);
  const auto start = std::chrono::steady_clock::now();
  const ModelSource source = open_model(flags.in, flags.tokenizer).source;
  expect_runnable(source);
  const ModelTotals totals = totals_of(source);
  const double amount = double(totals.bytes) / 1e6;
  put_summary(fmt::format("{}: {}, {} tensors, {:.2f} MB of weights", escaped(source.path),
                          source.kind, totals.tensors, amount));
  FolderReport folder;
  {
    ProgressBar bar({amount, "MB"});
    if (flags.layout.empty())
      convert_model(source, flags.out, flags.threads, bar.callback());
    else
      folder = write_folder(source, flags.out, flags.layout, flags.threads, bar.callback());
  }
  if (replaces) put_notice(flags.out + ": the model that was there is replaced");
  for (const std::string& note : folder.notes) put_notice(note);
  if (flags.json) {
    JsonValue result = {
        {"input", source.path},
        {"kind", source.kind},
        {"output", flags.out},
        {"tensors", totals.tensors},
        {"weights", totals.weights},
        {"weight_bytes", totals.bytes},
        {"seconds",
         std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()}};
    if (folder.rounded) result["rounded"] = *folder.rounded;
    if (folder.error) result["error"] = *folder.error;
    put_json(result);
  }
  return int(Exit::done);
}

}  // namespace

Action declare_convert(Flags parser) {
  auto flags = std::make_shared<ConvertFlags>();
  parser.add("IN", flags->in, "GGUF file, Hugging Face folder, llama2.c or .quipu file")
      .not_empty("a model file or folder")
      .model()
      .required()
      .type("FILE");
  parser
      .add("OUT", flags->out,
           "file to write, as GGUF if it ends in .gguf, else .quipu; with --layout a folder")
      .not_empty("a file to write")
      .required()
      .type("FILE");
  parser
      .add("--layout", flags->layout,
           "write a folder of safetensors for vLLM, SGLang and transformers. bf16: weights in 16 "
           "bits, vectors in 32 if they need them; fp8: the matrices in 8 bits with a scale a row; "
           "both from a Hugging Face folder (not BitNet or MXFP4), and from other files of llama, "
           "mistral, qwen2 and qwen3. gptq, awq: only of these four, with weights in q4_0, or for "
           "gptq also q5_0 or q8, made with chaski quantize IN OUT --type q4_0 --keep-above 1")
      .one_of({"bf16", "fp8", "gptq", "awq"})
      .type("NAME");
  declare_tokenizer(parser, flags->tokenizer);
  declare_threads(parser, flags->threads);
  parser.example("Convert a GGUF file, so that it opens at once",
                 "chaski convert model.gguf model.quipu");
  parser.example("Convert back to GGUF", "chaski convert model.quipu copy.gguf");
  parser.example("Write a folder for vLLM", "chaski convert model.gguf for-vllm --layout bf16");
  declare_json(parser, flags->json);
  return [flags] { return convert(*flags); };
}

}  // namespace chaski
