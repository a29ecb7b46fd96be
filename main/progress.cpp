#include "main/progress.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>

#include "engine/engine.h"
#include "main/output.h"

namespace chaski {

namespace {

constexpr int kBarWidth = 24, kNameWidth = 24;
constexpr auto kInterval = std::chrono::milliseconds(100);

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
  if (!shown_) started_ = now, before_ = progress.done;  // what came before was preparation
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
  if (gained > 0.01 && seconds > 0.3)  // before that, a guess from next to nothing
    text += fmt::format("  {:.3g} {}/s  {} left", scale_.amount * gained / seconds, scale_.unit,
                        clock_text(seconds * (1 - share) / gained));
  return text + "  " + escaped(progress.tensor).substr(0, kNameWidth);
}

}  // namespace chaski
