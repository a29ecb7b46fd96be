// GET /openapi.json: a description of all endpoints by OpenAPI 3.1.
#pragma once
#include "main/api/routes.h"

namespace chaski {

// The document: openapi.json of this folder, the parameters of the sampler with their bounds, and
// for each route the errors of its dialect. Made at the first call. Thread-safe.
const OrderedJson& openapi_document();

}  // namespace chaski
