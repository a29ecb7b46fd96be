// Whether kv_write has stored a key or value that its format cannot hold. Only f8 has such a limit:
// it stores larger numbers as 448. A device does not report it.
#pragma once

namespace chaski {

bool kv_saturated();  // since the program started

}  // namespace chaski
