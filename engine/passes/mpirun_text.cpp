#include "engine/passes/mpirun_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <utility>

#include "engine/passes/link.h"

namespace chaski {

namespace {

// An error of a rank explains what ends within this time.
constexpr std::chrono::seconds kExplains{10};
constexpr char kSign = '\x1e';  // begins a sign of a rank, also in the middle of a line

// mpirun begins and ends a message with a line of dashes.
bool is_frame(std::string_view line) {
  return line.size() > 40 && line.find_first_not_of("-\r") == line.npos;
}
// "[host:123] PMIX ERROR: ..." is written without a frame.
bool is_note(std::string_view line) {
  const size_t colon = line.find(':'), end = line.find(']');
  return line.starts_with('[') && colon < end && end != line.npos &&
         std::all_of(line.begin() + ptrdiff_t(colon) + 1, line.begin() + ptrdiff_t(end),
                     [](unsigned char c) { return std::isdigit(c); });
}

std::string one_line(std::string_view text) {
  std::string line;
  for (const char c : text)
    if (!std::isspace(static_cast<unsigned char>(c)))
      line += c;
    else if (!line.empty() && line.back() != ' ')
      line += ' ';
  return line;
}

// The word after `before`, or an empty text.
std::string word_after(std::string_view text, std::string_view before) {
  const size_t at = text.find(before);
  if (at == text.npos) return "";
  text.remove_prefix(at + before.size());
  return std::string(text.substr(0, text.find_first_of(" .,\n")));
}

}  // namespace

std::string RankSign::text() const {
  return fmt::format("{}{} {} {}\n", kSign, rank, int(is_last), host);
}

void MpirunText::take_sign(std::string_view sign) {
  int numbers[2] = {};
  for (int& n : numbers) {
    const size_t size = std::min(sign.find(' '), sign.size());
    std::from_chars(sign.data(), sign.data() + size, n);
    sign.remove_prefix(std::min(size + 1, sign.size()));
  }
  if (numbers[1])
    ranks_.erase(numbers[0]), ended_.insert(numbers[0]);
  else
    ranks_[numbers[0]] = {std::string(sign), Clock::now()};
}

std::string MpirunText::rest() const { return line_.substr(0, line_.find(kSign)); }

void MpirunText::forgive() {
  for (auto& [rank, of] : ranks_) of.last = Clock::now();
}

std::string MpirunText::take(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    line_ += c;
    if (c != '\n') continue;
    const std::string line = std::exchange(line_, "");
    const std::string_view text(line.data(), line.size() - 1);
    if (const size_t sign = text.find(kSign); sign != text.npos) {
      take_sign(text.substr(sign + 1));
      line_ = line.substr(0, sign);
      continue;
    }
    if (is_frame(text)) {
      in_message_ = !in_message_;
      if (in_message_) messages_.emplace_back();
    } else if (in_message_) {
      messages_.back() += line;
    } else if (is_note(text)) {
      messages_.push_back(line);
    } else {
      const bool error = text.starts_with("chaski: error: "),
                 lost = error && Link::is_about_lost_rank(text);
      if (error) error_ = Clock::now();
      if (!lost || !lost_) out += line;  // one rank is the first to miss another one
      lost_ = lost_ || lost;
    }
  }
  return out;
}

std::string MpirunText::late() {
  if (lost_) return "";
  const auto now = Clock::now();
  for (const auto& [rank, of] : ranks_)
    if (now - of.last > std::chrono::duration<double>(kSilence)) {
      lost_ = true;
      return Link::silence_of(fmt::format("{} (rank {})", of.host, rank), kSilence);
    }
  return "";
}

std::string MpirunText::reason() const {
  if (lost_ || (error_ && Clock::now() - *error_ < kExplains)) return "";
  for (const std::string& message : messages_) {
    const std::string text = one_line(message);
    const std::string host = word_after(text, "on node "), signal = word_after(text, "on signal ");
    if (!host.empty() && !signal.empty())
      return fmt::format("{} (rank {}) was ended by signal {}", host, word_after(text, "rank "),
                         signal);
    // "Process name: [[11547,1],0] Exit code: 5"
    if (const std::string code = word_after(text, "Exit code: "); !code.empty()) {
      const int rank = std::atoi(word_after(text, "],").c_str());
      if (ended_.count(rank) > 0) return "";  // the status of the command
      const auto of = ranks_.find(rank);
      return fmt::format("{} (rank {}) ended with status {}",
                         of == ranks_.end() ? "a machine" : of->second.host, rank, code);
    }
    if (text.find("lost communication") != text.npos) {
      const std::string other =
          word_after(text.substr(std::min(text.find("Remote"), text.size())), "on node ");
      return fmt::format("mpirun has lost the connection to {}", other.empty() ? host : other);
    }
  }
  if (messages_.empty()) return "";
  const std::string first = one_line(messages_[0]);
  return "mpirun: " + first.substr(0, first.find(". "));
}

}  // namespace chaski
