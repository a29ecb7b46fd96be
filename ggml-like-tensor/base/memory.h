// How much memory this process can still get before the system refuses it or kills the process.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace chaski {

// Bytes of new memory: the minimum of available_pages() and of what the limits of the process
// (ulimit -v, -d) leave. Empty if none of these can be read. Tests pass a `root` that is put before
// /proc and /sys.
std::optional<uint64_t> available_memory(const std::string& root = "");

// Bytes that can still be written to in existing addresses of this process: what the machine and
// the control groups (version 1 or 2) leave. Empty if neither can be read.
std::optional<uint64_t> available_pages(const std::string& root = "");

// Bytes of memory that chaski leaves free, because the kernel kills a process whose control group
// is full. The kernel needs some for pages of the program and of mapped weights. It cannot drop
// pages that are being read ahead (up to 8 MB a thread on some disks). Tokens, text and page tables
// are not counted anywhere.
constexpr uint64_t kReservedPages = 16 << 20;
// available_pages() minus kReservedPages.
std::optional<uint64_t> usable_pages();

// "98.4 MB" or "1.06 GB".
std::string size_text(uint64_t bytes);

// Bytes of memory that this process uses, including pages of mapped files; 0 if that cannot be
// read.
uint64_t resident_memory();

// Bytes of address space that ulimit -v leaves; empty if there is no limit.
std::optional<uint64_t> available_addresses(const std::string& root = "");

}  // namespace chaski
