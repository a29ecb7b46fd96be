#include "main/commands/answers.h"

#include <algorithm>
#include <map>

#include "engine/requests/scheduler.h"
#include "main/terminal/output.h"
#include "main/terminal/progress.h"
#include "main/terminal/timing.h"

namespace chaski {

namespace {

struct PendingAnswer {
  std::unique_ptr<Drafter> drafter;
  std::unique_ptr<Request> request;
  std::string waiting;  // text that is shown after the answers before it
};

// "; the model ended it", or with numbers: "; the model ended it (2), ended by -n (1)".
std::string why_they_ended(const Answers& answers) {
  std::map<Finish, int> counts;
  for (const GenerateResult& r : answers.results) ++counts[r.finish];
  std::string text;
  for (const auto& [why, n] : counts) {
    text += (text.empty() ? "; " : ", ") + std::string(why_it_ended(why));
    if (counts.size() > 1) text += fmt::format(" ({})", n);
  }
  return text;
}

}  // namespace

Answers answers_to(Speaker& speaker, std::span<const TokenId> prompt, int n,
                   const ShowAnswer& show) {
  const auto start = std::chrono::steady_clock::now();
  ReadingLine reading(speaker.shows_reading);
  Scheduler scheduler(speaker.model->engine());
  std::vector<PendingAnswer> all{size_t(n)};
  size_t shown = 0;  // the answer whose text is shown while it is generated
  for (size_t i = 0; i < all.size(); ++i) {
    GenerateOptions options = speaker.options;
    options.sampling.seed += i;
    all[i].drafter = speaker.model->drafter(options.sampling);
    options.drafter = all[i].drafter.get();
    // One line is enough, because all answers have the same prompt.
    if (i == 0) options.on_read = [&](int known, int of) { reading.show(known, of); };
    options.on_drop = [&, i](int dropped, int before, int after) {
      const std::string line = speaker.drop_line(dropped, before, after);
      if (all[i].request) return put_notice(fmt::format("answer {}: {}", i + 1, line));
      if (i == 0) put_notice(line);
    };
    all[i].request =
        std::make_unique<Request>(speaker.engine(), prompt, options, [&, i](std::string_view part) {
          if (i == shown)
            show(i, part);
          else
            all[i].waiting += part;
        });
    scheduler.add(*all[i].request);
  }
  Answers out;
  const auto show_finished = [&] {
    while (shown < all.size() && !all[shown].request->goes_on()) {
      if (all[shown].request->error) throw *all[shown].request->error;
      out.results.push_back(all[shown].request->finished());
      if (++shown < all.size() && !all[shown].waiting.empty()) show(shown, all[shown].waiting);
    }
  };
  while (scheduler.step()) show_finished();
  show_finished();
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return out;
}

size_t most_probable(const Answers& answers) {
  const auto& all = answers.results;
  return size_t(std::max_element(all.begin(), all.end(),
                                 [](const GenerateResult& a, const GenerateResult& b) {
                                   return a.mean_log_probability < b.mean_log_probability;
                                 }) -
                all.begin());
}

std::string answers_line(const Answers& answers, uint64_t seed, bool all) {
  const GenerateResult& first = answers.results[0];
  size_t tokens = 0;
  int read = 0, drafted = 0, accepted = 0;
  for (const GenerateResult& r : answers.results)
    tokens += r.tokens.size(), read += r.known_tokens - r.cached_tokens, drafted += r.drafted,
        accepted += r.accepted;
  if (first.known_tokens < first.prompt_tokens) return unread_line(first);
  const double decoding = answers.seconds - first.prompt_seconds;
  std::string line =
      fmt::format("{} answers to a prompt of {} ({} read in all), {:.4g} tok/s; {} tokens",
                  answers.results.size(), counted(uint64_t(first.prompt_tokens), "token"), read,
                  first.prompt_rate(), tokens);
  if (decoding > 0) line += fmt::format(", {:.4g} tok/s for all", double(tokens) / decoding);
  if (drafted > 0) line += fmt::format("; {} of {} draft tokens accepted", accepted, drafted);
  if (all && drafted == 0 && first.no_draft != NoDraft::other)
    line += fmt::format("; no draft tokens: {}", why_no_draft(first.no_draft));
  if (drafted > 0 && first.speed_up > 0)
    line += fmt::format(", {:.3g} × the speed without drafting", answers.results.back().speed_up);
  return line + why_they_ended(answers) +
         fmt::format("; seeds {} to {}", seed, seed + answers.results.size() - 1);
}

}  // namespace chaski
