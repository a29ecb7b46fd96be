#include "engine/loadtest/load_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "ggml-like-tensor/base/atomic_file.h"

namespace chaski {

namespace {

constexpr int kChartWidth = 760, kChartHeight = 560, kPanelHeight = 190, kTicks = 5;
constexpr size_t kMostPoints = 400;  // of a line
constexpr const char *kInk = "#333", *kGrid = "#ddd", *kLine = "#c2571a", *kBad = "#b00020",
                     *kLimit = "#5f7480";

std::string xml(const std::string& text) {
  std::string out;
  for (const char c : text)
    out += c == '<'                              ? "&lt;"
           : c == '>'                            ? "&gt;"
           : c == '&'                            ? "&amp;"
           : static_cast<unsigned char>(c) < ' ' ? " "
                                                 : std::string(1, c);
  return out;
}

// 1, 2 or 5 times a power of ten, so that about kTicks steps reach `most`.
double step_of(double most) {
  const double rough = most / kTicks, power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= rough) return factor * power;
  return 10 * power;
}

// A frame with two axes that begin at 0.
class ChartPanel {
 public:
  ChartPanel(std::string& svg, int left, int top, int width, double most_x, double most_y)
      : svg_(svg), left_(left), top_(top), width_(width) {
    step_x_ = step_of(most_x > 0 ? most_x : 1), step_y_ = step_of(most_y > 0 ? most_y : 1);
    most_x_ = step_x_ * std::ceil(std::max(most_x, step_x_) / step_x_);
    most_y_ = step_y_ * std::ceil(std::max(most_y, step_y_) / step_y_ - 1e-9);
  }

  double x(double value) const { return left_ + width_ * std::min(value / most_x_, 1.0); }
  double y(double value) const {
    return top_ + kPanelHeight * (1 - std::min(value / most_y_, 1.0));
  }

  void frame(const std::string& title, const std::string& name_x) {
    text(left_, top_ - 10, 12, "start", title);
    for (double v = 0; v <= most_x_ * 1.001; v += step_x_) {
      line(x(v), top_, x(v), top_ + kPanelHeight, kGrid);
      text(x(v), top_ + kPanelHeight + 14, 10, "middle", fmt::format("{:.4g}", v));
    }
    for (double v = 0; v <= most_y_ * 1.001; v += step_y_) {
      line(left_, y(v), left_ + width_, y(v), kGrid);
      text(left_ - 5, y(v) + 3, 10, "end", fmt::format("{:.4g}", v));
    }
    text(left_ + width_, top_ + kPanelHeight + 28, 10, "end", name_x);
  }
  void line(double x1, double y1, double x2, double y2, const char* color) {
    add(R"(<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" stroke="{}"/>)", x1, y1, x2, y2,
        color);
  }
  void text(double at_x, double at_y, int size, const char* anchor, const std::string& words) {
    add(R"(<text x="{:.1f}" y="{:.1f}" font-size="{}" text-anchor="{}" fill="{}">{}</text>)", at_x,
        at_y, size, anchor, kInk, xml(words));
  }
  // A limit as a vertical line, if the axis reaches it.
  void mark(double value) {
    if (value > 0 && value <= most_x_) line(x(value), top_, x(value), top_ + kPanelHeight, kLimit);
  }
  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(svg_), format, std::forward<Args>(args)...);
    svg_ += '\n';
  }

 private:
  std::string& svg_;
  int left_, top_, width_;
  double most_x_, most_y_, step_x_, step_y_;
};

// The share of the values that are at most x, in percent over ms. The axis ends at the 99th
// percentile, or at the limit if that is larger, so that one slow value does not flatten the rest.
void put_distribution(std::string& svg, int left, const std::string& title,
                      std::vector<double> values, double limit) {
  for (double& value : values) value *= 1e3;
  limit *= 1e3;
  std::sort(values.begin(), values.end());
  const double most = values.empty() ? 1 : percentile(values, 99);
  ChartPanel panel(svg, left, 80, 320, std::max(most, limit), 100);
  panel.frame(title, "% of the values are at most this many ms");
  panel.mark(limit);
  if (values.empty()) return;
  std::string points;
  const size_t n = values.size(), stride = std::max<size_t>(1, n / kMostPoints);
  for (size_t i = 0; i < n; i += stride)
    points +=
        fmt::format("{:.1f},{:.1f} ", panel.x(values[i]), panel.y(100 * double(i + 1) / double(n)));
  panel.add(R"(<polyline points="{}" fill="none" stroke="{}" stroke-width="1.5"/>)", points, kLine);
}

void put_timeline(std::string& svg, const LoadRun& run, const LoadReport& report,
                  const LoadLimits& limits) {
  ChartPanel panel(svg, 60, 325, 680, run.seconds, 1e3 * std::max(report.first.most, limits.first));
  panel.frame("ms to the first token of each request (red: outside the limits; x: failed)",
              "s after the start, as scheduled");
  if (limits.first > 0) {
    const double y = panel.y(1e3 * limits.first);
    panel.line(60, y, 740, y, kLimit);
  }
  for (const LoadRecord& record : run.records) {
    const double x = panel.x(record.scheduled);
    if (!record.answer.whole())
      panel.add(
          R"(<path d="M{0:.1f} {1:.1f}l6 6m0 -6l-6 6" stroke="{2}"><title>{3}</title></path>)",
          x - 3, panel.y(0) - 9, kBad, xml(record.answer.problem));
    else
      panel.add(R"(<circle cx="{:.1f}" cy="{:.1f}" r="2" fill="{}"/>)", x,
                panel.y(1e3 * record.first()), is_good(record, limits) ? kLine : kBad);
  }
}

}  // namespace

void write_load_chart(const std::string& path, const LoadRun& run, const LoadReport& report,
                      const LoadLimits& limits, const std::string& title) {
  std::string svg = fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{1}" viewBox="0 0 {0} {1}" )"
      R"(font-family="sans-serif">
<rect width="{0}" height="{1}" fill="#fff"/>
<text x="16" y="22" font-size="13" fill="{2}">{3}</text>
<text x="16" y="42" font-size="11" fill="{2}">{4}</text>
)",
      kChartWidth, kChartHeight, kInk, xml(title),
      fmt::format(
          "{} of {} requests answered in {:.1f} s; {:.4g} answer tokens/s; {:.4g} requests/s",
          report.answered, report.requests, report.seconds,
          report.a_second(double(report.answer_total)), report.a_second(report.answered)));
  std::vector<double> first, between;
  for (const LoadRecord& record : run.records) {
    if (!record.answer.whole()) continue;
    first.push_back(record.first());
    const std::vector<double> gaps = gaps_of(record.answer);
    between.insert(between.end(), gaps.begin(), gaps.end());
  }
  put_distribution(svg, 60, "time to first token", std::move(first), limits.first);
  put_distribution(svg, 420, "time between tokens", std::move(between), limits.between);
  put_timeline(svg, run, report, limits);
  svg += "</svg>\n";
  AtomicFile file(path);
  file.write(std::as_bytes(std::span(svg)));
  file.commit();
}

}  // namespace chaski
