// Predicts a model's speed on this machine's CPU before its weights are read. A probe of some of
// the model's layers (a few hundred megabytes) is filled with random numbers and timed step by
// step. The time of each step is scaled to the whole model: by bytes read for decoding, by
// operations for prompts. So the speed of memory, arithmetic, caches and each kernel is measured,
// not assumed. The measurement takes about a second, and its result is kept.
#pragma once
#include <functional>

#include "engine/session/engine.h"
#include "models/architecture.h"

namespace chaski {

// Speeds for a prompt of kForecastPrompt tokens (at most the context), and for decoding after a
// short text.
constexpr int kForecastPrompt = 512;
// The bytes that the probe reads for a token, at most. That much does not stay in a cache; a
// smaller model is timed whole.
constexpr uint64_t kMostProbe = uint64_t{384} << 20;
struct SpeedForecast {
  double prompt = 0, decode = 0;  // tokens per second
};

// `model` is bound to tensors of the shapes of `source`, and settled. `measure_again`: even if a
// result for the shape is kept. note() is called before a measurement. Throws what Engine::over()
// throws, and Error(memory) if the layers that can be timed do not have all steps of the model.
SpeedForecast forecast_speed(const ModelSource& source, const Model& model,
                             const EngineOptions& options, bool measure_again,
                             const std::function<void(const std::string&)>& note);

}  // namespace chaski
