// What the tests of downloads share: files, and the answers of a server that has them.
#pragma once
#include "ggml-like-tensor/base/sha256.h"
#include "tests/kit/program.h"
#include "tests/kit/server.h"

namespace chaski::test {

inline std::string sum_of(const std::string& text) {
  chaski::Sha256 hash;
  hash.add(std::as_bytes(std::span(text)));
  return hash.finish();
}

// Pseudo-random bytes that begin like a GGUF file.
inline std::string some_bytes(size_t size, unsigned seed = 1) {
  std::string bytes(size, '\0');
  for (char& c : bytes) c = char((seed = seed * 1664525 + 1013904223) >> 24);
  return bytes.replace(0, 4, "GGUF");
}

inline std::string reply(const std::string& status, const std::string& fields,
                         const std::string& body) {
  return "HTTP/1.1 " + status +
         "\r\nConnection: close\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" +
         fields + "\r\n" + body;
}

inline size_t first_byte_asked(const std::string& head) {
  const size_t at = head.find("Range: bytes=");
  return at == std::string::npos ? 0 : size_t(std::stoul(head.substr(at + 13)));
}

// A file as a server sends it, with ranges and an entity tag.
inline std::string reply_with(const std::string& file, const std::string& head,
                              const std::string& version = "\"one\"") {
  const size_t from = first_byte_asked(head);
  const bool rest = from > 0 && from < file.size() && contains(head, "If-Range: " + version);
  if (!rest) return reply("200 OK", "ETag: " + version + "\r\n", file);
  return reply("206 Partial Content",
               "ETag: " + version + "\r\nContent-Range: bytes " + std::to_string(from) + "-" +
                   std::to_string(file.size() - 1) + "/" + std::to_string(file.size()) + "\r\n",
               file.substr(from));
}

// The answer with only the first `kept` bytes of its body.
inline std::string cut(const std::string& reply, size_t kept) {
  return reply.substr(0, reply.find("\r\n\r\n") + 4 + kept);
}

struct Shelf {
  TempFolder tmp;
  std::string folder = tmp / "models";
  Shelf() {
    setenv("CHASKI_MODELS", folder.c_str(), 1), setenv("HOME", tmp.path.c_str(), 1);
    setenv("XDG_CACHE_HOME", (tmp / "cache").c_str(), 1);
    setenv("CHASKI_HUB", "none", 1);
    for (const char* name : {"HF_HOME", "OLLAMA_MODELS"}) unsetenv(name);
  }
  std::string operator/(const std::string& name) const { return folder + "/" + name; }
};

}  // namespace chaski::test
