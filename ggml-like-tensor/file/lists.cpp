#include "ggml-like-tensor/file/lists.h"

#include <algorithm>

#include "ggml-like-tensor/base/error.h"

namespace chaski {

Texts::Texts(std::initializer_list<std::string_view> all) {
  for (const std::string_view text : all) push_back(text);
}

Texts::Texts(const std::vector<std::string>& all) {
  for (const std::string& text : all) push_back(text);
}

void Texts::reserve(size_t count, size_t bytes) { bytes_.reserve(bytes), ends_.reserve(count); }

void Texts::push_back(std::string_view text) {
  if (text.size() > UINT32_MAX - bytes_.size())
    fail(Exit::bad_file, "the texts of a list have {} bytes, expected less than 4 GiB",
         bytes_.size() + text.size());
  bytes_ += text;
  ends_.push_back(static_cast<uint32_t>(bytes_.size()));
}

namespace {

template <class T, class Wide>
bool holds_all(std::span<const Wide> all) {
  return std::all_of(all.begin(), all.end(), [](Wide number) {
    return static_cast<Wide>(static_cast<T>(number)) == number;
  });
}

}  // namespace

template <class Wide>
Numbers<Wide>::Numbers(std::span<const Wide> all) {
  const auto keep = [&]<class T>(T) {
    bytes_.resize(all.size() * sizeof(T));
    for (size_t i = 0; i < all.size(); ++i) {
      const T number = static_cast<T>(all[i]);
      std::memcpy(bytes_.data() + i * sizeof(T), &number, sizeof(T));
    }
    read_as<T>();
  };
  if constexpr (std::is_floating_point_v<Wide>) {
    holds_all<float>(all) ? keep(float{}) : keep(Wide{});
  } else {
    holds_all<int8_t>(all)    ? keep(int8_t{})
    : holds_all<int32_t>(all) ? keep(int32_t{})
                              : keep(Wide{});
  }
}

template <class Wide>
bool Numbers<Wide>::operator==(const Numbers& other) const {
  return size() == other.size() && std::equal(begin(), end(), other.begin());
}

template class Numbers<int64_t>;
template class Numbers<double>;

}  // namespace chaski
