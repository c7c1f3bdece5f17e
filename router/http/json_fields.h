#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/base/types.h"
#include "router/http/json_cursor.h"

// Read the fields of a request's body. A value of another type is refused with BadParameter(),
// which names the field, the value and what the field takes: "n is \"2\"; it takes integers from 1
// to 64". The functions set their output only on success. Any thread.
namespace baton {

// Reads the object that a body is. Calls `visit` for each member whose value is not null: null
// means that the field is absent. Returns InvalidArgument if the body is no object, and if a key
// occurs twice, because the client can't mean both values.
absl::Status ReadBody(
    absl::string_view body,
    absl::FunctionRef<absl::Status(absl::string_view name, JsonCursor* cursor)> visit);

// Returns BadParameter(): "PATH is VALUE; it takes WANTED".
absl::Status WrongValue(const JsonPath& path, absl::string_view value, absl::string_view wanted);
// The same for the value at the cursor, or the cursor's error if there is no valid value.
absl::Status WrongValue(const JsonPath& path, const JsonCursor& cursor, absl::string_view wanted);

// A member that an object may have.
struct JsonMember {
  absl::string_view name;
  absl::FunctionRef<absl::Status(const JsonPath& path, JsonCursor* cursor)> read;
};
// Reads an object. Hands each of its members to the reader in `members` that has its name. Skips
// null, and members without a reader. Refuses a member of `members` that occurs twice, and a value
// that is no object.
absl::Status ReadMembers(const JsonPath& path, JsonCursor* cursor,
                         std::initializer_list<JsonMember> members);

// Reads true or false. 0, 1, "true" and "false" are refused.
absl::Status ReadFlag(const JsonPath& path, JsonCursor* cursor, bool* value);
// Reads an integer of this range. 3.0 is an integer; true and "3" are not.
absl::Status ReadInteger(const JsonPath& path, JsonCursor* cursor, int64_t min, int64_t max,
                         int64_t* value);
// The same. Hands the integer to `set`.
absl::Status ReadCount(const JsonPath& path, JsonCursor* cursor, int64_t min, int64_t max,
                       absl::FunctionRef<void(int64_t)> set);
// Reads a number that a float can hold, rounded to the nearest float.
absl::Status ReadFloat(const JsonPath& path, JsonCursor* cursor, float* value);
// Reads an integer from -2^63 to 2^64 - 1. A negative one becomes its two's complement.
absl::Status ReadSeed(const JsonPath& path, JsonCursor* cursor, uint64_t* value);
// Reads a string of up to `max_bytes`.
absl::Status ReadText(const JsonPath& path, JsonCursor* cursor, size_t max_bytes,
                      std::string* value);
// Reads a list of up to `max` strings of up to `max_bytes` each.
absl::Status ReadTexts(const JsonPath& path, JsonCursor* cursor, size_t max, size_t max_bytes,
                       std::vector<std::string>* values);
// Reads a list of up to `max` elements, each by `read`. `what` names the elements in messages.
absl::Status ReadList(
    const JsonPath& path, JsonCursor* cursor, absl::string_view what, size_t max,
    absl::FunctionRef<absl::Status(const JsonPath& path, JsonCursor* cursor)> read);
// Reads a list of token ids. Of a longer list than `max`, it keeps only the first `max` ids. Sets
// `count` to the length of the list.
absl::Status ReadTokenIds(const JsonPath& path, JsonCursor* cursor, size_t max,
                          std::vector<TokenId>* ids, size_t* count);

}  // namespace baton
