#include "common/base/random.h"
#include "common/chat/chat_value.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "absl/hash/hash.h"
#include "common/base/check.h"

namespace baton {
namespace {

using Kind = ChatValue::Kind;

constexpr int64_t kObjectBytes = 96;  // The object itself and what its allocation needs.
constexpr size_t kEntriesWithoutIndex = 8;

ChatValue ItemsValue(Kind kind, std::vector<ChatValue> items, RenderMeter* meter) {
  auto object = std::make_shared<ItemsObject>();
  object->depth = DepthAbove(items, meter);
  if (kind == Kind::kTuple) {
    object->hashable = std::all_of(items.begin(), items.end(), IsHashable);
    for (const ChatValue& item : items) {
      if (object->hashable) object->hash = absl::HashOf(object->hash, HashValue(item));
    }
  }
  object->items = std::move(items);
  ChargeObject(object.get(), static_cast<int64_t>(object->items.size() * sizeof(ChatValue)), meter);
  return ChatValue(kind, std::move(object));
}

bool ItemsEqual(const std::vector<ChatValue>& a, const std::vector<ChatValue>& b,
                RenderMeter* meter) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!ValuesEqual(a[i], b[i], meter)) return false;
  }
  return true;
}

bool DictsEqual(const ChatDict& a, const ChatDict& b, RenderMeter* meter) {
  if (a.entries().size() != b.entries().size()) return false;
  for (const auto& [key, value] : a.entries()) {
    const ChatValue* const other = b.Find(key, meter);
    if (other == nullptr || !ValuesEqual(value, *other, meter)) return false;
  }
  return true;
}

bool RangesEqual(const RangeObject& a, const RangeObject& b) {
  return a.length == b.length && (a.length == 0 || a.start == b.start) &&
         (a.length < 2 || a.step == b.step);
}

int CompareDigits(absl::string_view a, absl::string_view b) {
  const bool negative = a[0] == '-';
  if (negative != (b[0] == '-')) return negative ? -1 : 1;
  int order = a.size() == b.size() ? a.compare(b) : a.size() < b.size() ? -1 : 1;
  return negative ? -order : order;
}

// Compares an int with a float exactly, where both are finite.
int CompareIntFloat(int64_t a, double b) {
  if (b >= 9223372036854775808.0) return -1;
  if (b < -9223372036854775808.0) return 1;
  const int64_t whole = static_cast<int64_t>(b);
  if (a != whole) return a < whole ? -1 : 1;
  const double rest = b - static_cast<double>(whole);
  return rest > 0 ? -1 : rest < 0 ? 1 : 0;
}

// Returns less than 0, 0 or more than 0, or 2 for a NaN, which is unordered.
int CompareNumbers(const ChatValue& a, const ChatValue& b) {
  if (a.IsSmallInt() && b.IsSmallInt()) {
    return a.AsInt() == b.AsInt() ? 0 : a.AsInt() < b.AsInt() ? -1 : 1;
  }
  if (std::isnan(a.AsFloat()) || std::isnan(b.AsFloat())) return 2;
  if (a.IsSmallInt() && b.Is(Kind::kFloat)) return CompareIntFloat(a.AsInt(), b.AsFloat());
  if (a.Is(Kind::kFloat) && b.IsSmallInt()) return -CompareIntFloat(b.AsInt(), a.AsFloat());
  if (a.Is(Kind::kBigInt) && b.Is(Kind::kBigInt)) {
    return CompareDigits(a.As<BigIntObject>().digits, b.As<BigIntObject>().digits);
  }
  // A big integer lies beyond every small one, on the side of its sign.
  if (a.Is(Kind::kBigInt) && b.IsSmallInt()) return a.AsFloat() < 0 ? -1 : 1;
  if (a.IsSmallInt() && b.Is(Kind::kBigInt)) return b.AsFloat() < 0 ? 1 : -1;
  return a.AsFloat() == b.AsFloat() ? 0 : a.AsFloat() < b.AsFloat() ? -1 : 1;
}

}  // namespace

ChatValue ChatValue::Bool(bool value) {
  ChatValue result(Kind::kBool, nullptr);
  result.int_ = value ? 1 : 0;
  return result;
}

ChatValue ChatValue::Int(int64_t value) {
  ChatValue result(Kind::kInt, nullptr);
  result.int_ = value;
  return result;
}

ChatValue ChatValue::Float(double value) {
  ChatValue result(Kind::kFloat, nullptr);
  result.float_ = value;
  return result;
}

ChatValue ChatValue::BigInt(absl::string_view digits) {
  auto object = std::make_shared<BigIntObject>();
  object->digits = std::string(digits);
  return ChatValue(Kind::kBigInt, std::move(object));
}

ChatValue ChatValue::Text(absl::string_view utf8, TextOrigin origin) {
  return Text(OriginText(utf8, origin));
}

ChatValue ChatValue::Text(OriginText text) { return MakeText(std::move(text), nullptr); }

ChatValue ChatValue::List(std::vector<ChatValue> items) {
  return ItemsValue(Kind::kList, std::move(items), nullptr);
}

ChatValue ChatValue::Dict(const std::vector<std::pair<ChatValue, ChatValue>>& entries) {
  ChatDict dict;
  for (const auto& [key, value] : entries) dict.Set(key, value);
  return MakeDict(std::move(dict), nullptr);
}

double ChatValue::AsFloat() const {
  if (kind_ == Kind::kFloat) return float_;
  if (kind_ == Kind::kBigInt) return std::strtod(As<BigIntObject>().digits.c_str(), nullptr);
  return static_cast<double>(int_);
}

const OriginText& ChatValue::AsText() const { return As<TextObject>().text; }
const std::vector<ChatValue>& ChatValue::AsItems() const { return As<ItemsObject>().items; }
const ChatDict& ChatValue::AsDict() const { return As<DictObject>().dict; }

bool ChatValue::IsMarkup() const { return IsText() && As<TextObject>().is_markup; }

bool ChatValue::IsTrue() const {
  switch (kind_) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return int_ != 0;
    case Kind::kFloat:
      return float_ != 0;
    case Kind::kText:
      return !AsText().empty();
    case Kind::kList:
    case Kind::kTuple:
      return !AsItems().empty();
    case Kind::kDict:
      return !AsDict().entries().empty();
    case Kind::kDictView:
      return As<DictViewObject>().dict.IsTrue();
    case Kind::kRange:
      return As<RangeObject>().length > 0;
    default:
      return true;
  }
}

absl::string_view ChatValue::TypeName() const {
  switch (kind_) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
    case Kind::kBigInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kText:
      return "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kDictView: {
      const auto part = As<DictViewObject>().part;
      return part == DictViewObject::Part::kKeys     ? "dict_keys"
             : part == DictViewObject::Part::kValues ? "dict_values"
                                                     : "dict_items";
    }
    case Kind::kRange:
      return "range";
    case Kind::kIterator:
      return As<IteratorObject>().type;
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kCycler:
      return "Cycler";
    case Kind::kJoiner:
      return "Joiner";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kMacro:
      return "Macro";
    case Kind::kMethod:
      return "method";
    case Kind::kFunction:
      return "function";
  }
  return "";
}

const ChatValue* ChatDict::Find(const ChatValue& key, RenderMeter* meter) const {
  if (!IsHashable(key)) return nullptr;
  const size_t index =
      IndexOf(key, entries_.size() > kEntriesWithoutIndex ? HashValue(key) : 0, meter);
  return index < entries_.size() ? &entries_[index].second : nullptr;
}

const ChatValue* ChatDict::Find(absl::string_view key) const {
  return Find(ChatValue::Text(key, TextOrigin::kTemplate));
}

size_t ChatDict::IndexOf(const ChatValue& key, uint64_t hash, RenderMeter* meter) const {
  if (entries_.size() <= kEntriesWithoutIndex) {
    size_t i = 0;
    while (i < entries_.size() && !ValuesEqual(entries_[i].first, key, meter)) ++i;
    return i;
  }
  const auto found = by_hash_.find(hash);
  if (found == by_hash_.end()) return entries_.size();
  for (const uint32_t i : found->second) {
    if (ValuesEqual(entries_[i].first, key, meter)) return i;
  }
  return entries_.size();
}

void ChatDict::Set(const ChatValue& key, const ChatValue& value, RenderMeter* meter) {
  BATON_CHECK(IsHashable(key)) << key.TypeName();
  const uint64_t hash = entries_.size() >= kEntriesWithoutIndex ? HashValue(key) : 0;
  const size_t index = IndexOf(key, hash, meter);
  if (index < entries_.size()) {
    entries_[index].second = value;
    return;
  }
  entries_.emplace_back(key, value);
  if (entries_.size() == kEntriesWithoutIndex + 1) {
    for (size_t i = 0; i < index; ++i) {
      by_hash_[HashValue(entries_[i].first)].push_back(static_cast<uint32_t>(i));
    }
  }
  if (entries_.size() > kEntriesWithoutIndex) {
    by_hash_[hash].push_back(static_cast<uint32_t>(index));
  }
}

bool ValuesEqual(const ChatValue& a, const ChatValue& b, RenderMeter* meter) {
  if (meter != nullptr && !meter->Step()) return false;
  if (a.object() != nullptr && a.object() == b.object()) return true;
  if (a.IsNumber() && b.IsNumber()) return CompareNumbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kText:
      if (meter != nullptr) meter->Characters(static_cast<int64_t>(a.AsText().size()));
      return a.AsText() == b.AsText();
    case Kind::kList:
    case Kind::kTuple:
      return ItemsEqual(a.AsItems(), b.AsItems(), meter);
    case Kind::kDict:
      return DictsEqual(a.AsDict(), b.AsDict(), meter);
    case Kind::kRange:
      return RangesEqual(a.As<RangeObject>(), b.As<RangeObject>());
    default:
      return false;
  }
}

bool IsHashable(const ChatValue& value) {
  switch (value.kind()) {
    case Kind::kList:
    case Kind::kDict:
    case Kind::kDictView:
      return false;
    case Kind::kTuple:
      return value.As<ItemsObject>().hashable;
    default:
      return true;
  }
}

uint64_t HashValue(const ChatValue& value) {
  switch (value.kind()) {
    case Kind::kBool:
    case Kind::kInt:
      return absl::HashOf(value.AsInt());
    case Kind::kFloat: {
      const double number = value.AsFloat();
      const bool is_int = std::floor(number) == number && std::fabs(number) < 9e18;
      return is_int ? absl::HashOf(static_cast<int64_t>(number)) : absl::HashOf(number);
    }
    case Kind::kBigInt:
      return absl::HashOf(value.As<BigIntObject>().digits);
    case Kind::kText: {
      // Nobody outside of this process can find texts of the same hash without its beginning.
      static const uint64_t begin = RandomU64();
      uint64_t hash = begin;
      for (const OriginChar c : value.AsText().chars()) {
        hash = (hash ^ c.code()) * 0xBF58476D1CE4E5B9;
        hash ^= hash >> 29;
      }
      return absl::HashOf(hash);
    }
    case Kind::kTuple:
      return value.As<ItemsObject>().hash;
    case Kind::kNone:
    case Kind::kUndefined:
      return absl::HashOf(static_cast<int>(value.kind()));
    case Kind::kRange:
      return absl::HashOf(value.As<RangeObject>().length);
    default:
      return absl::HashOf(value.object());
  }
}

bool ValueLess(const ChatValue& a, const ChatValue& b, RenderMeter* meter, bool* less) {
  *less = false;
  if (!meter->Step()) return true;
  if (a.IsNumber() && b.IsNumber()) {
    *less = CompareNumbers(a, b) < 0;
    return true;
  }
  if (a.kind() != b.kind()) return false;
  if (a.IsText()) {
    meter->Characters(static_cast<int64_t>(std::min(a.AsText().size(), b.AsText().size())));
    *less = a.AsText().Compare(b.AsText()) < 0;
    return true;
  }
  if (!a.IsSequence()) return false;
  const auto& left = a.AsItems();
  const auto& right = b.AsItems();
  for (size_t i = 0; i < left.size() && i < right.size(); ++i) {
    if (!ValuesEqual(left[i], right[i], meter)) return ValueLess(left[i], right[i], meter, less);
  }
  *less = left.size() < right.size();
  return true;
}

void ChargeObject(ChatObject* object, int64_t extra_bytes, RenderMeter* meter) {
  if (meter == nullptr) return;
  object->meter = meter;
  object->bytes = kObjectBytes + extra_bytes;
  meter->Charge(object->bytes);
  meter->Step(1 + extra_bytes / 64);
}

int DepthAbove(const std::vector<ChatValue>& items, RenderMeter* meter) {
  int depth = 0;
  for (const ChatValue& item : items) depth = std::max(depth, item.depth());
  if (depth >= kMaxValueDepth && meter != nullptr) {
    meter->Fail("the template nests values too deeply");
  }
  return depth + 1;
}

ChatValue MakeText(OriginText text, RenderMeter* meter) {
  auto object = std::make_shared<TextObject>();
  object->text = std::move(text);
  ChargeObject(object.get(), static_cast<int64_t>(object->text.size() * sizeof(OriginChar)), meter);
  return ChatValue(Kind::kText, std::move(object));
}

ChatValue MakeText(absl::string_view utf8, RenderMeter* meter) {
  return MakeText(OriginText(utf8, TextOrigin::kPeople), meter);
}

ChatValue MakeItems(Kind kind, std::vector<ChatValue> items, RenderMeter* meter) {
  return ItemsValue(kind, std::move(items), meter);
}

ChatValue MakeDict(ChatDict dict, RenderMeter* meter) {
  auto object = std::make_shared<DictObject>();
  object->dict = std::move(dict);
  for (const auto& [key, value] : object->dict.entries()) {
    object->depth = std::max({object->depth, key.depth() + 1, value.depth() + 1});
  }
  object->depth = std::max(object->depth, 1);
  if (object->depth > kMaxValueDepth && meter != nullptr) {
    meter->Fail("the template nests values too deeply");
  }
  const size_t entries = object->dict.entries().size();
  ChargeObject(object.get(), static_cast<int64_t>(entries * (sizeof(ChatDict::Entry) + 48)), meter);
  return ChatValue(Kind::kDict, std::move(object));
}

ChatValue MakeIterator(absl::string_view type, std::vector<ChatValue> items, absl::Status end,
                       RenderMeter* meter) {
  auto object = std::make_shared<IteratorObject>();
  object->type = type;
  object->depth = DepthAbove(items, meter);
  object->items = std::move(items);
  object->end = std::move(end);
  ChargeObject(object.get(), static_cast<int64_t>(object->items.size() * sizeof(ChatValue)), meter);
  return ChatValue(Kind::kIterator, std::move(object));
}

ChatValue MakeUndefined(std::string why, RenderMeter* meter) {
  auto object = std::make_shared<UndefinedObject>();
  object->why = std::move(why);
  ChargeObject(object.get(), static_cast<int64_t>(object->why.size()), meter);
  return ChatValue(Kind::kUndefined, std::move(object));
}

}  // namespace baton
