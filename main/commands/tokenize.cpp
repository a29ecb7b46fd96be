// chaski tokenize: converts text to tokens with a model's tokenizer, and back. Reads no weights.
#include <fmt/format.h>

#include <limits>
#include <memory>
#include <vector>

#include "engine/shelf/model_file.h"
#include "engine/text/tokenizer/tokenizer.h"
#include "main/flags/commands.h"
#include "main/flags/options.h"
#include "main/terminal/json_output.h"
#include "main/terminal/output.h"
#include "main/terminal/utf8_note.h"

namespace chaski {

namespace {

struct TokenizeFlags {
  std::string model, tokenizer;
  PromptFlags prompt;
  std::vector<TokenId> decode;
  Flag decode_flag;
  bool ids = false, json = false;
};

void put_ids(const std::vector<TokenId>& tokens) {
  put(fmt::format("{}\n", fmt::join(tokens, " ")));
}

void put_table(const Tokenizer& tokenizer, const std::vector<TokenId>& tokens) {
  std::string text;
  for (const TokenId id : tokens)
    text +=
        fmt::format("{:>7}  {}\n", id,
                    escaped(tokenizer.is_control(id) ? tokenizer.raw(id) : tokenizer.piece(id)));
  put(text);
}

void put_tokens_json(const Tokenizer& tokenizer, const std::vector<TokenId>& tokens) {
  JsonValue list = JsonValue::array();
  for (const TokenId id : tokens)
    list.push_back(
        {{"id", id}, {"text", tokenizer.piece(id)}, {"control", tokenizer.is_control(id)}});
  put_json({{"count", tokens.size()}, {"tokens", list}});
}

int decode(const Tokenizer& tokenizer, const TokenizeFlags& flags) {
  for (const TokenId id : flags.decode)
    if (id < 0 || id >= tokenizer.size())
      fail(Exit::usage, "--decode has the token {}, expected 0 to {}", id, tokenizer.size() - 1);
  const std::string text = tokenizer.decode(flags.decode);
  if (flags.json)
    put_json({{"text", text}});
  else
    put_model_text(text);
  return int(Exit::done);
}

int tokenize(TokenizeFlags& flags) {
  const std::unique_ptr<Tokenizer> tokenizer =
      Tokenizer::make(open_tokenizer(flags.model, flags.tokenizer));
  if (!tokenizer->remark().empty()) put_notice(tokenizer->remark());
  if (flags.decode_flag.given()) return decode(*tokenizer, flags);
  const std::string text = flags.prompt.required();
  put_utf8_note("the text", text, *tokenizer);
  const std::vector<TokenId> tokens =
      tokenizer->encode_whole(text, flags.prompt.spelled(*tokenizer, text));
  if (flags.json)
    put_tokens_json(*tokenizer, tokens);
  else if (flags.ids)
    put_ids(tokens);
  else
    put_table(*tokenizer, tokens);
  return int(Exit::done);
}

}  // namespace

Action declare_tokenize(Flags parser) {
  auto flags = std::make_shared<TokenizeFlags>();
  declare_model(parser, flags->model);
  declare_tokenizer(parser, flags->tokenizer);
  flags->prompt.declare(parser);
  flags->prompt.declare_pipe(parser);
  flags->prompt.keeps_line_end = true;
  flags->prompt.declare_special(parser);
  flags->decode_flag = parser.add("--decode", flags->decode, "convert token ids to text")
                           .within(0, std::numeric_limits<int>::max())
                           .type("ID");
  flags->decode_flag.excludes(flags->prompt.text_flag).excludes(flags->prompt.file_flag);
  parser.add_switch("--ids", flags->ids, "print only the ids, in one line");
  declare_json(parser, flags->json);
  parser.example("Show the tokens of a text",
                 "chaski tokenize -m model.gguf -p \"Once upon a time\"");
  parser.example("Count the tokens of a file",
                 "chaski tokenize -m model.gguf -f book.txt --ids | wc -w");
  parser.example("Convert tokens to text", "chaski tokenize -m model.gguf --decode 265 301 300");
  return [flags] { return tokenize(*flags); };
}

}  // namespace chaski
