// Runs the fuzz targets on their corpus without a fuzzer, so that fixed bugs stay fixed. Also
// writes the seeds, with chaski's own writers.
#include "ggml-like-tensor/file/quipu.h"
#include "tests/fuzz/target.h"
#include "tests/kit/import_support.h"

using namespace chaski;
using namespace chaski::test;

namespace {

const std::string kCorpus = "tests/fuzz/corpus/", kSeam = "----\n";

void seed(const std::string& target, const std::string& name, const std::string& bytes) {
  std::filesystem::create_directories(kCorpus + target);
  write_file(kCorpus + target + "/" + name, bytes);
}

Gguf tiny_bpe() {
  Gguf g = tiny_llama();
  for (const char* key : {"model", "tokens", "scores", "token_type"})
    g.drop(std::string("tokenizer.ggml.") + key);
  g.str("tokenizer.ggml.model", "gpt2").str("tokenizer.ggml.pre", "qwen2");
  g.strs("tokenizer.ggml.tokens", {"h", "e", "he", "<|im_end|>", "\u0120"});
  g.i32s("tokenizer.ggml.token_type", {1, 1, 1, 3, 1}).strs("tokenizer.ggml.merges", {"h e"});
  return g;
}

void seed_models() {
  seed("gguf", "llama", tiny_llama().build());
  seed("gguf", "bpe", tiny_bpe().build());
  seed("gguf", "layers",
       tiny_llama().drop("llama.block_count").u32("llama.block_count", 4096).build());
  const TempFolder temp;
  const std::string path = write_file(temp / "a.gguf", tiny_llama().build());
  write_quipu(temp / "a.quipu", import_gguf(path), 1);
  seed("quipu", "llama", read_file(temp / "a.quipu"));
  // Group size 32, so that version 2 has complete blocks; dim 32, hidden 32, one layer, three
  // pieces.
  std::string tokens, v0, v2 = "24ka";
  append<int32_t>(tokens, 4);
  for (int i = 0; i < 3; ++i) append(tokens, 0.0f), append<int32_t>(tokens, 1), tokens += 'a';
  for (int32_t n : {4, 6, 1, 2, 1, 3, 16}) append(v0, n);
  v0 += floats(3 * 4 + 3 * 4 + 2 * 16 + 2 * 8 + 3 * 24 + 16 * 2);
  for (int32_t n : {2, 32, 32, 1, 2, 2, 3, 16}) append(v2, n);
  v2 += '\1';
  append<int32_t>(v2, 32);
  v2.resize(256);
  v2 += floats(3 * 32);
  for (int matrix : {3 * 32, 1024, 1024, 1024, 1024, 1024, 1024, 1024})
    v2 += std::string(matrix, '\1') + floats(matrix / 32);
  seed("llama2c", "v0", v0 + kSeam + tokens);
  seed("llama2c", "v2", v2 + kSeam + tokens);
}

void seed_folders() {
  const std::string norm = R"("model.norm.weight")", embed = R"("model.embed_tokens.weight")";
  const auto entry = [](const std::string& name, const std::string& shape, size_t bytes) {
    return "{" + name + R"(:{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":[0,)" +
           std::to_string(bytes) + "]}}";
  };
  seed(
      "hf_folder", "shards",
      R"({"architectures":["LlamaForCausalLM"],"hidden_size":8,"intermediate_size":4,)"
      R"("num_hidden_layers":1,"num_attention_heads":2,"vocab_size":3,)"
      R"("max_position_embeddings":32,"rope_scaling":{"rope_type":"linear","factor":2.0}})" +
          kSeam + R"({"weight_map":{)" + norm + R"(:"one.safetensors",)" + embed +
          R"(:"two.safetensors"}})" + kSeam + safetensors(entry(norm, "[8]", 32), floats(8)) +
          kSeam + safetensors(entry(embed, "[3,8]", 96), floats(24)) + kSeam +
          R"({"bos_token":{"content":"<s>"},"chat_template":[{"name":"default","template":"x"}]})");
  std::string header, buffer;
  const auto put = [&](const std::string& name, const std::string& shape, int numbers) {
    header += fmt::format(R"({}"{}":{{"dtype":"F32","shape":[{}],"data_offsets":[{},{}]}})",
                          header.empty() ? "{" : ",", name, shape, buffer.size(),
                          buffer.size() + 4 * size_t(numbers));
    buffer += floats(numbers);
  };
  for (const char* head : {"0", "1"}) {
    put(head + std::string(".0.linear.weight"), "8,8", 64);
    put(head + std::string(".0.linear.bias"), "8", 8);
    put(head + std::string(".1.weight"), "3,8", 24);
  }
  seed("heads", "medusa",
       R"({"medusa_num_heads":2,"medusa_num_layers":1})" + kSeam +
           safetensors(header + "}", buffer));
  header.clear(), buffer.clear();
  put("fc.weight", "8,16", 128);
  for (const char* name : {"q", "k", "v", "o"})
    put(fmt::format("layers.0.self_attn.{}_proj.weight", name), "8,8", 64);
  for (const char* name : {"gate", "up"})
    put(fmt::format("layers.0.mlp.{}_proj.weight", name), "4,8", 32);
  put("layers.0.mlp.down_proj.weight", "8,4", 32);
  put("layers.0.post_attention_layernorm.weight", "8", 8);
  put("embed_tokens.weight", "3,8", 24);
  seed("heads", "eagle",
       R"({"architectures":["LlamaForCausalLM"],"hidden_act":"silu","hidden_size":8,)"
       R"("intermediate_size":4,"max_position_embeddings":32,"num_attention_heads":2,)"
       R"("num_hidden_layers":1,"vocab_size":3})" +
           kSeam + kSeam + safetensors(header + "}", buffer));
  seed("tokenizer_json", "byte_level",
       R"x({"model":{"type":"BPE","vocab":{"h":0,"e":1,"he":2},"merges":[["h","e"]]},)x"
       R"x("pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":)x"
       R"x({"Regex":"\\p{N}{1,3}|\\s+(?!\\S)"},"behavior":"Isolated"},{"type":"ByteLevel",)x"
       R"x("use_regex":false}]},"added_tokens":[{"id":5,"content":"<|end|>","special":true}],)x"
       R"x("post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":)x"
       R"x({"id":"<|end|>"}},{"Sequence":{"id":"A"}}]}})x");
  seed("tokenizer_json", "sentencepiece",
       R"({"model":{"type":"BPE","byte_fallback":true,"unk_token":"<unk>","vocab":{"<unk>":0,)"
       R"("<0x0A>":1,"▁":2,"a":3,"▁a":4},"merges":["▁ a"]},"normalizer":{"type":)"
       R"("Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},{"type":"Replace",)"
       R"("pattern":{"String":" "},"content":"▁"}]}})");
}

std::string field(int id, const std::string& bytes) {
  return std::string{static_cast<char>(id << 3 | 2), static_cast<char>(bytes.size())} + bytes;
}

void seed_sentencepiece() {
  std::string model;
  const auto piece = [&](const std::string& text, char type) {
    std::string score;
    append(score, -1.5f);
    model += field(1, field(1, text) + '\x15' + score + '\x18' + type);
  };
  piece("<unk>", 2), piece("<s>", 3), piece("</s>", 3), piece("<0x0A>", 6);
  for (const char* text : {"\u2581", "h", "e", "he"}) piece(text, 1);
  model += field(2, std::string("\x18\x02\xc0\x02\x00", 5));  // BPE, unk 0
  model += field(3, std::string("\x18\x01", 2));              // add a space at the beginning
  seed("sentencepiece", "bpe", model);
}

void seed_texts() {
  seed("text", "mixed",
       "Hello w\xc3\xb6rld, it's 12345!\n\n  <|im_start|>x</s>[INST] "
       "\xe2\x96\x81\xe4\xb8\xad\xff\xc0 "
       "<tool>\xf0\x9f\xa6\x99");
  const std::string talk = kSeam + "Be <s> kind." + kSeam + "  Who are you?\n" + kSeam +
                           "<|im_end|>I am." + kSeam + "[INST]" + kSeam + "\xff";
  for (const auto& [name, marks] : {std::pair("chatml", "<|im_start|>"),
                                    {"llama2", "[INST] <<SYS>> bos_token"},
                                    {"phi3", "<|assistant|> <|end|>"},
                                    {"plain", "\x1b[31m"}})
    seed("chat", name, marks + talk);
  // The long golden templates.
  const std::string golden = read_file("tests/golden/templates/templates.txt");
  int number = 0;
  for (size_t at = golden.find("===== "), next; at < golden.size(); at = next) {
    next = std::min(golden.find("===== ", at + 1), golden.size());
    const size_t line = golden.find('\n', at) + 1;
    if (next - line > 1000)
      seed("template", std::to_string(++number),
           golden.substr(line, next - line) + kSeam + " Who <|im_end|>?\n");
  }
  seed("chat", "own",
       "{% for m in messages %}<|im_start|>{{ m.role }} {{ m.content | trim }}<|im_end|>"
       "{% endfor %}{{ '<|assistant|>' if add_generation_prompt }}" +
           talk);
}

void seed_grammars() {
  for (const auto& [name, text] :
       {std::pair("json", "{\"a\": [1, \"\u00e9\"]}"), {"c", "int f(){return 1;}"}})
    seed("grammar", name,
         read_file("tests/golden/grammars/" + std::string(name) + ".gbnf") + kSeam + text);
  seed("grammar", "small",
       "root ::= a? \"x\"{2,3} [^\\x00-\\x1F\\u0100-\\U0001F600]\na ::= \"(\" a? \")\" | . # or "
       "any\n" +
           kSeam + "(())xxa");
  seed("grammar", "regex", "^(?:a|[^b-d\\d]{2,3}?)+\\.(?<n>\\u00e9*)$" + kSeam + "aa.");
  seed("grammar", "object",
       R"({"$defs":{"n":{"type":"object","properties":{"a":{"anyOf":[{"$ref":"#/$defs/n"},)"
       R"({"type":"null"}]},"b":{"enum":[1,"x"]}},"required":["a"],"additionalProperties":)"
       R"({"type":"string","pattern":"^a+$"}}},"allOf":[{"$ref":"#/$defs/n"},{"properties":)"
       R"({"b":{"type":"integer"}}}]})" +
           kSeam + R"({"a":null,"b":1})");
  seed("grammar", "array",
       R"({"type":"array","prefixItems":[{"type":"number","exclusiveMinimum":-3,"maximum":12},)"
       R"({"type":["string","null"],"format":"date-time"}],"items":{"oneOf":[{"const":1},)"
       R"({"type":"string","minLength":1,"maxLength":3}]},"minItems":1,"maxItems":4})" +
           kSeam + R"([1,null,"ab"])");
}

void seed_bodies() {
  seed(
      "api", "chat",
      R"({"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":[{"type":)"
      R"("text","text":"Hi"}]},{"role":"assistant","content":null,"reasoning_content":"x",)"
      R"("tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]},)"
      R"({"role":"tool","tool_call_id":"a","content":"1"}],"tools":[{"type":"function",)"
      R"("function":{"name":"f","parameters":{"type":"object"}}}],"tool_choice":{"type":)"
      R"("function","function":{"name":"f"}},"parallel_tool_calls":false,"stream":true,)"
      R"("stream_options":{"include_usage":true},"chat_template_kwargs":{"enable_thinking":true}})");
  seed("api", "settings",
       R"({"temperature":0.5,"top_k":40,"seed":-1,"stop":["a","b"],"max_tokens":5,"logit_bias":)"
       R"({"5":-1.5},"samplers":["top_k","temperature"],"dry_multiplier":0.8,"mirostat":2,)"
       R"("mirostat_tau":5,"ban":["x"],"response_format":{"type":"json_schema","json_schema":)"
       R"({"name":"n","schema":{"type":"object"}}},"odd":{"n":[1,null]}})");
  seed("api", "grammar", R"({"grammar":"root ::= [a-z]+ \"x\"","n_predict":3,"ignore_eos":true})");
  seed("api", "anthropic",
       R"({"max_tokens":9,"system":[{"type":"text","text":"Be brief.\nToday's date: 2026-11-25",)"
       R"("cache_control":{"type":"ephemeral"}}],"messages":[{"role":"user","content":"Hi"},)"
       R"({"role":"assistant","content":[{"type":"thinking","thinking":"x","signature":"s"},)"
       R"({"type":"tool_use","id":"a","name":"f","input":{"n":1}}]},{"role":"user","content":)"
       R"([{"type":"tool_result","tool_use_id":"a","is_error":true,"content":[{"type":"text",)"
       R"("text":"1"}]}]}],"tools":[{"name":"f","input_schema":{"type":"object"}}],"tool_choice":)"
       R"({"type":"tool","name":"f","disable_parallel_tool_use":true},"thinking":{"type":)"
       R"("enabled","budget_tokens":9},"stop_sequences":["a"],"output_config":{"format":{"type":)"
       R"("json_schema","schema":{"type":"object"}},"effort":"low"},"stream":true})");
  seed("api", "ollama",
       R"({"messages":[{"role":"user","content":"Hi","images":[]}],"prompt":"Hi","system":"x",)"
       R"("suffix":"","raw":false,"think":"low","format":{"type":"object"},"stream":false,)"
       R"("options":{"num_ctx":512,"num_predict":-2,"num_gpu":1,"tfs_z":1,"seed":1,"stop":"a"},)"
       R"("template":"","context":[],"logprobs":false,"keep_alive":"5m"})");
  seed("api", "responses",
       R"({"input":[{"type":"message","role":"developer","content":[{"type":"input_text","text":)"
       R"("Hi"}]},{"role":"user","content":"Hi"},{"type":"reasoning","content":[{"type":)"
       R"("reasoning_text","text":"x"}],"summary":[]},{"type":"function_call","call_id":"a",)"
       R"("name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"a","output":)"
       R"("1"}],"instructions":"Be brief.","previous_response_id":"resp_1","text":{"format":)"
       R"({"type":"json_schema","name":"n","schema":{"type":"object"}}},"reasoning":{"effort":)"
       R"("high"},"truncation":"auto","top_logprobs":2,"max_output_tokens":9,"store":false})");
  seed("api", "regex", R"({"regex":"a{2,3}","logit_bias":[[1,false],[2,0.5]],"seed":1})");
}

}  // namespace

TEST_CASE("fuzz/write the seeds" * doctest::skip()) {
  seed_models();
  seed_folders();
  seed_sentencepiece();
  seed_texts();
  seed_grammars();
  seed_bodies();
}

TEST_CASE("fuzz/the corpus through every target") {
  CHECK(fuzz::targets().size() == 12);
  for (const fuzz::Target& target : fuzz::targets()) {
    int inputs = 0;
    for (const auto& entry : std::filesystem::directory_iterator(kCorpus + target.name)) {
      INFO(entry.path().string());
      const std::string input = read_file(entry.path());
      target.run(input);
      for (size_t n = 0; n < input.size(); n += 1 + input.size() / 50)
        target.run(input.substr(0, n));
      ++inputs;
    }
    CHECK_MESSAGE(inputs > 0, target.name);
  }
}
