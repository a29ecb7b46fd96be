// What a format of keys and values is for, and what it loses: as measured on known models, and with
// one model on a short text. The second figure is stored in the cache folder, so it is measured
// once for each model.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "quant/format.h"

namespace chaski {

class Engine;
struct Divergence;

// One line for the help of --kv. `format` is one of kKvTypes, here and below.
std::string kv_help(Format format);

// The KL divergence of the predictions from those with f16, the smallest and the largest of the
// models in docs/quantization.md, such as ".0001 to .0004"; empty for f32 and f16.
std::string kv_loss(Format format);

// The largest divergence that needs no note. 0 for f32 and f16, which are not measured.
double most_kv_loss(Format format);

// The KL divergence in nats a token, less that of f32 from f16. The latter is not a loss: with
// activations of 8 bits any change, however small, makes some of them round otherwise.
struct KvLoss {
  double kl = 0, standard_error = 0;

  // Certainly above most_kv_loss(): by more than two standard errors.
  bool is_large(Format format) const { return kl - 2 * standard_error > most_kv_loss(format); }
};

// The stored measurement of the model at this path. Nothing without one, or if the model's files
// have changed since.
std::optional<KvLoss> kept_kv_loss(const std::string& model, Format format);
// False if keep_kv_loss() would have no effect, such as without a cache folder.
bool can_keep_kv_loss(const std::string& model, Format format);
void keep_kv_loss(const std::string& model, Format format, const KvLoss& loss);

// Of a comparison of the format with f16, whose noise floor was measured too.
KvLoss kv_loss_of(const Divergence& divergence);
// Reads a short text with the engine's format and with f16, and compares the predictions. Nothing
// if that is not possible: layers on a device, experts that are read from the file, no memory for
// it. `on_begin` is called before it reads, and not at all if it cannot.
std::optional<KvLoss> measure_kv_loss(
    const Engine& engine, const std::function<void()>& on_begin = [] {});

// A note if a key or value was larger than its format can store since the program started; else
// empty. A device does not report it.
std::string kv_saturation();

}  // namespace chaski
