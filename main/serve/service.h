// The server: its sockets, its model, and what it does with a request.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "main/api/routes.h"
#include "main/serve/gate.h"
#include "main/serve/http.h"
#include "main/serve/models.h"

namespace chaski {

struct ServiceOptions {
  HttpOptions http;
  Gate::Options gate;
  int most_running = 16, most_waiting = 256;  // requests
  int most_tokens = -1;                       // of one answer
  bool move_dates = false;                    // main/api/changing_lines.h
  std::string cache_folder;                   // --cache; empty: none
  uint64_t cache_bytes = 0;                   // most bytes of its files
  std::string store_folder;                   // --store; empty: none
  uint64_t store_bytes = 0;                   // most bytes of its files
  bool log = true, log_prompts = false;
  ModelsOptions models;
};

class Service {
 public:
  // Reads the headers of the models, then begins to listen. Throws what Models, HttpServer and Gate
  // throw.
  Service(const ServiceOptions& options, std::vector<NamedModel> models);
  ~Service();
  Service(const Service&) = delete;

  const std::vector<std::string>& addresses() const;
  // Opens the models of these names, one after the other, while it already answers /health, then
  // answers requests until `stop_descriptor` is readable and all answers are written. `on_ready` is
  // called once they are open, by the thread that waited for them, with the first one, or null if
  // there are no names. Throws the error of a model that cannot be opened.
  void run(const std::vector<std::string>& names, int stop_descriptor,
           const std::function<void(const ServedModel* served)>& on_ready);
  void stop();  // ends run(); any thread may call it
  // False if an open model cannot keep files in the folder of --cache.
  bool cache_is_usable() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace chaski
