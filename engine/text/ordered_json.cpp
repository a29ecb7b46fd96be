#include "engine/text/ordered_json.h"

namespace chaski {

OrderedJson parsed_json(std::string_view text) { return OrderedJson::parse(text); }
OrderedJson maybe_json(std::string_view text) { return OrderedJson::parse(text, nullptr, false); }

std::string written(const OrderedJson& json, int indent) {
  return json.dump(indent, ' ', false, OrderedJson::error_handler_t::replace);
}
std::string written_exactly(const OrderedJson& json, int indent) { return json.dump(indent); }

}  // namespace chaski
