// What a body of /v1/responses asks for. Uses no model.
#pragma once
#include <functional>
#include <vector>

#include "main/api/openai_parts.h"

namespace chaski {

struct AskedResponse {
  ChatRequest chat;
  std::vector<ChatMessage> kept;  // the messages without `instructions`
  OrderedJson shown;              // the fields of the request that the response repeats
  StreamChoice stream;
  bool store = true;
};

// The messages of the response that "previous_response_id" names.
using EarlierMessages = std::function<std::vector<ChatMessage>(const Field& id)>;
// Throws ApiError.
AskedResponse read_response(const Api& api, const DefaultSettings& defaults, Body& body,
                            const EarlierMessages& earlier);

}  // namespace chaski
