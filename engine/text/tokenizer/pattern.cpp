#define PCRE2_CODE_UNIT_WIDTH 8
#include "engine/text/tokenizer/pattern.h"

#include <pcre2.h>

#include <algorithm>
#include <new>

namespace chaski {

namespace {

[[noreturn]] void refuse(int code, size_t at = 0) {
  if (code == PCRE2_ERROR_HEAP_FAILED || code == PCRE2_ERROR_NOMEMORY) throw std::bad_alloc();
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof text);
  throw PatternError{reinterpret_cast<const char*>(text), at};
}

PCRE2_SPTR units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

}  // namespace

Pattern::Pattern(std::string_view pattern, Of of) {
  const uint32_t characters = PCRE2_UTF | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY;
  int error = 0;
  size_t at = 0;
  pcre2_code* code =
      pcre2_compile(units(pattern), pattern.size(),
                    PCRE2_NEVER_BACKSLASH_C | (of == Of::characters ? characters : PCRE2_NEVER_UTF),
                    &error, &at, nullptr);
  if (!code) refuse(error, at);
  code_.reset(code, [](const pcre2_code* done) { pcre2_code_free(const_cast<pcre2_code*>(done)); });
  // without JIT the interpreter gives the same result more slowly
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
}

PatternSearch::PatternSearch(size_t steps)
    : match_(pcre2_match_data_create(1, nullptr), pcre2_match_data_free),
      limits_(pcre2_match_context_create(nullptr), pcre2_match_context_free) {
  if (!match_ || !limits_) throw std::bad_alloc();
  pcre2_set_match_limit(limits_.get(), static_cast<uint32_t>(std::min<size_t>(steps, UINT32_MAX)));
}

bool PatternSearch::find(const Pattern& pattern, std::string_view text, size_t from,
                         bool empty_elsewhere) {
  const uint32_t options = PCRE2_NO_UTF_CHECK | (empty_elsewhere ? PCRE2_NOTEMPTY_ATSTART : 0);
  const auto run = [&](uint32_t how) {
    return pcre2_match(pattern.code_.get(), units(text), text.size(), from, how, match_.get(),
                       limits_.get());
  };
  int found = run(options);
  if (found == PCRE2_ERROR_JIT_STACKLIMIT) found = run(options | PCRE2_NO_JIT);
  if (found < 0 && found != PCRE2_ERROR_NOMATCH) refuse(found);
  return found >= 0;
}

size_t PatternSearch::begin() const { return pcre2_get_ovector_pointer(match_.get())[0]; }
size_t PatternSearch::end() const { return pcre2_get_ovector_pointer(match_.get())[1]; }

}  // namespace chaski
