// Encodes the messages of rank 0: numbers and lists, as they are in memory. All ranks run the same
// build.
#pragma once
#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "engine/passes/rank_stage.h"
#include "ggml-like-tensor/base/cursor.h"

namespace chaski {

template <class T>
void append(std::string& m, T value) {
  static_assert(std::is_trivially_copyable_v<T>);
  m.append(reinterpret_cast<const char*>(&value), sizeof value);
}
template <class T>
void append_list(std::string& m, std::span<const T> list) {
  append(m, uint64_t(list.size()));
  m.append(reinterpret_cast<const char*>(list.data()), list.size_bytes());
}
template <class T>
void append_list(std::string& m, std::span<T> list) {
  append_list(m, std::span<const T>(list));
}
inline void append_text(std::string& m, std::string_view text) {
  append_list(m, std::span<const char>(text));
}

inline std::string message_of(RankMessage kind, int engine) {
  std::string m;
  append(m, uint8_t(kind)), append(m, int32_t(engine));
  return m;
}

inline Cursor cursor_of(const std::string& message) {
  Cursor in("message of rank 0", std::as_bytes(std::span(message)));
  in.seek(sizeof(uint8_t) + sizeof(int32_t), "engine");
  return in;
}
inline RankMessage kind_of(const std::string& message) { return RankMessage(message.at(0)); }
inline int engine_of(const std::string& message) {
  int32_t engine;
  std::memcpy(&engine, message.data() + sizeof(uint8_t), sizeof engine);
  return engine;
}
template <class T>
void take_list(Cursor& in, std::vector<T>& list) {
  static_assert(std::is_trivially_copyable_v<T>);
  const auto n = in.count(in.take<uint64_t>("list"), sizeof(T), "list");
  list.resize(n);
  std::ranges::copy(in.raw(n * sizeof(T), "list"), std::as_writable_bytes(std::span(list)).data());
}

// Appends fields to a message.
struct Put {
  std::string& to;
  void operator()(const std::string& text) const { append_text(to, text); }
  template <class T>
  void operator()(const std::vector<T>& list) const {
    append_list(to, std::span(list));
  }
  template <class T>
  void operator()(const T& value) const {
    append(to, value);
  }
};
// Reads them in the same order.
struct Take {
  Cursor& from;
  void operator()(std::string& text) const { text = from.text("text"); }
  template <class T>
  void operator()(std::vector<T>& list) const {
    take_list(from, list);
  }
  template <class T>
  void operator()(T& value) const {
    static_assert(std::is_trivially_copyable_v<T>);
    std::memcpy(&value, from.raw(sizeof value, "field").data(), sizeof value);
  }
};

}  // namespace chaski
