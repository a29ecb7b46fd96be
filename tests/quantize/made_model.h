// A small GPT-2 model file with made-up weights, for tests of the quantizer.
#pragma once
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ggml-like-tensor/file/quipu.h"
#include "quant/encode/encode.h"
#include "tests/kit/program.h"

namespace chaski::test {

// Numbers around 0 with a few large ones; no two rows are the same.
inline float weight(int64_t row, int64_t col) {
  const uint32_t h = uint32_t(row * 2654435761u) ^ uint32_t(col * 40503u + 12345u) * 2246822519u;
  const float x = float(int32_t(h ^ h >> 15)) / 2147483648.0f;
  return h % 97 == 0 ? 4 * x : x * x * x;
}

using ValuesByName =
    std::map<std::string, std::vector<float>>;  // the values of each tensor, row by row

struct MadeTensor {
  std::string name;
  int64_t rows, cols;
  Format format = Format::f32;
  float scale = 1;
};

// Writes a .quipu file whose tensors are made by weight(). `edit` may change their values.
inline ValuesByName make_model(
    const std::string& path, const std::vector<MadeTensor>& tensors,
    const std::function<void(const std::string&, std::vector<float>&)>& edit = {}) {
  ModelSource source;
  // GPT-2 has a position table. The keys are those that the list of its tensors needs.
  source.meta.set_str("general.architecture", "gpt2");
  for (auto [key, n] : {std::pair{"context_length", 32},
                        {"embedding_length", 64},
                        {"block_count", 1},
                        {"head_count", 4},
                        {"feed_forward_length", 700},
                        {"vocab_size", 100}})
    source.meta.set_int(std::string("model.") + key, n);
  source.meta.set_float("model.norm_epsilon", 1e-5);
  auto values = std::make_shared<ValuesByName>();
  for (const MadeTensor& t : tensors) {
    std::vector<float>& v = (*values)[t.name];
    for (int64_t r = 0; r < t.rows; ++r)
      for (int64_t c = 0; c < t.cols; ++c) v.push_back(t.scale * weight(r, c));
    if (edit) edit(t.name, v);
    source.tensors.push_back(
        {{t.name, t.format, t.rows, t.cols}, [=](int64_t first, int64_t last, std::byte* dst) {
           const float* x = values->at(t.name).data();
           if (t.rows == 1) return void(std::memcpy(dst, x, t.cols * 4));
           for (int64_t s = first; s < last; ++s, dst += strip_bytes(t.format, t.cols)) {
             const int rows = int(std::min<int64_t>(16, t.rows - s * 16));
             encode_strip(t.format, x + s * 16 * t.cols, t.cols, rows, t.cols, dst);
           }
         }});
  }
  write_quipu(path, source, 1);
  return *values;
}

// The message of the error that `work` throws, which must have this exit code.
inline std::string line_of(const std::function<void()>& work, Exit code) {
  try {
    work();
  } catch (const Error& error) {
    CHECK_MESSAGE(int(error.code) == int(code), error.what());
    return error.what();
  }
  FAIL("nothing was thrown");
  return {};
}

inline const std::vector<MadeTensor> kModel = {
    {"token_embd", 100, 64},       {"position_embd", 32, 64},  {"layer.0.attn_norm", 1, 64},
    {"layer.0.attn_q", 64, 64},    {"layer.0.attn_k", 24, 64}, {"layer.0.ffn_up", 700, 64},
    {"layer.0.ffn_down", 64, 172}, {"output", 100, 64},
};

}  // namespace chaski::test
