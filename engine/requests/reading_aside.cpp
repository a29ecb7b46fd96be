#include "engine/requests/reading_aside.h"

#include <algorithm>
#include <memory>

#include "engine/session/session.h"

namespace chaski {

bool read_aside(Inbox& inbox, const TextAside& text, const std::atomic<bool>& gone,
                const std::function<void(const Pass& pass, size_t at, size_t n)>& take) {
  std::unique_ptr<Session> session;  // begins and ends in the thread of the passes
  size_t at = 0;
  const auto read_portion = [&](Engine& engine, size_t allowed) -> Inbox::Portion {
    const size_t n = std::min({text.most, allowed, text.tokens.size() - at});
    if (!session) session = engine.session();
    const Extension extension{.session = session.get(),
                              .tokens = text.tokens.subspan(at, n),
                              .wanted = text.every_row ? int(n) : 1};
    Pass pass({&extension, 1}, text.result);
    if (gone || !pass.run(&gone)) return {.tokens = 0, .last = true};
    take(pass, at, n);
    at += n;
    return {.tokens = int(n), .last = at == text.tokens.size()};
  };
  inbox.read(
      [&](Engine& engine, int allowed) {
        try {
          const Inbox::Portion portion = read_portion(engine, size_t(allowed));
          if (portion.last) session.reset();
          return portion;
        } catch (...) {
          session.reset();
          throw;
        }
      },
      gone);
  return at == text.tokens.size();
}

}  // namespace chaski
