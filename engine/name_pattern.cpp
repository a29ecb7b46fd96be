#include "engine/name_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <new>
#include <string>

#include "ggml-like-tensor/base/error.h"

namespace chaski {

namespace {

std::string said_by_pcre2(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

// Freed by the function of its own.
template <class T>
std::unique_ptr<T, void (*)(T*)> owned(T* it, void (*free)(T*)) {
  if (!it) throw std::bad_alloc();
  return {it, free};
}

}  // namespace

NamePattern::NamePattern(std::string_view pattern) {
  int error;
  size_t place;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   PCRE2_NEVER_BACKSLASH_C, &error, &place, nullptr);
  if (!code && error == PCRE2_ERROR_HEAP_FAILED) throw std::bad_alloc();
  if (!code) fail(Exit::usage, "{} (at byte {})", said_by_pcre2(error), place);
  code_.reset(code, [](void* done) { pcre2_code_free(static_cast<pcre2_code*>(done)); });
}

bool NamePattern::found_in(std::string_view name) const {
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  const auto match =
      owned(pcre2_match_data_create_from_pattern(code, nullptr), pcre2_match_data_free);
  const auto limits = owned(pcre2_match_context_create(nullptr), pcre2_match_context_free);
  pcre2_set_match_limit(limits.get(), 1'000'000);
  const int found = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(name.data()), name.size(), 0, 0,
                                match.get(), limits.get());
  if (found < 0 && found != PCRE2_ERROR_NOMATCH) fail(Exit::usage, "{}", said_by_pcre2(found));
  return found >= 0;
}

}  // namespace chaski
