// Published Medusa heads. Tensors I.K.linear.weight and I.K.linear.bias are block K of head I;
// after its N blocks, I.N.weight is its output matrix. config.json may count fewer heads than there
// are: for the first heads of the authors it says 2, and the file has 5.
#include <algorithm>
#include <charconv>
#include <map>

#include "ggml-like-tensor/base/error.h"
#include "models/import/folder.h"
#include "models/import/hf/medusa.h"
#include "models/import/hf/safetensors.h"
#include "models/import/json_file.h"
#include "models/import/row_tensors.h"

namespace chaski {
namespace {

int64_t count_of(const Json& value, int64_t least, int64_t most) {
  const int64_t found = value.integer();
  if (found < least || found > most) value.wrong(fmt::format("{} to {}", least, most));
  return found;
}

// The head that a tensor belongs to: the number at the beginning of its name; -1: none.
int64_t head_of(const std::string& name) {
  int64_t head = -1;
  const auto end = std::from_chars(name.data(), name.data() + name.size(), head).ptr;
  const bool named = end != name.data() && end != name.data() + name.size() && *end == '.';
  return named && head < MedusaHeads::kMostHeads ? head : -1;
}

TensorSource head_tensor(const TensorSlot& slot, const SafeTensor& t, const MedusaHeads& heads,
                         const std::string& target) {
  if (!t.format)
    fail(Exit::bad_file, "{}: tensor {} has dtype {}, expected F32, F16, BF16 or F8_E4M3", t.file,
         escaped(t.name), t.dtype);
  std::vector<int64_t> wanted{slot.cols};
  if (slot.rows > 1) wanted.insert(wanted.begin(), slot.rows);
  if (t.shape != wanted)
    fail(Exit::bad_file,
         "{}: tensor {} has shape {}, expected {}, for the hidden size of {} and the vocabulary of "
         "{} of {}",
         t.file, escaped(t.name), shape_text(t.shape), shape_text(wanted), heads.dim, heads.vocab,
         target);
  expect_finite(t);
  return tensor_over(slot.name, *t.format, t.data, slot.rows, slot.cols);
}

}  // namespace

ModelSource import_medusa(const HeadsFolder& folder, MedusaHeads& heads,
                          const std::string& target) {
  const std::string path = folder.path() + "/" + kMedusaFile;
  expect_no_pickle(folder.path(), kMedusaPickle, kMedusaFile);
  const Json config = folder.config();
  heads.heads = count_of(config["medusa_num_heads"], 1, MedusaHeads::kMostHeads);
  heads.blocks = config.has("medusa_num_layers")
                     ? count_of(config["medusa_num_layers"], 0, MedusaHeads::kMostBlocks)
                     : 1;
  SafetensorsFile file = read_safetensors(path);
  for (const SafeTensor& t : file.tensors) heads.heads = std::max(heads.heads, head_of(t.name) + 1);

  Slots slots;
  heads.tensors(slots);
  std::map<std::string, TensorSlot> wanted;
  for (const TensorSlot& slot : slots.all())
    if (!slot.hf.empty()) wanted.emplace(slot.hf, slot);
  ModelSource source;
  source.path = source.meta.origin = folder.path();
  source.kind = "Medusa heads";
  for (const SafeTensor& t : file.tensors) {
    const auto at = wanted.find(t.name);
    if (at == wanted.end())
      fail(Exit::bad_file, "{}: tensor {} is unexpected in heads with medusa_num_layers {}", path,
           escaped(t.name), heads.blocks);
    source.tensors.push_back(head_tensor(at->second, t, heads, target));
    wanted.erase(at);
  }
  if (!wanted.empty())
    fail(Exit::bad_file,
         "{}: tensor {} is missing, expected those of {} heads with medusa_num_layers {}", path,
         wanted.begin()->first, heads.heads, heads.blocks);
  source.storage = std::move(file.mapping);
  return source;
}

}  // namespace chaski
