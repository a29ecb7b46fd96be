#include "engine/shelf/inspection.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <set>

#include "engine/shelf/model_file.h"
#include "engine/text/tokenizer/pretokenizer.h"
#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/base/nearest.h"
#include "models/architecture.h"
#include "models/import/gguf/gguf_names.h"
#include "models/import/import.h"
#include "models/import/tokenizer/tokenizer_kinds.h"
#include "models/nearest_structure.h"
#include "models/other_kinds.h"

namespace chaski {

namespace {

using Names = std::vector<std::string>;

Need need(std::string what, const std::string& name, const Names& known) {
  const bool here = std::find(known.begin(), known.end(), name) != known.end();
  return {std::move(what), name, here, here ? "" : nearest_name(name, known)};
}

// The text of the first key that exists, or "".
std::string text_at(const Metadata& meta, const Names& keys) {
  for (const std::string& key : keys)
    if (const Value* value = meta.find(key))
      if (auto* text = std::get_if<std::string>(&value->data)) return *text;
  return "";
}

Need architecture_need(const std::string& name, const ModelSource& source) {
  Names known;
  for (const Architecture& a : architectures()) known.insert(known.end(), a.hf.begin(), a.hf.end());
  if (!source.meta.has("hf.architectures")) known = architecture_names();
  const bool here = std::find(known.begin(), known.end(), name) != known.end();
  if (here || !other_kind(name).empty()) return {"architecture", name, here, ""};
  Structure structure{source.meta.has("hf.architectures"), {}, {}};
  for (const TensorSource& t : source.tensors) structure.tensors.push_back(t.info.name);
  for (const UnreadTensor& t : source.unread) structure.tensors.push_back(t.name);
  const std::string prefix = structure.of_folder ? "hf." : "gguf." + name + ".";
  for (const auto& [key, value] : source.meta.all())
    if (key.starts_with(prefix)) structure.keys.push_back(key.substr(prefix.size()));
  return {"architecture", name, false, nearest_structure(structure).name};
}

// The RoPE scalings of the architecture. An unknown architecture is treated as llama.
Names rope_scalings(const std::string& architecture) {
  const Architecture* known = find_architecture(architecture);
  Keys keys;
  const std::unique_ptr<Model> model = (known ? known : find_architecture("llama"))->make();
  model->keys(keys);
  for (const Key& key : keys.list)
    if (key.ours == "model.rope_scaling") return std::get<Key::Words>(key.member).names;
  return {"none"};
}

void add_tokenizer(const Metadata& meta, std::vector<Need>& needs) {
  const std::string kind = text_at(meta,
                                   {"tokenizer.kind", "gguf.tokenizer.ggml.model", "hf.tokenizer"}),
                    pre = text_at(meta, {"tokenizer.pre", "gguf.tokenizer.ggml.pre"});
  if (kind.empty()) return needs.push_back({"tokenizer", "any", false, ""});
  const bool ours = meta.has("tokenizer.kind");
  const Names theirs =
      tokenizer_kinds(meta.has("hf.tokenizer") ? &TokenizerKind::json : &TokenizerKind::gguf);
  needs.push_back(need("tokenizer", kind, ours ? Names{kind} : theirs));
  const bool cuts = kind == "bpe" || kind == "gpt2";
  if (cuts && !pre.empty()) needs.push_back(need("pre-tokenizer", pre, Pretokenizer::names()));
}

// No format of weights is near to integers such as I64.
Need format_need(const std::string& name, const Names& known) {
  const size_t digits = name.find_first_of("0123456789");
  const std::string kind = name.substr(0, digits);
  const bool integers = kind == "I" || kind == "U" || kind == "BOOL";
  return integers ? Need{"format", name, false, ""} : need("format", name, known);
}

void add_formats(const ModelSource& source, std::vector<Need>& needs) {
  Names known;
  for (const Format f : totals_of(source).formats) {
    const std::string name(info(f).name);
    needs.push_back({"format", name, true, ""});
  }
  for (int f = 0; f < kFormatCount; ++f) known.emplace_back(info(Format(f)).name);
  std::set<std::string> added;
  for (const UnreadTensor& t : source.unread) {
    const bool shape = t.shape.empty() || t.shape.size() > 2;
    const Need what =
        shape ? Need{"shape", fmt::format("tensors of {} dimensions", t.shape.size()), false, ""}
              : format_need(t.format, known);
    if (added.insert(what.name).second) needs.push_back(what);
  }
}

std::vector<Need> needs_of(const ModelSource& source) {
  const Metadata& meta = source.meta;
  const std::string architecture = text_at(meta, {"general.architecture"});
  const std::string prefix = "gguf." + architecture + ".rope.scaling.";
  const std::string rope =
      text_at(meta, {"model.rope_scaling", prefix + "type", "hf.rope_scaling.rope_type",
                     "hf.rope_scaling.type", "hf.rope_parameters.rope_type"});
  std::vector<Need> needs = {architecture_need(architecture, source)};
  if (!rope.empty() && rope != "default")
    needs.push_back(need("rope scaling", rope, rope_scalings(architecture)));
  add_tokenizer(meta, needs);
  add_formats(source, needs);
  return needs;
}

}  // namespace

Inspection inspect_model(const std::string& path, const std::string& tokenizer) {
  Inspection found;
  try {
    found.source = open_model(path, tokenizer).source;
    expect_runnable(found.source);
  } catch (const Error& error) {
    if (error.code != Exit::bad_file) throw;
    found.refusal = error.what();
  }
  if (found.source.path.empty()) try {
      found.source = look_at_model(path);
    } catch (const Error&) {
      throw Error(Exit::bad_file, found.refusal);  // more useful than the error of look_at_model()
    }
  found.needs = needs_of(found.source);
  return found;
}

namespace {

std::string in_small(std::string text) {
  for (char& c : text) c = char(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// Whether the name is that of a model for code: "coder" of qwen2.5-coder, not that of encoder.
bool names_code(const std::string& name) {
  for (size_t at = name.find("code"); at != std::string::npos; at = name.find("code", at + 1)) {
    const bool other_word = at >= 2 && (at == 2 || !std::isalpha((unsigned char)name[at - 3])) &&
                            (name.substr(at - 2, 2) == "en" || name.substr(at - 2, 2) == "de");
    if (!other_word) return true;
  }
  return false;
}

}  // namespace

std::string good_for(const Inspection& found) {
  const Metadata& meta = found.source.meta;
  const std::string path = found.source.path,
                    name = in_small(path.substr(path.find_last_of('/', path.size() - 2) + 1) + " " +
                                    text_at(meta, {"general.name", "gguf.general.name"})),
                    other(other_kind(text_at(meta, {"general.architecture"})));
  std::error_code none;
  if (other == "an embedding model" || std::filesystem::exists(path + "/modules.json", none))
    return "embeddings";
  if (!other.empty()) return other.substr(other.find(' ') + 1);
  if (!found.refusal.empty()) return "";
  if (name.find("embed") != std::string::npos) return "embeddings";
  const std::string chat = text_at(meta, {"tokenizer.chat_template"});
  std::string uses = chat.empty() ? "text to continue" : "chat";
  if (names_code(name)) uses += ", code";
  if (chat.find("tools") != std::string::npos) uses += ", tools";
  return uses;
}

Metadata gguf_metadata(const Metadata& meta) {
  Metadata out;
  for (const KeyPair& pair : gguf_keys(meta.str("general.architecture", "")))
    if (const Value* value = meta.find(pair.ours); value && !pair.theirs.empty())
      out.set(pair.theirs, *value);
  return out;
}

int64_t own_context(const ModelSource& source) {
  const Metadata& meta = source.meta;
  for (const std::string& key :
       {std::string("model.context_length"),
        "gguf." + text_at(meta, {"general.architecture"}) + ".context_length",
        std::string("hf.max_position_embeddings")})
    if (const Value* value = meta.find(key))
      if (auto* number = std::get_if<int64_t>(&value->data)) return *number;
  return 0;
}

std::string refusal_of(const std::string& path) {
  try {
    return inspect_model(path, "").refusal;
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace chaski
