#include "engine/grammar/schema/json_formats.h"

#include <fmt/format.h>

#include <iterator>

namespace chaski::json_schema {

namespace {

// A year that is not 0, then a day that the month has.
std::string date() {
  return "(?:(?:\\d{3}[1-9]|\\d\\d[1-9]0|\\d[1-9]00|[1-9]000)-"
         "(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1\\d|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|"
         "(?:0[13578]|1[02])-31)|"
         "(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)-02-29)";
}

// Without leap seconds, because many programs refuse them.
std::string time() {
  return "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]"
         "\\d)";
}

std::string date_time() { return date() + "T" + time(); }

// RFC 3339, appendix A.
std::string duration() {
  const std::string n = "\\d{1,6}", day = n + "D", month = n + "M(?:" + day + ")?",
                    year = n + "Y(?:" + month + ")?", minute = n + "M(?:" + n + "S)?",
                    hour = n + "H(?:" + minute + ")?",
                    time = "T(?:" + hour + "|" + minute + "|" + n + "S)";
  return "P(?:" + n + "W|" + time + "|(?:" + year + "|" + month + "|" + day + ")(?:" + time + ")?)";
}

std::string uuid() {
  return "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}";
}

std::string ipv4() {
  const std::string byte = "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)";
  return "(?:" + byte + "\\.){3}" + byte;
}

// RFC 4291: eight groups, or fewer with one "::" for at least one group of zeros. The
// last two groups may be an IPv4 address.
std::string ipv6() {
  const std::string group = "[0-9A-Fa-f]{1,4}";
  const auto groups = [&](int most, bool v4) {  // up to `most`, joined by ":"
    const std::string tail = v4 ? ipv4() : group;
    const int before = v4 ? most - 2 : most - 1;
    return fmt::format("(?:(?:{}:){{0,{}}}{})", group, before, tail);
  };
  std::string all = fmt::format("(?:{0}:){{7}}{0}|(?:{0}:){{6}}{1}", group, ipv4());
  for (int left = 0; left <= 7; ++left) {
    const std::string begin =
        left == 0 ? "::" : fmt::format("{0}(?::{0}){{{1}}}::", group, left - 1);
    std::string ends;
    if (left < 7) ends = groups(7 - left, false);
    if (left < 6) ends += "|" + groups(7 - left, true);
    all += "|" + begin + (ends.empty() ? "" : "(?:" + ends + ")?");
  }
  return all;
}

// RFC 1123: labels of up to 63 letters, digits and hyphens, at most 253 characters. The third and
// fourth character are not both hyphens, which is reserved for names beyond ASCII. To limit the
// whole name, it has up to 4 labels of any length, or up to 8 of up to 30.
std::string host(int least) {
  const auto label = [](int most) {
    const std::string x = "[0-9A-Za-z]", h = "[0-9A-Za-z-]";
    // One to three characters; or a third or fourth that is not a hyphen, then any.
    return fmt::format(
        "(?:{0}|{0}{1}?{0}|{0}{1}(?:{0}{1}|-{0}){1}{{0,{2}}}{0}|{0}{1}-{0}|"
        "{0}{1}{0}{0})",
        x, h, most - 5);
  };
  return fmt::format("(?:(?:{0}\\.){{{2},3}}{1}|(?:{3}\\.){{{2},7}}{3})", label(63), label(61),
                     least - 1, label(30));
}

std::string hostname() { return host(1); }

// RFC 5321 without quoted names and addresses in brackets. The name has up to 64 characters and the
// domain at least two labels.
std::string email() {
  const std::string x = "[0-9A-Za-z!#$%&'*+/=?^_`{|}~-]";
  return fmt::format("(?:{0}{{1,64}}|{0}(?:\\.?{0}){{0,31}})@", x) + host(2);
}

// Characters of a URI that have no meaning of their own, some more, or a percent sign with a code.
std::string uri_chars(std::string_view more, std::string_view times) {
  return fmt::format("(?:[0-9A-Za-z._~!$&'()*+,;=\\-{}]|%[0-9A-Fa-f]{{2}}){}", more, times);
}

// RFC 3986, with a host after "//" except in file:///, and a path that is not empty otherwise.
std::string uri() {
  const std::string authority = "(?:" + uri_chars(":", "*") + "@)?(?:" + uri_chars("", "+") +
                                "|\\[(?:" + ipv6() + ")\\])(?::(?:\\d{1,4}|[1-5]\\d{4}))?",
                    more = uri_chars(":@", "*"), path = "(?:/" + more + ")*",
                    rootless = "/?" + uri_chars(":@", "+") + path;
  return "(?:[A-Za-z][0-9A-Za-z+.-]*:(?://" + authority + path + "|" + rootless + ")|file://(?:/" +
         more + ")+)(?:\\?" + uri_chars(":@/?", "*") + ")?(?:#" + uri_chars(":@/?", "*") + ")?";
}

struct Format {
  std::string_view name;
  std::string (*pattern)();
};
constexpr Format kFormats[] = {{"date", date},         {"time", time},   {"date-time", date_time},
                               {"duration", duration}, {"email", email}, {"hostname", hostname},
                               {"ipv4", ipv4},         {"ipv6", ipv6},   {"uri", uri},
                               {"uuid", uuid}};

}  // namespace

std::optional<std::string> pattern_of_format(std::string_view format) {
  for (const Format& f : kFormats)
    if (f.name == format) return f.pattern();
  return std::nullopt;
}

std::string format_names() {
  std::string names;
  for (const Format& f : kFormats) {
    if (!names.empty()) names += &f + 1 == std::end(kFormats) ? " or " : ", ";
    names += f.name;
  }
  return names;
}

}  // namespace chaski::json_schema
