// Whole pages of the prefix index (prefix_index.h) as bytes, so that a file can hold them and
// another process can continue from them. Pages are numbered from the beginning of a text. Only the
// thread that makes the passes of the engine may call these, between two passes.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "engine/session/engine.h"

namespace chaski {

// Whether the engine has a prefix index, and all states are on the host.
bool has_kept_pages(const Engine& engine);
// The bytes of a page in all pools of keys and values, at least 1.
size_t kept_page_bytes(const Engine& engine);
// The bytes of all recurrent states of a sequence; 0: there are none.
size_t kept_state_bytes(const Engine& engine);
// The last of the pages [0, end) of `text` with recurrent states in the index; -1: there is none.
int last_state_page(Engine& engine, std::span<const TokenId> text, int end);

// The first of the pages [0, end) of `text` that the index does not have whole; `end` if it has
// all. A window may have dropped its part of an early page, which is then not whole. With recurrent
// states: the page after last_state_page(), where a session would begin to read.
int first_missing_page(Engine& engine, std::span<const TokenId> text, int end);

// Copies pages [first, end) of `text`, one string each, as far as the index has them. A part that a
// window has dropped is left out. Recurrent states are copied with the last page of `text` only; if
// the index has none there, the page is left out.
std::vector<std::string> copy_pages(Engine& engine, std::span<const TokenId> text, int first,
                                    int end);

// Adds pages of `text` to the index, from page `first` on, which copy_pages() of the same model
// made. Takes memory as reading the tokens would: idle pages make room, used ones do not. Returns
// how many it added or found there; fewer than given if memory does not suffice. Throws
// Error(bad_file) if a page has another size; `name` names its file.
int put_pages(Engine& engine, std::span<const TokenId> text, int first,
              std::span<const std::span<const std::byte>> pages, const std::string& name);

}  // namespace chaski
