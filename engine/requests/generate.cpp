#include "engine/requests/generate.h"

namespace chaski {

GenerateResult generate(Session& session, std::span<const TokenId> prompt,
                        const GenerateOptions& options, const Sink& sink) {
  Request request(session.engine(), prompt, options, sink);
  // The prompt is read in several passes too, so that an interrupt loses one pass at most.
  const int budget = session.engine().batch_length();
  std::vector<Draws> draws;
  while (request.goes_on()) {
    const bool decodes = request.begun();
    const Extension extension = request.next(session, budget);
    const auto start = std::chrono::steady_clock::now();
    Pass({&extension, 1}).draw(draws);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    if (request.governor() && decodes && extension.wanted > 0 && !draws[0].abandoned)
      request.governor()->learn_pass(int(extension.size()), 1, int(draws[0].tokens.size()),
                                     took.count());
    request.take(draws[0]);
  }
  return request.finished();
}

}  // namespace chaski
