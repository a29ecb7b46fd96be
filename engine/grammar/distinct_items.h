// Lists of JSON with uniqueItems: no grammar remembers which items have occurred, so this class
// does. It reads the same bytes as the recognizer, and forbids bytes after which an item equals an
// earlier one of its list, or could only become one.
//
// A list with uniqueItems inside an item of such a list is not supported; schemas refuse it.
#pragma once
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "engine/grammar/recognizer.h"

namespace chaski {

// Equal values of JSON have equal texts: members are sorted, and 1.0 is 1.
std::string text_of_value(const std::string& json);

class DistinctItems {
 public:
  // The place after `bytes`; kNowhere if they are forbidden, and then this object is useless.
  Recognizer::Place read(Recognizer& recognizer, Recognizer::Place place, std::string_view bytes);
  // True if these bytes are certainly not forbidden. False means that read() must tell.
  bool surely_allows(std::string_view bytes) const;

 private:
  struct Used {
    std::set<std::string> texts;   // without white space outside strings
    std::set<std::string> values;  // with sorted members
  };
  bool take(uint8_t byte, bool opens_list);
  bool end_item();
  bool may_become_used() const;  // whether an earlier item begins like this one
  bool is_whole() const;         // whether no byte can make this item another value
  bool is_used() const;
  bool has_future(Recognizer& recognizer, Recognizer::Place place) const;

  std::shared_ptr<const Used> used_;  // null: not in such a list
  std::string item_;                  // so far, without white space outside strings
  int depth_ = 0, list_depth_ = 0;    // open brackets, and those when the list was opened
  bool in_string_ = false, escaped_ = false;
};

}  // namespace chaski
