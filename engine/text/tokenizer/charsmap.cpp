#include "engine/text/tokenizer/charsmap.h"

#include <algorithm>
#include <cstring>

#include "engine/text/characters.h"
#include "ggml-like-tensor/base/error.h"

namespace chaski {

namespace {

// The fields of a unit in Darts-clone's double array.
bool has_leaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t value(uint32_t unit) { return unit & 0x7FFFFFFFu; }
uint32_t label(uint32_t unit) { return unit & 0x800000FFu; }
// The maximum number of bytes that a rule reads or writes, because a damaged trie may have cycles
// or very long replacements.
constexpr size_t kLongest = 256;

uint32_t offset(uint32_t unit) { return unit >> 10 << ((unit & 0x200u) >> 6); }

}  // namespace

CharsMap::CharsMap(const Ints& bytes, const std::string& origin) {
  std::string blob;
  for (const int64_t byte : bytes) blob += static_cast<char>(byte);
  uint32_t trie_bytes = 0;
  if (blob.size() >= sizeof trie_bytes) std::memcpy(&trie_bytes, blob.data(), sizeof trie_bytes);
  if (trie_bytes == 0 || trie_bytes % 4 != 0 || trie_bytes > blob.size() - sizeof trie_bytes)
    fail(Exit::bad_file,
         "{}: tokenizer.charsmap has {} bytes and a trie of {} bytes, expected the trie inside",
         origin, blob.size(), trie_bytes);
  trie_.resize(trie_bytes / 4);
  std::memcpy(trie_.data(), blob.data() + sizeof trie_bytes, trie_bytes);
  texts_ = blob.substr(sizeof trie_bytes + trie_bytes);
}

CharsMap::Rule CharsMap::rule_at(std::string_view text) const {
  Rule longest;
  uint32_t node = offset(unit(0));
  for (size_t i = 0; i < std::min(text.size(), kLongest); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    node ^= byte;
    const uint32_t here = unit(node);
    if (byte == 0 || label(here) != byte) break;
    node ^= offset(here);
    if (!has_leaf(here)) continue;
    const size_t at = value(unit(node));
    if (at >= texts_.size()) continue;
    longest = {i + 1, std::string_view(texts_).substr(at, texts_.find('\0', at) - at)};
    if (longest.by.size() > kLongest) longest = {};
  }
  return longest;
}

std::string CharsMap::apply(std::string_view text) const {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Rule rule = rule_at(text.substr(at));
    const size_t size = rule.size > 0 ? rule.size : character_size(text[at]);
    out += rule.size > 0 ? rule.by : text.substr(at, size);
    at += size;
  }
  return valid_utf8(out);  // a rule is arbitrary and may end within a character
}

}  // namespace chaski
