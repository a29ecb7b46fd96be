#include "main/terminal/progress.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <system_error>

#include "engine/session/engine.h"
#include "main/terminal/output.h"

namespace chaski {

namespace {

constexpr int kBarWidth = 24, kNameWidth = 24;
constexpr auto kInterval = std::chrono::milliseconds(100);
// The line of a prompt appears after kDelay.
constexpr auto kDelay = std::chrono::milliseconds(500), kRedrawn = std::chrono::milliseconds(250);

std::string clock_text(double seconds) {
  const auto whole = int64_t(std::min(seconds, 359999.0) + 0.5);
  if (whole >= 3600)
    return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

void draw(const std::string& text) {
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace

ProgressBar::ProgressBar(ProgressScale scale)
    : scale_(std::move(scale)), enabled_(stderr_is_terminal() && !is_quiet()) {}

ProgressBar::~ProgressBar() {
  if (shown_) draw("\r\033[K");
}

void ProgressBar::show(const FileProgress& progress) {
  const auto now = Clock::now();
  if (!enabled_ || (shown_ && now - last_ < kInterval)) return;
  if (!shown_) started_ = now, before_ = progress.done;  // earlier work is not part of the speed
  shown_ = true;
  last_ = now;
  draw("\r" + line(progress) + "\033[K");
}

std::string ProgressBar::line(const FileProgress& progress) const {
  const double share = progress.total > 0 ? double(progress.done) / double(progress.total) : 0;
  const double seconds = std::chrono::duration<double>(last_ - started_).count();
  const int full = int(share * kBarWidth);
  std::string text =
      fmt::format("[{:#<{}}{:.<{}}] {:3.0f}%", "", full, "", kBarWidth - full, 100 * share);
  const double gained =
      progress.total > 0 ? double(progress.done - before_) / double(progress.total) : 0;
  // Earlier estimates are useless; after two seconds any estimate is better than none.
  if ((gained > 0.01 && seconds > 0.3) || (gained > 0 && seconds > 2))
    text += fmt::format("  {:.3g} {}/s  {} left", scale_.amount * gained / seconds, scale_.unit,
                        clock_text(seconds * (1 - share) / gained));
  text += "  " + escaped(progress.tensor).substr(0, kNameWidth);
  // A line as wide as the terminal would wrap, and each update would add one.
  return text.substr(0, size_t(std::max(terminal_width(2) - 1, 1)));
}

ReadingLine::ReadingLine(bool wanted)
    : enabled_(wanted && stderr_is_terminal() && !is_quiet() && terminal_obeys() &&
               !(stdout_is_terminal() && line_is_open())) {}

ReadingLine::~ReadingLine() { end(); }

void ReadingLine::show(int known, int all) {
  if (!enabled_) return;
  if (known >= all) return end();
  {
    const std::lock_guard lock(mutex_);
    updated_ = Clock::now(), known_ = known, all_ = all;
    if (first_ < 0) began_ = updated_, first_ = known;
  }
  if (drawing_.joinable()) return;
  try {
    drawing_ = std::thread([this] { draw_repeatedly(); });
  } catch (const std::system_error&) {
    enabled_ = false;  // continues without the line
  }
}

void ReadingLine::end() {
  enabled_ = false;
  if (!drawing_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  over_.notify_one();
  drawing_.join();
}

void ReadingLine::draw_repeatedly() {
  const auto is_over = [this] { return is_over_; };
  std::unique_lock lock(mutex_);
  if (over_.wait_for(lock, kDelay, is_over)) return;
  do draw("\r" + dimmed(line()) + "\033[K");
  while (!over_.wait_for(lock, kRedrawn, is_over));
  draw("\r\033[K");
}

std::string ReadingLine::line() const {
  std::string text = fmt::format("reading {} of {} tokens", known_, all_);
  if (known_ == first_) return text;  // no speed is known yet
  const auto seconds = [](Clock::duration d) { return std::chrono::duration<double>(d).count(); };
  const double left = seconds(updated_ - began_) * (all_ - known_) / (known_ - first_) -
                      seconds(Clock::now() - updated_);
  return text + (left < 100 ? fmt::format(", {:.0f} s left", std::max(left, 1.0))
                            : fmt::format(", {} left", clock_text(left)));
}

}  // namespace chaski
