// A .quipu file. The target corrects the header's length and checksum, so that the fuzzer reaches
// the code after them. tests/tensor/quipu_damage_test.cpp tests wrong ones.
#include "ggml-like-tensor/file/quipu.h"

#include <xxhash.h>

#include <cstring>
#include <new>

#include "ggml-like-tensor/file/value_io.h"
#include "tests/fuzz/target.h"

namespace chaski::fuzz {
namespace {

struct Aligned {
  explicit Aligned(std::string_view text)
      : size(text.size()), data(new (std::align_val_t(64)) std::byte[size]) {
    std::memcpy(data, text.data(), size);
  }
  ~Aligned() { operator delete[](data, std::align_val_t(64)); }
  size_t size;
  std::byte* data;
};

void mend_header(Aligned& file) {
  if (file.size < kQuipuPreamble) return;
  uint64_t bytes = 0;
  std::memcpy(&bytes, file.data + 8, sizeof bytes);
  bytes = std::min<uint64_t>(bytes, file.size - kQuipuPreamble);
  const uint64_t sum = XXH3_64bits(file.data + kQuipuPreamble, bytes);
  std::memcpy(file.data + 8, &bytes, sizeof bytes);
  std::memcpy(file.data + 16, &sum, sizeof sum);
}

const Declared quipu("quipu", [](std::string_view input) {
  Aligned file(input);
  mend_header(file);
  may_fail([&] { use(source_of(open_quipu("model.quipu", {file.data, file.size}))); });
});

}  // namespace
}  // namespace chaski::fuzz
