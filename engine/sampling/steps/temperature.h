// Divides the logits of the candidates by the temperature.
#pragma once
#include <algorithm>
#include <string>
#include <tuple>

#include "engine/sampling/steps/step.h"
#include "ggml-like-tensor/noise.h"

namespace chaski {

// Lets the temperature depend on the entropy of the candidates, as a fraction of its maximum: it is
// temperature - range where one candidate is certain, temperature + range where all are equally
// probable, and between them follows the fraction to the power `temperature_exponent`.
struct DynamicTemperature {
  static constexpr int kPlaceInHelp = 7;

  double temperature_range = 0, temperature_exponent = 1;  // range 0: off

  static constexpr auto parameters() {
    return std::tuple{
        parameter(
            &DynamicTemperature::temperature_range, "--dynatemp-range", "X", {},
            "dynamic temperature: from T - X where the model is certain to T + X where it is not"),
        parameter(&DynamicTemperature::temperature_exponent, "--dynatemp-exp", "X", above(0, 100),
                  "dynamic temperature: exponent of the entropy that chooses it")
            .refining()};
  }
  bool changes() const { return temperature_range > 0; }
};

struct TemperatureStep : DynamicTemperature {
  static constexpr const char* kName = "temperature";
  static constexpr const char* kAlias = "temp";
  static constexpr StepKind kKind = StepKind::temperature;
  static constexpr int kPlaceInHelp = 0, kPlaceOnDevice = 3;

  // 0: greedy. Then only steps of StepKind::logits, biases and banned texts have an effect.
  double temperature = 0.8;

  static constexpr auto parameters() {
    return std::tuple{
        parameter(&TemperatureStep::temperature, "--temp", "T", from_to(0, 100),
                  "temperature; 0: the most probable token, 1: the model's own probabilities")};
  }
  bool changes() const { return temperature != 1 || temperature_range > 0; }
  void narrow(Candidates& c, const DrawPlace&) const { c.divide(of(c)); }
  void put(PlainDraw& draw) const { draw.temperature = temperature; }

 private:
  double of(Candidates& c) const {
    if (temperature_range == 0) return temperature;
    const double entropy = c.relative_entropy(),
                 part = entropy > 0 ? exp64(temperature_exponent * log64(entropy)) : 0;
    return std::max(temperature - temperature_range + 2 * temperature_range * part, 1e-6);
  }
};

}  // namespace chaski
