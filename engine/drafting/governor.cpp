#include "engine/drafting/governor.h"

#include <algorithm>

namespace chaski {

namespace {

// How many guesses are remembered: topics of a text change.
constexpr int kMemory = 64;
// What is not known: a token more in a pass costs this share of one, and a guess is right this
// often, another where the first is wrong.
constexpr double kTokenMore = 0.06, kRight = 0.5, kOtherRight = 0.05;
// So many guesses are worth what is assumed of one: a second branch has to have shown more.
constexpr double kDoubt = 1, kOtherDoubt = 8;
// Seconds that the first pass of a new width takes more: a plan is made for it.
constexpr double kNewWidth = 2e-4;
// Of the speed without guesses: below this no failure may bring us. Where asking for guesses alone
// costs nearly as much, below the other, which leaves asking out.
constexpr double kFloor = 0.99, kFloorOfChecks = 0.997;
// Gains below this are not worth the risk.
constexpr double kWorthIt = 1.05;
// A pass without guesses comes again after so many: fewer as long as few were measured.
constexpr int kPlainAgain = 64;
// Places beyond those that seem to pay are looked at in one pass of so many.
constexpr int kFurtherAgain = 32;
// After so many passes without a right guess, one of so many asks for guesses: what a look back has
// to read of the text costs less in portions.
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

// Between those that were measured on a line, and beyond them with the slope that is assumed, or
// the one from the narrowest to the widest of them where that is steeper. More tokens never take
// less.
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

// Of a place that was never reached, what is known of the place before it, or of the same place
// behind the first guess.
double Governor::right(int kind, int first, int place) const {
  const Average& seen = right_[size_t(kind)][size_t(first)][size_t(place)];
  const bool other = first > 0 && place == 0;
  const double doubt = other ? kOtherDoubt : kDoubt,
               assumed = place > 0 ? right(kind, 0, first == 0 ? place - 1 : place)
                         : other   ? kOtherRight
                                   : kRight;
  return (seen.mean * seen.n + assumed * doubt) / (seen.n + doubt);
}

Draft::Shape Governor::shape(int kind, int most, int first, int others, int taken) {
  const int base = 1 + others + taken;
  most = std::min(most, kMost + 1 - base);
  if (kind < 0 || most <= 0) return {};
  const int measured = pass_[size_t(1 + others)].n;
  if (measured < kPlainFirst) return {};
  if (passes_ - plain_at_ > kPlainAgain * std::min(measured, 8) / 8) return {};
  const auto [spent, plain] = spent_and_plain();
  const auto cost = [&](int k) { return pass_seconds(base + k) + k * guess_.value; };
  const auto affordable = [&](int k) {
    const double plan = pass_[size_t(base + k)].n > 0 ? 0 : kNewWidth;
    const double all = spent + cost(k) + plan, asking = asking_.n * asking_.value;
    return plain + pass_seconds(1 + others) >=
           std::min(kFloor * all, kFloorOfChecks * (all - asking));
  };
  // A tree grows by the guess that is most likely to be right, of each first guess the next one;
  // those behind it are likelier no more.
  std::array<double, Draft::kFirst> next{};
  double wrong = 1;  // all first guesses so far
  for (int i = 0; i < std::min(first, Draft::kFirst); ++i) {
    next[size_t(i)] = wrong * right(kind, i, 0);
    wrong -= next[size_t(i)];
  }
  std::array<Draft::Shape, kMost + 1> shapes{};  // by guesses
  double tokens = 1 + others, best = tokens / pass_seconds(base) * kWorthIt;
  int chosen = 0, grown = 0;
  while (grown < most && affordable(grown + 1)) {
    Draft::Shape shape = shapes[size_t(grown)];
    size_t i = 0;
    for (size_t k = 1; k < next.size() && shape[k - 1] > 0; ++k)
      if (next[k] > next[i]) i = k;
    tokens += next[i];
    if (++shape[i] < kMost) next[i] *= right(kind, int(i), shape[i]);
    shapes[size_t(++grown)] = shape;
    if (const double rate = tokens / cost(grown); rate > best) best = rate, chosen = grown;
  }
  if (chosen > 0)
    return shapes[size_t(passes_ % kFurtherAgain == 0 ? std::min(2 * chosen, grown) : chosen)];
  // What once did not pay is tried again, ever more rarely.
  if (passes_ - tried_at_ <= patience_ || grown == 0) return {};
  tried_at_ = passes_, patience_ = std::min(patience_ * 2, 1024);
  return shapes[1];
}

std::pair<double, double> Governor::spent_and_plain() const {
  double spent = asking_.n * asking_.value + double(guesses_) * guess_.value, plain = 0;
  for (const Median& pass : pass_) spent += pass.n * pass.value;
  for (int requests = 1; requests < int(made_.size()); ++requests)
    if (const int64_t made = made_[size_t(requests)])
      plain += double(made) / requests * pass_seconds(requests);
  return {spent, plain};
}

double Governor::speed_up() const {
  const auto [spent, plain] = spent_and_plain();
  return spent > 0 ? plain / (spent + preparing_) : 0;
}

void Governor::learn_pass(int tokens, int requests, int made, double seconds) {
  if (tokens > kMost + 1) return;  // no guesses beside so many
  ++passes_;
  pass_[size_t(tokens)].add(seconds);
  made_[size_t(requests)] += made;
  if (tokens == requests) plain_at_ = passes_;
}

bool Governor::rests() const { return dry_ > kDry && passes_ % kAskAgain != 0; }

void Governor::learn(const Outcome& o) {
  dry_ = o.right > 0 ? 0 : dry_ + 1;
  if (o.preparing)
    preparing_ += o.drafting;
  else if (o.guesses > 0)
    guess_.add(o.drafting / o.guesses), guesses_ += o.guesses;
  else if (o.drafting > 0)
    asking_.add(o.drafting);
  // What is beside a right guess says nothing.
  for (int first = 0; first < Draft::kFirst; ++first) {
    const int right = first == o.which ? o.right : 0;
    for (int i = 0; i < std::min(o.places[size_t(first)], right + 1); ++i)
      right_[size_t(o.kind)][size_t(first)][size_t(i)].add(i < right ? 1 : 0);
    if (right > 0) break;
  }
}

}  // namespace chaski
