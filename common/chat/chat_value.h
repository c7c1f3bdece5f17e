#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/chat/origin_text.h"
#include "common/chat/render_meter.h"

namespace baton {

// The part of a value that lies on the heap. Objects that a rendering made return their memory to
// its meter; objects of the caller have none. Lists, tuples and dictionaries never change.
struct ChatObject {
  ChatObject() = default;
  ChatObject(const ChatObject&) = delete;
  ChatObject& operator=(const ChatObject&) = delete;
  virtual ~ChatObject() {
    if (meter != nullptr) meter->Release(bytes);
  }

  RenderMeter* meter = nullptr;
  int64_t bytes = 0;
  int depth = 0;  // Number of containers inside each other, this one included.
};

// One value of the template language, with the meaning that Python gives it. Cheap to copy. Callers
// build values with the functions from None() to Dict() and with ParseChatJson; the other kinds
// exist only inside of a rendering.
class ChatValue {
 public:
  enum class Kind {
    kUndefined,
    kNone,
    kBool,
    kInt,
    kBigInt,  // An integer beyond 64 bits: its decimal digits, for printing and comparing.
    kFloat,
    kText,
    kList,
    kTuple,
    kDict,
    kDictView,  // The result of keys(), values() or items().
    kRange,
    kIterator,  // Can be walked through once, like a generator.
    kNamespace,
    kCycler,
    kJoiner,
    kLoop,
    kMacro,
    kMethod,  // A method and the value that it belongs to.
    kFunction,
  };

  ChatValue() = default;  // None.
  ChatValue(Kind kind, std::shared_ptr<ChatObject> object)
      : kind_(kind), object_(std::move(object)) {}

  static ChatValue None() { return ChatValue(); }
  static ChatValue Bool(bool value);
  static ChatValue Int(int64_t value);
  static ChatValue Float(double value);
  // `digits` are decimal, with a sign if negative, without leading zeros, and beyond int64_t.
  static ChatValue BigInt(absl::string_view digits);
  // `utf8` must be well-formed.
  static ChatValue Text(absl::string_view utf8, TextOrigin origin);
  static ChatValue Text(OriginText text);
  static ChatValue List(std::vector<ChatValue> items);
  // A key that occurs again keeps its place and takes the later value.
  static ChatValue Dict(const std::vector<std::pair<ChatValue, ChatValue>>& entries);

  Kind kind() const { return kind_; }
  bool Is(Kind kind) const { return kind_ == kind; }
  bool IsText() const { return kind_ == Kind::kText; }
  bool IsDict() const { return kind_ == Kind::kDict; }
  bool IsUndefined() const { return kind_ == Kind::kUndefined; }
  bool IsNone() const { return kind_ == Kind::kNone; }
  bool IsSequence() const { return kind_ == Kind::kList || kind_ == Kind::kTuple; }
  // True for bool and int: Python's bool is an int.
  bool IsSmallInt() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }
  bool IsNumber() const { return IsSmallInt() || kind_ == Kind::kFloat || kind_ == Kind::kBigInt; }

  int64_t AsInt() const { return int_; }  // For a bool or an int.
  double AsFloat() const;                 // For any number.
  const OriginText& AsText() const;
  const std::vector<ChatValue>& AsItems() const;  // For a list or tuple.
  const class ChatDict& AsDict() const;
  template <typename T>
  T& As() const {
    return static_cast<T&>(*object_);
  }
  const ChatObject* object() const { return object_.get(); }
  int depth() const { return object_ == nullptr ? 0 : object_->depth; }

  bool IsMarkup() const;
  bool IsTrue() const;  // As an `if` sees it.
  // Returns Python's name of the type: "str", "dict", "NoneType".
  absl::string_view TypeName() const;

 private:
  Kind kind_ = Kind::kNone;
  union {
    int64_t int_ = 0;
    double float_;
  };
  std::shared_ptr<ChatObject> object_;
};

// Entries in the order in which their keys were first set.
class ChatDict {
 public:
  using Entry = std::pair<ChatValue, ChatValue>;

  const std::vector<Entry>& entries() const { return entries_; }
  // Return null if there is no such key. A key that cannot be hashed is in no dictionary.
  const ChatValue* Find(const ChatValue& key, RenderMeter* meter = nullptr) const;
  const ChatValue* Find(absl::string_view key) const;
  // `key` must be hashable.
  void Set(const ChatValue& key, const ChatValue& value, RenderMeter* meter = nullptr);

 private:
  size_t IndexOf(const ChatValue& key, uint64_t hash, RenderMeter* meter) const;

  std::vector<Entry> entries_;
  absl::flat_hash_map<uint64_t, absl::InlinedVector<uint32_t, 1>> by_hash_;
};

struct UndefinedObject : ChatObject {
  std::string why;  // The message of the error that most uses of the value cause.
};
struct BigIntObject : ChatObject {
  std::string digits;
};
struct TextObject : ChatObject {
  OriginText text;
  // True for texts of `safe` and `escape`. Where such a text is added to another one, Jinja escapes
  // the other one for HTML.
  bool is_markup = false;
};
struct ItemsObject : ChatObject {
  std::vector<ChatValue> items;
  bool hashable = false;  // A tuple of hashable values. `hash` is then set.
  uint64_t hash = 0;
  bool is_group = false;  // A tuple of `groupby`, whose items have names too: grouper, list.
};
struct DictObject : ChatObject {
  ChatDict dict;
};
struct DictViewObject : ChatObject {
  enum class Part { kKeys, kValues, kItems };
  ChatValue dict;
  Part part = Part::kKeys;
};
struct RangeObject : ChatObject {
  int64_t start = 0, stop = 0, step = 1, length = 0;
  int64_t At(int64_t i) const { return start + i * step; }
};
struct IteratorObject : ChatObject {
  absl::string_view type;
  std::vector<ChatValue> items;
  size_t next = 0;
  absl::Status end;  // Met by a reader who goes beyond the last item.
};
struct NamespaceObject : ChatObject {
  absl::flat_hash_map<std::string, ChatValue> attributes;
};
struct CyclerObject : ChatObject {
  std::vector<ChatValue> items;
  size_t at = 0;
};
struct JoinerObject : ChatObject {
  ChatValue separator;
  bool used = false;
};

// Return equality, order and hash as Python computes them. `meter`, if given, counts the work; the
// result means nothing after it failed.
bool ValuesEqual(const ChatValue& a, const ChatValue& b, RenderMeter* meter);
bool IsHashable(const ChatValue& value);
uint64_t HashValue(const ChatValue& value);  // The value must be hashable.
// Sets `less` to a < b. Returns false if Python refuses to order the two types.
bool ValueLess(const ChatValue& a, const ChatValue& b, RenderMeter* meter, bool* less);

// Make values whose memory `meter` counts.
ChatValue MakeText(OriginText text, RenderMeter* meter);
ChatValue MakeText(absl::string_view utf8, RenderMeter* meter);  // The text is people's.
ChatValue MakeItems(ChatValue::Kind kind, std::vector<ChatValue> items, RenderMeter* meter);
ChatValue MakeDict(ChatDict dict, RenderMeter* meter);
ChatValue MakeIterator(absl::string_view type, std::vector<ChatValue> items, absl::Status end,
                       RenderMeter* meter);
ChatValue MakeUndefined(std::string why, RenderMeter* meter);
// Counts `object`, which holds `extra_bytes` beside itself.
void ChargeObject(ChatObject* object, int64_t extra_bytes, RenderMeter* meter);
// Returns the depth of a container of `items`. Fails the meter if it is too deep.
int DepthAbove(const std::vector<ChatValue>& items, RenderMeter* meter);

}  // namespace baton
