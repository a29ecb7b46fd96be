// The server: its sockets, its model, and what it does with a request.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "main/api/routes.h"
#include "main/serve/gate.h"
#include "main/serve/http.h"

namespace chaski {

struct ServiceOptions {
  HttpOptions http;
  Gate::Options gate;
  int most_running = 16, most_waiting = 256;  // requests
  int most_tokens = -1;                       // of one answer
  bool any_model = false;                     // any name in a request means the model
  bool move_dates = false;                    // main/api/changing_lines.h
  bool log = true, log_prompts = false;
};

// Opens the model: called once, by a thread of the service. It may call `progress` with a number
// from 0 to 1, which throws if the server is to stop. All fields of the result but `generate` are
// set.
using OpenServedModel =
    std::function<ServedModel(const std::function<void(double done)>& progress)>;

class Service {
 public:
  // Begins to listen. Throws what HttpServer and Gate throw.
  explicit Service(const ServiceOptions& options);
  ~Service();
  Service(const Service&) = delete;

  const std::vector<std::string>& addresses() const;
  // Opens the model while it already answers /health, then answers requests until `stop_descriptor`
  // is readable and all answers are written. `on_ready` is called once the model is open, by the
  // thread that opened it. Throws the error of `open`.
  void run(const OpenServedModel& open, int stop_descriptor,
           const std::function<void(const ServedModel& served)>& on_ready);
  void stop();  // ends run(); any thread may call it

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace chaski
