#include "router/http/json_fields.h"

#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/error_details.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

// Each name of a body takes memory, so their number is limited.
constexpr size_t kMaxFields = 1000;

using JsonKind = JsonCursor::Kind;

// Returns the error for a list of `count` values, of which the field takes up to `max`.
absl::Status TooMany(const JsonPath& path, size_t count, absl::string_view values, size_t max) {
  const std::string name = path.ToString();
  return BadParameter(name,
                      absl::StrCat(name, " has ", count, " ", values, "; it takes up to ", max));
}

absl::Status ReadIdAt(const JsonPath& path, JsonCursor* cursor, TokenId* id) {
  int64_t value = 0;
  constexpr int64_t kMaxId = std::numeric_limits<TokenId>::max();
  RETURN_IF_ERROR(ReadInteger(path, cursor, 0, kMaxId, &value));
  *id = static_cast<TokenId>(value);
  return absl::OkStatus();
}

}  // namespace

absl::Status WrongValue(const JsonPath& path, absl::string_view value, absl::string_view wanted) {
  const std::string name = path.ToString();
  return BadParameter(name, absl::StrCat(name, " is ", value, "; it takes ", wanted));
}

absl::Status WrongValue(const JsonPath& path, const JsonCursor& cursor, absl::string_view wanted) {
  JsonCursor ahead = cursor;
  RETURN_IF_ERROR(ahead.Skip());
  return WrongValue(path, JsonCursor(cursor).Describe(), wanted);
}

absl::Status ReadBody(
    absl::string_view body,
    absl::FunctionRef<absl::Status(absl::string_view name, JsonCursor* cursor)> visit) {
  JsonCursor cursor(body);
  RETURN_IF_ERROR(cursor.CheckUtf8());
  if (cursor.Peek() == JsonKind::kNothing && cursor.ReadEnd().ok()) {
    return absl::InvalidArgumentError("the body is empty; it has to be a JSON object");
  }
  if (cursor.Peek() != JsonKind::kObject) {
    const std::string described = cursor.Describe();
    // A text that is no JSON at all gets the error that says so.
    RETURN_IF_ERROR(cursor.Skip());
    return absl::InvalidArgumentError(
        absl::StrCat("the body is ", described, "; it has to be a JSON object"));
  }
  absl::flat_hash_set<std::string> names;
  RETURN_IF_ERROR(cursor.ReadObject([&](absl::string_view name) {
    if (!names.insert(std::string(name)).second) {
      const JsonPath path = {.key = name};
      return BadParameter(path.ToString(), absl::StrCat(path.ToString(), " occurs twice"));
    }
    if (names.size() > kMaxFields) {
      return absl::InvalidArgumentError(
          absl::StrCat("the body has more than ", kMaxFields, " fields"));
    }
    if (cursor.Peek() == JsonKind::kNull) return cursor.ReadNull();
    return visit(name, &cursor);
  }));
  return cursor.ReadEnd();
}

absl::Status ReadMembers(const JsonPath& path, JsonCursor* cursor,
                         std::initializer_list<JsonMember> members) {
  if (cursor->Peek() != JsonKind::kObject) return WrongValue(path, *cursor, "an object");
  uint64_t seen = 0;  // A bit for each element of `members`.
  return cursor->ReadObject([&](absl::string_view key) {
    uint64_t bit = 1;
    for (const JsonMember& member : members) {
      if (member.name == key) {
        const JsonPath of_member = {.parent = &path, .key = key};
        if ((seen & bit) != 0) {
          const std::string name = of_member.ToString();
          return BadParameter(name, absl::StrCat(name, " occurs twice"));
        }
        seen |= bit;
        if (cursor->Peek() == JsonKind::kNull) return cursor->ReadNull();
        return member.read(of_member, cursor);
      }
      bit <<= 1;
    }
    return cursor->Skip();
  });
}

absl::Status ReadFlag(const JsonPath& path, JsonCursor* cursor, bool* value) {
  if (cursor->Peek() == JsonKind::kBool) return cursor->ReadBool(value);
  return WrongValue(path, *cursor, "true or false");
}

absl::Status ReadInteger(const JsonPath& path, JsonCursor* cursor, int64_t min, int64_t max,
                         int64_t* value) {
  const auto wrong = [&](const JsonCursor& at) {
    return WrongValue(path, at, absl::StrCat("integers from ", min, " to ", max));
  };
  if (cursor->Peek() != JsonKind::kNumber) return wrong(*cursor);
  JsonCursor::Number number;
  const JsonCursor before = *cursor;
  RETURN_IF_ERROR(cursor->ReadNumber(&number));
  const std::optional<int64_t> integer = number.Int();
  if (!integer || *integer < min || *integer > max) return wrong(before);
  *value = *integer;
  return absl::OkStatus();
}

absl::Status ReadCount(const JsonPath& path, JsonCursor* cursor, int64_t min, int64_t max,
                       absl::FunctionRef<void(int64_t)> set) {
  int64_t value = 0;
  RETURN_IF_ERROR(ReadInteger(path, cursor, min, max, &value));
  set(value);
  return absl::OkStatus();
}

absl::Status ReadFloat(const JsonPath& path, JsonCursor* cursor, float* value) {
  if (cursor->Peek() != JsonKind::kNumber) {
    return WrongValue(path, *cursor, "a number");
  }
  JsonCursor::Number number;
  const JsonCursor before = *cursor;
  RETURN_IF_ERROR(cursor->ReadNumber(&number));
  const std::optional<double> real = number.Double();
  constexpr double kMax = std::numeric_limits<float>::max();
  if (!real || std::abs(*real) > kMax) {
    return WrongValue(path, before, "numbers up to 3e38");
  }
  *value = static_cast<float>(*real);
  return absl::OkStatus();
}

absl::Status ReadSeed(const JsonPath& path, JsonCursor* cursor, uint64_t* value) {
  constexpr absl::string_view kWanted =
      "integers from -9223372036854775808 to 18446744073709551615";
  if (cursor->Peek() != JsonKind::kNumber) return WrongValue(path, *cursor, kWanted);
  JsonCursor::Number number;
  const JsonCursor before = *cursor;
  RETURN_IF_ERROR(cursor->ReadNumber(&number));
  if (const auto positive = number.UInt()) {
    *value = *positive;
  } else if (const auto negative = number.Int()) {
    *value = static_cast<uint64_t>(*negative);
  } else {
    return WrongValue(path, before, kWanted);
  }
  return absl::OkStatus();
}

absl::Status ReadText(const JsonPath& path, JsonCursor* cursor, size_t max_bytes,
                      std::string* value) {
  if (cursor->Peek() != JsonKind::kString) {
    return WrongValue(path, *cursor, "a string");
  }
  std::string text;
  RETURN_IF_ERROR(cursor->ReadString(&text));
  if (text.size() > max_bytes) return TooMany(path, text.size(), "bytes", max_bytes);
  *value = std::move(text);
  return absl::OkStatus();
}

absl::Status ReadTexts(const JsonPath& path, JsonCursor* cursor, size_t max, size_t max_bytes,
                       std::vector<std::string>* values) {
  if (cursor->Peek() != JsonKind::kArray) {
    return WrongValue(path, *cursor, "a list of strings");
  }
  std::vector<std::string> texts;
  size_t count = 0;
  RETURN_IF_ERROR(cursor->ReadArray([&](size_t index) {
    if (++count > max) return cursor->Skip();
    texts.emplace_back();
    return ReadText({.parent = &path, .index = index}, cursor, max_bytes, &texts.back());
  }));
  if (count > max) return TooMany(path, count, "strings", max);
  *values = std::move(texts);
  return absl::OkStatus();
}

absl::Status ReadList(
    const JsonPath& path, JsonCursor* cursor, absl::string_view what, size_t max,
    absl::FunctionRef<absl::Status(const JsonPath& path, JsonCursor* cursor)> read) {
  if (cursor->Peek() != JsonKind::kArray) {
    return WrongValue(path, *cursor, absl::StrCat("a list of ", what));
  }
  size_t count = 0;
  RETURN_IF_ERROR(cursor->ReadArray([&](size_t index) {
    if (++count > max) return cursor->Skip();
    return read({.parent = &path, .index = index}, cursor);
  }));
  if (count > max) return TooMany(path, count, what, max);
  return absl::OkStatus();
}

absl::Status ReadTokenIds(const JsonPath& path, JsonCursor* cursor, size_t max,
                          std::vector<TokenId>* ids, size_t* count) {
  if (cursor->Peek() != JsonKind::kArray) {
    return WrongValue(path, *cursor, "a list of token ids");
  }
  std::vector<TokenId> read;
  size_t length = 0;
  RETURN_IF_ERROR(cursor->ReadArray([&](size_t index) {
    TokenId id = 0;
    RETURN_IF_ERROR(ReadIdAt({.parent = &path, .index = index}, cursor, &id));
    ++length;
    if (read.size() < max) read.push_back(id);
    return absl::OkStatus();
  }));
  *ids = std::move(read);
  *count = length;
  return absl::OkStatus();
}

}  // namespace baton
