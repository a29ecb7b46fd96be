#include "engine/drafting/governor.h"

#include <algorithm>

namespace chaski {

namespace {

// Acceptance rates are averages over about this many drafts, because the topic of a text changes.
constexpr int kMemory = 64;
// Assumed until measured. kTokenMore: the cost of each further token of a pass, as a fraction of a
// pass of one token. kRight: the acceptance rate of a draft token. kOtherRight: the acceptance rate
// of a further alternative for the next token.
// kModelRight: the acceptance rate of a draft model's token.
constexpr double kTokenMore = 0.06, kRight = 0.5, kOtherRight = 0.05, kModelRight = 0.9;
// The weight of an assumed rate, in draft tokens. A second branch needs more evidence.
constexpr double kDoubt = 1, kOtherDoubt = 8, kModelDoubt = 4;
// What it costs a draft model to read first, in draft tokens, until it is measured.
constexpr double kReading = 2;
// After this number of drafts with a token at some place, a draft model may add the next place. A
// wrong token costs it as much as half a pass.
constexpr int kProven = 10;
// Additional seconds of the first pass of a new width, for its plan.
constexpr double kNewWidth = 2e-4;
// The least speed after a rejected draft, as a fraction of the speed without drafts. The second one
// does not count the time of calls without a draft; the lower of the two limits holds.
// kModelFloor: with a draft model, and with the time of the prompt.
constexpr double kFloor = 0.99, kFloorOfChecks = 0.997, kModelFloor = 0.98;
// Smaller gains are not worth the risk.
constexpr double kWorthIt = 1.05;
// Passes until the next one without a draft, which measures the speed again. It is fewer while
// there are few such measurements.
constexpr int kPlainAgain = 64;
// One of this many passes has a draft twice as long as the best one, to measure further nodes.
constexpr int kFurtherAgain = 32;
// After kDry passes without an accepted draft token, the drafter is called in one of kAskAgain
// passes. It is still called, because reading the text in portions costs an n-gram drafter less.
constexpr int kDry = 32, kAskAgain = 4;

}  // namespace

void Governor::Median::add(double x) {
  last[size_t(n++) % last.size()] = x;
  std::array<double, 15> sorted = last;
  const auto end = sorted.begin() + std::min(n, int(last.size()));
  const auto middle = sorted.begin() + (end - sorted.begin()) / 2;
  std::nth_element(sorted.begin(), middle, end);
  value = n < 3 ? *std::min_element(sorted.begin(), end) : *middle;
}

void Governor::Average::add(double x) {
  n = std::min(n + 1, kMemory);
  mean += (x - mean) / n;
}

// Interpolates linearly between measured widths. Beyond them it uses the assumed slope, or the
// slope from the narrowest to the widest measured pass if that is steeper. A wider pass never
// counts as faster.
double Governor::pass_seconds(int tokens) const {
  int below = tokens, above = tokens;
  while (below > 1 && pass_[size_t(below)].n == 0) --below;
  while (above < kMost + 1 && pass_[size_t(above)].n == 0) ++above;
  const double least = pass_[1].value, first = std::max(pass_[size_t(below)].value, least);
  if (below == tokens) return first;
  if (pass_[size_t(above)].n == 0) {
    int narrowest = 1;
    while (narrowest < below && pass_[size_t(narrowest)].n == 0) ++narrowest;
    const double more = first - pass_[size_t(narrowest)].value,
                 seen = below > narrowest ? more / (below - narrowest) : 0;
    return first + (tokens - below) * std::max(kTokenMore * least, seen);
  }
  const double last = std::max(pass_[size_t(above)].value, first);
  return first + (last - first) * (tokens - below) / (above - below);
}

// A node that was never reached is assumed to have the rate of the node before it, or of the same
// depth after the first alternative.
double Governor::right(int kind, int first, int place, bool model) const {
  const Average& seen = right_[size_t(kind)][size_t(first)][size_t(place)];
  const bool other = first > 0 && place == 0;
  const double doubt = other   ? kOtherDoubt
                       : model ? kModelDoubt
                               : kDoubt,
               assumed = place > 0 ? right(kind, 0, first == 0 ? place - 1 : place, model)
                         : other   ? kOtherRight
                         : model   ? kModelRight
                                   : kRight;
  return (seen.mean * seen.n + assumed * doubt) / (seen.n + doubt);
}

Draft::Shape Governor::shape(int kind, int most, int first, int others, int taken,
                             Drafter::Model drafter) {
  const bool model = drafter.cost > 0;
  const int base = 1 + others + taken;
  most = std::min(most, kMost + 1 - base);
  if (kind < 0 || most <= 0) return {};
  const int measured = pass_[size_t(1 + others)].n;
  if (measured < kPlainFirst) return {};
  if (passes_ - plain_at_ > kPlainAgain * std::min(measured, 8) / 8) return {};
  const auto [spent, plain] = spent_and_plain();
  const double guess = guess_.n == 0 ? drafter.cost * pass_seconds(1) : guess_.value;
  const auto cost = [&](int k) { return pass_seconds(base + k) + k * guess; };
  const auto affordable = [&](int k) {
    if (model) {
      const double reading = reading_.n == 0 ? kReading * guess : reading_.value - guess;
      const double all = spent + cost(k) + (drafter.reads_first ? std::max(reading, 0.0) : 0);
      return prompt_ + plain + pass_seconds(1 + others) >= kModelFloor * (prompt_ + all);
    }
    const double plan = pass_[size_t(base + k)].n > 0 ? 0 : kNewWidth;
    const double all = spent + cost(k) + plan, asking = asking_.n * asking_.value;
    return plain + pass_seconds(1 + others) >=
           std::min(kFloor * all, kFloorOfChecks * (all - asking));
  };
  // The tree grows by the node with the highest probability of acceptance, one node of one
  // alternative at a time. Nodes after it cannot be more probable.
  std::array<double, Draft::kFirst> next{};
  double wrong = 1;  // the probability that all alternatives so far are rejected
  for (int i = 0; i < std::min(first, Draft::kFirst); ++i) {
    next[size_t(i)] = wrong * right(kind, i, 0, model);
    wrong -= next[size_t(i)];
  }
  std::array<Draft::Shape, kMost + 1> shapes{};  // by the number of nodes
  double tokens = 1 + others, best = tokens / pass_seconds(base) * (model ? 1 : kWorthIt);
  int chosen = 0, grown = 0;
  while (grown < most && affordable(grown + 1)) {
    Draft::Shape shape = shapes[size_t(grown)];
    size_t i = 0;
    for (size_t k = 1; k < next.size() && shape[k - 1] > 0; ++k)
      if (next[k] > next[i]) i = k;
    if (next[i] <= 0) break;
    tokens += next[i];
    if (++shape[i] < kMost) next[i] *= right(kind, int(i), shape[i], model);
    if (model && right_[size_t(kind)][i][size_t(shape[i] - 1)].n < kProven) next[i] = 0;
    shapes[size_t(++grown)] = shape;
    if (const double rate = tokens / cost(grown); rate > best) best = rate, chosen = grown;
  }
  if (chosen > 0)
    return shapes[size_t(passes_ % kFurtherAgain == 0 ? std::min(2 * chosen, grown) : chosen)];
  // A draft that did not pay is tried again, at growing distances.
  if (passes_ - tried_at_ <= patience_ || grown == 0) return {};
  tried_at_ = passes_, patience_ = std::min(patience_ * 2, 1024);
  return shapes[1];
}

std::pair<double, double> Governor::spent_and_plain() const {
  double spent = asking_.n * asking_.value + double(guesses_) * guess_.value + read_, plain = 0;
  for (const Median& pass : pass_) spent += pass.n * pass.value;
  for (int requests = 1; requests < int(made_.size()); ++requests)
    if (const int64_t made = made_[size_t(requests)])
      plain += double(made) / requests * pass_seconds(requests);
  return {spent, plain};
}

double Governor::speed_up() const {
  const auto [spent, plain] = spent_and_plain();
  return spent > 0 ? plain / spent : 0;
}

void Governor::learn_pass(int tokens, int requests, int made, double seconds) {
  if (tokens > kMost + 1) return;  // such passes have no room for drafts
  ++passes_;
  pass_[size_t(tokens)].add(seconds);
  made_[size_t(requests)] += made;
  if (tokens == requests) plain_at_ = passes_;
}

bool Governor::rests() const { return dry_ > kDry && passes_ % kAskAgain != 0; }

void Governor::learn(const Outcome& o) {
  dry_ = o.right > 0 ? 0 : dry_ + 1;
  if (o.read_first)
    reading_.add(o.drafting), read_ += o.drafting;
  else if (o.guesses > 0)
    guess_.add(o.drafting / o.guesses), guesses_ += o.guesses;
  else if (o.drafting > 0)
    asking_.add(o.drafting);
  // Alternatives after an accepted one say nothing.
  for (int first = 0; first < Draft::kFirst; ++first) {
    const int right = first == o.which ? o.right : 0;
    for (int i = 0; i < std::min(o.places[size_t(first)], right + 1); ++i)
      right_[size_t(o.kind)][size_t(first)][size_t(i)].add(i < right ? 1 : 0);
    if (right > 0) break;
  }
}

}  // namespace chaski
