#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "router/http/json_cursor.h"

namespace baton {

// A field that this server knows but does not do. Ignoring it would change the answer without a
// word, so it is refused by name.
struct RefusedField {
  absl::string_view name;
  absl::string_view reason;  // One sentence: why, and what to do instead.
  // Values beside null, false, "", [] and {} that ask for nothing, as JSON without spaces and with
  // '|' between them.
  absl::string_view harmless;
  bool empty_list_asks = false;  // True if an empty list is not the same as no list.
};

// Returns the entry of `name`, or null if the field is not refused. `chat`: the request is one to
// /v1/chat/completions, and not to /v1/completions. Any thread.
const RefusedField* FindRefusedField(absl::string_view name, bool chat);

// Reads the value of a refused field. Returns InvalidArgument with the field's name and value
// unless the value asks for nothing.
absl::Status ReadRefusedField(const RefusedField& field, JsonCursor* cursor);

}  // namespace baton
