// How much memory this process can still get before the system refuses, or kills it.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace chaski {

// Bytes of new memory: the least of available_pages() and what the limits of the process (ulimit
// -v, -d) leave. Nothing where none of it can be read. `root` stands in front of /proc and /sys,
// for tests.
std::optional<uint64_t> available_memory(const std::string& root = "");

// Bytes that can still be written to in addresses that this process has already: what the machine
// and the control groups (version 1 or 2) leave. Nothing where neither can be read.
std::optional<uint64_t> available_pages(const std::string& root = "");

// Bytes of memory that this process holds, pages of mapped files among them; 0 where that cannot be
// read.
uint64_t resident_memory();

// Bytes of addresses that ulimit -v leaves; nothing where there is no limit.
std::optional<uint64_t> available_addresses(const std::string& root = "");

}  // namespace chaski
