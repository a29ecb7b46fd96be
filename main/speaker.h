// The model that run and chat speak with: opened as the flags say, with a session of its own, and
// whoever guesses ahead as --draft says.
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
  Governor governor;
  GenerateOptions options;

  explicit Speaker(const GenerationFlags& flags);
  Speaker(const Speaker&) = delete;  // options point into it
};

}  // namespace chaski
