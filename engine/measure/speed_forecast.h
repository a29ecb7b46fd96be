// How fast a model will be on this machine's CPU, told before it is read. Layers of the model's
// shape, as many as a few hundred megabytes hold, are filled with random numbers and timed step by
// step; the whole model's steps take as much more time as they read more bytes (decoding) or do
// more operations (prompts). So what memory and multipliers give, what caches keep, and what each
// kernel and each step cost are measured where they matter. A second, once: it is kept.
#pragma once
#include <functional>

#include "engine/session/engine.h"
#include "models/architecture.h"

namespace chaski {

// Of a prompt of kForecastPrompt tokens, if the context holds as many; and behind a short text.
constexpr int kForecastPrompt = 512;
struct SpeedForecast {
  double prompt = 0, decode = 0;  // tokens per second
};

// `model` is bound to tensors of the shapes of `source`, and settled. `anew`: what was kept of the
// shape is measured again. note() is called before something is. Throws what Engine::over() throws.
SpeedForecast forecast_speed(const ModelSource& source, const Model& model,
                             const EngineOptions& options, bool anew,
                             const std::function<void(const std::string&)>& note);

}  // namespace chaski
