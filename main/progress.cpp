#include "main/progress.h"

#include <fmt/core.h>
#include <utf8proc.h>

#include <algorithm>
#include <cstdio>

#include "engine/engine.h"
#include "main/output.h"

namespace chaski {

namespace {

constexpr int kBarWidth = 24, kNameWidth = 24;  // columns
constexpr auto kInterval = std::chrono::milliseconds(100);

std::string clock_text(double seconds) {
  const auto whole = int64_t(std::min(seconds, 359999.0) + 0.5);
  if (whole >= 3600)
    return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

// As many whole characters of valid UTF-8 as so many columns have room for.
std::string_view beginning_of(std::string_view text, int columns) {
  size_t at = 0;
  while (at < text.size()) {
    utf8proc_int32_t code;
    const auto* from = reinterpret_cast<const utf8proc_uint8_t*>(text.data() + at);
    const auto size = utf8proc_iterate(from, utf8proc_ssize_t(text.size() - at), &code);
    columns -= utf8proc_charwidth(code);
    if (size < 1 || columns < 0) break;
    at += size_t(size);
  }
  return text.substr(0, at);
}

void draw(const std::string& text) {
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace

ProgressBar::ProgressBar(ProgressScale scale)
    : scale_(std::move(scale)), enabled_(stderr_is_terminal()) {}

ProgressBar::~ProgressBar() {
  if (shown_) draw("\r\033[K");
}

void ProgressBar::show(const FileProgress& progress) {
  const auto now = Clock::now();
  if (!enabled_ || (shown_ && now - last_ < kInterval)) return;
  if (!shown_) started_ = now;  // what came before was preparation
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
  if (share > 0.01 && seconds > 0.3)  // before that, a guess from next to nothing
    text += fmt::format("  {:.3g} {}/s  {} left", scale_.amount * share / seconds, scale_.unit,
                        clock_text(seconds / share - seconds));
  const std::string name = escaped(progress.tensor);
  return text.append("  ").append(beginning_of(name, kNameWidth));
}

}  // namespace chaski
