// Every step of the sampler, once. A word in this list gives a step its number and its place in the
// default order. Its flags (main/flags/options.cpp), the check of their ranges and its part of the
// key of a cached answer follow from it. Each step is declared in steps/<step>.h:
//
//   kName, kKind       its name in --samplers, and what it changes.
//   parameters()       its parameters: member, flag, range, help.
//   changes()          whether it changes anything with these values.
//   change(logits, history)   of StepKind::logits: changes logits by the tokens of the text.
//   narrow(candidates, place) of the other kinds: removes or scales candidates.
//
// A step may also state these:
//
//   kAlias             a second name in --samplers, which llama.cpp uses.
//   kPlaceInHelp       its place in --help; steps without one come last.
//   State, prepare(tokenizer) what it computes once. change() takes it as its third argument.
//   most_candidates()  how many candidates it leaves, if they are those with the largest logits.
//   put(PlainDraw), kPlaceOnDevice   its settings for a device, which takes steps in this order.
//
// The result of a step may depend only on the logits, the settings, the seed and the tokens of the
// text.
#pragma once
#include <algorithm>
#include <tuple>
#include <type_traits>
#include <vector>

#include "engine/sampling/steps/dry.h"
#include "engine/sampling/steps/min_p.h"
#include "engine/sampling/steps/mirostat.h"
#include "engine/sampling/steps/penalties.h"
#include "engine/sampling/steps/temperature.h"
#include "engine/sampling/steps/top_k.h"
#include "engine/sampling/steps/top_n_sigma.h"
#include "engine/sampling/steps/top_p.h"
#include "engine/sampling/steps/typical.h"
#include "engine/sampling/steps/xtc.h"

namespace chaski {

template <class... Step>
struct StepList {
  static constexpr int kCount = sizeof...(Step);
  struct Settings : Step... {};
  template <class... More>
  using With = StepList<Step..., More...>;

  // Calls fn(std::type_identity<Step>{}) for each.
  template <class Fn>
  static constexpr void each(Fn&& fn) {
    (fn(std::type_identity<Step>{}), ...);
  }
  // The same in the order of --help.
  template <class Fn>
  static constexpr void each_in_help(Fn&& fn) {
    for (int place = 0; place <= kLast; ++place)
      each([&]<class S>(std::type_identity<S> step) {
        if (place_in_help<S>() == place) fn(step);
      });
  }

 private:
  static constexpr int kLast = 100;
  template <class S>
  static constexpr int place_in_help() {
    if constexpr (requires { S::kPlaceInHelp; }) return S::kPlaceInHelp;
    return kLast;
  }
};

// In the default order.
using SamplerSteps = StepList<PenaltiesStep, DryStep, TopNSigmaStep, TopKStep, TypicalStep,
                              TopPStep, MinPStep, XtcStep, TemperatureStep>;

// With the parts that have parameters and are no steps.
using SamplerParts = SamplerSteps::With<DynamicTemperature, Mirostat>;
struct SamplerSettings : SamplerSteps::Settings, Mirostat {};

// Whether a part is a step that changes logits by the tokens of the text.
template <class Part>
constexpr bool changes_logits = [] {
  if constexpr (requires { Part::kKind; }) return Part::kKind == StepKind::logits;
  return false;
}();

enum class SamplerStep : uint8_t {};  // by its place in SamplerSteps

template <class Step>
constexpr SamplerStep kStep = [] {
  int number = 0, found = -1;
  SamplerSteps::each([&]<class S>(std::type_identity<S>) {
    if (std::is_same_v<S, Step>) found = number;
    ++number;
  });
  return SamplerStep(found);
}();

// Calls fn(std::type_identity<Step>{}) for the step of this number.
template <class Fn>
void visit(SamplerStep step, Fn&& fn) {
  SamplerSteps::each([&]<class S>(std::type_identity<S> type) {
    if (kStep<S> == step) fn(type);
  });
}

// Calls fn(part, parameter) for all parameters, in the order of --help.
template <class Settings, class Fn>
void each_parameter(Settings& settings, Fn&& fn) {
  SamplerParts::each_in_help([&]<class P>(std::type_identity<P>) {
    using Part = std::conditional_t<std::is_const_v<Settings>, const P, P>;
    std::apply([&](const auto&... p) { (fn(static_cast<Part&>(settings), p), ...); },
               P::parameters());
  });
}

inline StepKind kind_of(SamplerStep step) {
  StepKind kind{};
  visit(step, [&]<class S>(std::type_identity<S>) { kind = S::kKind; });
  return kind;
}
inline const char* name_of(SamplerStep step) {
  const char* name = "";
  visit(step, [&]<class S>(std::type_identity<S>) { name = S::kName; });
  return name;
}
inline std::vector<SamplerStep> all_sampler_steps() {
  std::vector<SamplerStep> all;
  for (int i = 0; i < SamplerSteps::kCount; ++i) all.push_back(SamplerStep(i));
  return all;
}

}  // namespace chaski
