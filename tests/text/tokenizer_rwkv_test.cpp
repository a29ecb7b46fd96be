// RWKV's tokenizer: the longest piece at each position.
#include "engine/conversation/chat_template.h"
#include "engine/text/tokenizer/tokenizer.h"
#include "ggml-like-tensor/base/error.h"
#include "models/import/import.h"
#include "models/import/tokenizer/byte_literal.h"
#include "tests/kit/support.h"

using namespace chaski;

namespace {

using Ids = std::vector<TokenId>;

// Id 0, all bytes as 1 to 256, then `more`.
Metadata world(const std::vector<std::string>& more) {
  Metadata meta;
  meta.origin = "made.gguf";
  std::vector<std::string> tokens = {"<s>"};
  for (int byte = 0; byte < 256; ++byte)
    tokens.push_back(literal_of_bytes(std::string(1, static_cast<char>(byte))));
  tokens.insert(tokens.end(), more.begin(), more.end());
  std::vector<int64_t> types(tokens.size(), 1);
  types[0] = 3;
  meta.set_str("tokenizer.kind", "rwkv");
  meta.set_strs("tokenizer.tokens", tokens);
  meta.set_ints("tokenizer.types", types);
  meta.set_int("tokenizer.bos_id", 0);
  meta.set_int("tokenizer.eos_id", 0);
  return meta;
}

std::string refusal(const Metadata& meta) {
  return test::error_of([&] { Tokenizer::make(meta); }).what();
}

}  // namespace

TEST_CASE("tokenizer: RWKV takes the longest piece, whatever bytes it has") {
  Metadata meta =
      world({"ab", "abcd", "b", "\\xc3\\xa9", "\\n\\n", "it\\'s", "\\xe6\\x97", "[PAD264]"});
  std::vector<int64_t> types = {3};
  types.resize(257 + 7, 1), types.push_back(5);
  meta.set_ints("tokenizer.types", types);
  const auto t = Tokenizer::make(meta);
  CHECK_EQ(t->encode("abc"), Ids{257, 1 + 'c'});  // not abcd, of which the text has a part
  CHECK_EQ(t->encode("abcdab"), Ids{258, 257});
  CHECK_EQ(t->encode("b"), Ids{1 + 'b'});  // of two equal pieces the first
  CHECK_EQ(t->encode("\u00e9\n\nit's"), Ids{260, 261, 262});
  CHECK_EQ(t->encode("\u65e5"), Ids{263, 1 + 0xA5});  // a piece may end inside a character
  CHECK_EQ(t->encode("\xFF"), Ids{1 + 0xFF});
  CHECK_EQ(t->decode(t->encode("\u65e5 \xFF\\x41")), "\u65e5 \xFF\\x41");
  // Neither a control token nor an unused piece is typed; a template's text has the former.
  CHECK_EQ(t->encode("<s>"), Ids{1 + '<', 1 + 's', 1 + '>'});
  CHECK_EQ(t->encode_with_control("<s>ab"), Ids{0, 257});
  CHECK_EQ(t->encode("[PAD264]").size(), 8);
  CHECK_FALSE(t->adds_bos());
  // A piece may cross the border of two parts, as in training.
  CHECK_EQ(t->encode_parts({{{"a"}, {"bc"}}}), Ids{257, 1 + 'c'});
}

TEST_CASE(
    "tokenizer: RWKV's empty line ends no text, although converters call it the end of a turn") {
  Metadata meta = world({"\\n\\n"});
  meta.set_int("tokenizer.eot_id", 257);
  meta.set_ints("tokenizer.eos_ids", {0, 257});
  meta.set_str("tokenizer.chat_template", "rwkv-world");
  const auto t = Tokenizer::make(meta);
  CHECK(t->is_end(0));
  CHECK_FALSE(t->is_end(257));
  CHECK_EQ(t->encode("\n\n"), Ids{257});
  const ChatTemplate chat = ChatTemplate::detect(meta, *t, false, {}, {});
  const std::vector<ChatMessage> question = {{"user", " Hi "}};
  CHECK_EQ(t->decode(chat.render(question, true)), "User: Hi\n\nAssistant:");
  CHECK_EQ(chat.stop_strings(), std::vector<std::string>{"\nUser:"});
}

TEST_CASE("tokenizer: RWKV's vocabularies that cannot be read") {
  CHECK_EQ(refusal(world({"\\q"})),
           "made.gguf: tokenizer.tokens[257] is \"\\q\", expected \\t, \\n, \\r, \\\\, a quote or "
           "two hexadecimal digits after each backslash");
  CHECK_NE(refusal(world({"\\x4"})), "");
  CHECK_NE(refusal(world({"\\"})), "");
  Metadata meta = world({});
  std::vector<int64_t> types(257, 1);
  types[0] = 3, types[1 + 0x0A] = 5;
  meta.set_ints("tokenizer.types", types);
  CHECK_EQ(refusal(meta),
           "made.gguf: tokenizer.tokens has no piece for the byte 0x0a, expected all 256");
}

TEST_CASE("import/hf RWKV's vocabulary file") {
  const test::TempFolder folder;
  const std::string path = folder / "rwkv_vocab_v20230424.txt";
  std::string lines;
  for (int byte = 0; byte < 256; ++byte)
    lines += fmt::format("{} b'{}' 1\n", byte + 1,
                         literal_of_bytes(std::string(1, static_cast<char>(byte))));
  lines +=
      "257 ' a' 2\n258 \"it's\" 4\n259 '\\xe9\\u65e5' 5\r\n260 '\\U0001f600' 4\n262 b'\\xe6\\x97' "
      "2\n";
  test::write_file(path, lines);
  const Metadata meta = import_tokenizer(path);
  const auto t = Tokenizer::make(meta);
  CHECK_EQ(t->encode(" ait's\u00e9\u65e5\U0001f600\u65e5"), Ids{257, 258, 259, 260, 262, 1 + 0xA5});
  CHECK_EQ(t->raw(259), "\\xc3\\xa9\\xe6\\x97\\xa5");
  CHECK_EQ(t->eos(), 0);
  CHECK(t->is_control(0));
  CHECK(t->type(261) == TokenType::unused);
  const auto refused = [&](const std::string& line) {
    test::write_file(path, line);
    const std::string why = test::error_of([&] { import_tokenizer(path); }).what();
    return why.substr(std::min(path.size(), why.size()));
  };
  CHECK_EQ(refused("1 'a' 2\n"),
           ": line 1 is \"1 'a' 2\", expected a literal of Python of 2 bytes");
  CHECK_EQ(refused("1 a 1\n"), ": line 1 is \"1 a 1\", expected a literal of Python of 1 bytes");
  CHECK_EQ(
      refused("one 'a' 1\n"),
      ": line 1 is \"one 'a' 1\", expected an id, a literal of Python and its number of bytes");
  CHECK_NE(refused("1 '\\ud800' 3\n"), "");
  CHECK_NE(refused("-1 'a' 1\n"), "");
  CHECK_NE(refused("99999999 'a' 1\n"), "");
}
