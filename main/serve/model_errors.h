// Errors of opening a model, and the responses that requests for it get.
#pragma once
#include <exception>
#include <string>

#include "engine/session/engine.h"  // for Error

namespace chaski {

// Thrown through a model that is being opened when the server is to stop.
struct OpenAbandoned : std::exception {
  const char* what() const noexcept override { return "the server is being stopped"; }
};

// The model alone needs more memory than all models may have.
struct ModelTooLarge : Error {
  using Error::Error;
};

// The ApiError of the requests that waited for the model `name` in the file or folder `path`.
std::exception_ptr as_api_error(const std::string& name, const std::string& path,
                                const std::exception_ptr& error);
std::string text_of_error(const std::exception_ptr& error);

}  // namespace chaski
