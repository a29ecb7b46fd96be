// The kinds of drafters that --draft can name. A kind is a constant in the file of its drafter and
// a line in drafters.list.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "engine/drafting/drafter.h"

namespace chaski {

class HeadsFolder;

// Makes a drafter for one text; the drafters share what was opened.
using NewDrafter = std::function<std::unique_ptr<Drafter>(const SamplerOptions&)>;

struct DraftRequest {
  std::string name;  // the value of --draft
  std::shared_ptr<Engine> target;
  int sessions = 1;  // texts at the same time
  // Opens `name` as a model of its own.
  std::function<std::shared_ptr<Engine>()> open_model;
};

struct DrafterKind {
  const char* word;  // the value of --draft; null: a path
  const char* help;  // for the help and errors of --draft
  // The second argument is a look at the folder `name`.
  bool (*takes)(const DraftRequest&, const HeadsFolder&);
  // Throws an Error naming what is wrong with the request.
  NewDrafter (*open)(const DraftRequest&, const HeadsFolder&);
};

std::span<const DrafterKind* const> drafter_kinds();
NewDrafter open_drafter(const DraftRequest& request);

}  // namespace chaski
