// The model that run and chat speak with: opened as the flags say, with a session of its own, and
// the smaller model that guesses ahead if --draft names one.
#pragma once
#include <memory>

#include "engine/drafter.h"
#include "engine/session.h"
#include "main/options.h"

namespace chaski {

struct Speaker {
  std::shared_ptr<Engine> engine;
  std::unique_ptr<Session> session;
  std::unique_ptr<Drafter> drafter;
  GenerateOptions options;

  explicit Speaker(const GenerationFlags& flags);
};

}  // namespace chaski
