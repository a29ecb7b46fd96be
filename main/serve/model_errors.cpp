#include "main/serve/model_errors.h"

#include <fmt/format.h>

#include <filesystem>
#include <new>

#include "main/api/api_error.h"

namespace chaski {

std::exception_ptr as_api_error(const std::string& name, const std::string& path,
                                const std::exception_ptr& error) {
  const auto cannot = [&](int status, const char* code, const std::string& why) {
    return std::make_exception_ptr(
        ApiError(status, "server_error", code,
                 fmt::format("the model {} cannot be loaded: {}", name, why), "model"));
  };
  try {
    std::rethrow_exception(error);
  } catch (const ModelTooLarge& e) {
    return std::make_exception_ptr(
        ApiError(400, "invalid_request_error", "model_too_large", e.what(), "model"));
  } catch (const Error& e) {
    if (e.code == Exit::memory) return cannot(503, "out_of_memory", e.what());
    std::error_code none;
    // What was opened at the start may be moved or deleted, or its disk may be away, for a while.
    if (!path.empty() && !std::filesystem::exists(path, none))
      return cannot(503, "model_file_missing", path + " is not there any more");
    return cannot(500, "model_load_failed", e.what());
  } catch (const OpenAbandoned& e) {
    return std::make_exception_ptr(ApiError(503, "unavailable_error", "stopping", e.what()));
  } catch (const std::bad_alloc&) {
    return cannot(503, "out_of_memory", "no memory is left");
  } catch (...) {
    return error;
  }
}

std::string text_of_error(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  }
}

}  // namespace chaski
