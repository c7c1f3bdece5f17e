#include <algorithm>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "common/chat/interpreter.h"
#include "common/chat/text_case.h"

namespace baton {
namespace {

using Kind = ChatValue::Kind;
using Sequence = std::vector<ChatValue>;
using FilterResult = absl::StatusOr<ChatValue>;

constexpr int64_t kMaxFill = 100'000;  // Values that batch and slice add or make.

// Reads "name.0.other" of items, as filters take attributes.
class AttributePath {
 public:
  // An attribute that is missing or None is the item itself.
  AttributePath(const ChatValue* attribute, RenderMeter* meter) {
    if (attribute == nullptr || attribute->IsNone()) return;
    if (!attribute->IsText()) {
      parts_.push_back(*attribute);
      return;
    }
    for (const absl::string_view part : absl::StrSplit(attribute->AsText().Utf8(), '.')) {
      int64_t index = 0;
      const bool is_index = !part.empty() &&
                            std::all_of(part.begin(), part.end(), absl::ascii_isdigit) &&
                            absl::SimpleAtoi(part, &index);
      parts_.push_back(is_index ? ChatValue::Int(index) : MakeText(part, meter));
    }
  }

  // `otherwise`, if it is not null or None, replaces each undefined value on the path.
  FilterResult Get(Interpreter& interpreter, ChatValue item,
                   const ChatValue* otherwise = nullptr) const {
    for (const ChatValue& part : parts_) {
      ASSIGN_OR_RETURN(item, interpreter.GetItem(item, part));
      if (item.IsUndefined() && otherwise != nullptr && !otherwise->IsNone()) item = *otherwise;
    }
    return item;
  }

 private:
  Sequence parts_;
};

ChatValue WithoutCase(const ChatValue& value, RenderMeter* meter) {
  if (!value.IsText()) return value;
  meter->Characters(static_cast<int64_t>(value.AsText().size()));
  return MakeText(LowerCase(value.AsText()), meter);
}

// Returns the value by which filters compare an item.
FilterResult KeyOf(const BuiltinCall& call, const AttributePath& path, const ChatValue& item,
                   bool case_sensitive, const ChatValue* otherwise = nullptr) {
  ASSIGN_OR_RETURN(const ChatValue key, path.Get(call.interpreter(), item, otherwise));
  return case_sensitive ? key : WithoutCase(key, call.meter());
}

absl::StatusOr<bool> IsLess(const BuiltinCall& call, const ChatValue& a, const ChatValue& b) {
  bool less = false;
  if (!ValueLess(a, b, call.meter(), &less)) {
    return call.Error(absl::StrCat("cannot order '", a.TypeName(), "' and '", b.TypeName(), "'"));
  }
  RETURN_IF_ERROR(call.meter()->status());
  return less;
}

// Sorts items by their keys. A merge sort: unlike std::sort, it is also safe for values without a
// consistent order, such as NaN.
absl::Status SortByKeys(const BuiltinCall& call, bool reverse, Sequence* keys, Sequence* items) {
  const size_t n = items->size();
  std::vector<size_t> order(n), merged(n);
  for (size_t i = 0; i < n; ++i) order[i] = i;
  for (size_t width = 1; width < n; width *= 2) {
    for (size_t begin = 0; begin < n; begin += 2 * width) {
      const size_t middle = std::min(begin + width, n);
      const size_t end = std::min(begin + 2 * width, n);
      size_t left = begin;
      size_t right = middle;
      for (size_t out = begin; out < end; ++out) {
        bool take_right = left == middle;
        if (!take_right && right < end) {
          const ChatValue& a = (*keys)[order[left]];
          const ChatValue& b = (*keys)[order[right]];
          ASSIGN_OR_RETURN(take_right, reverse ? IsLess(call, a, b) : IsLess(call, b, a));
        }
        merged[out] = order[take_right ? right++ : left++];
      }
    }
    std::swap(order, merged);
  }
  Sequence sorted_keys, sorted_items;
  for (const size_t i : order) {
    sorted_keys.push_back((*keys)[i]);
    sorted_items.push_back((*items)[i]);
  }
  *keys = std::move(sorted_keys);
  *items = std::move(sorted_items);
  return absl::OkStatus();
}

FilterResult ListOf(const BuiltinCall& call, Sequence items) {
  return MakeItems(Kind::kList, std::move(items), call.meter());
}

FilterResult Generator(const BuiltinCall& call, Sequence items, absl::Status end = {}) {
  // A bound ends the rendering at once. Any other error waits for a reader, as in Python.
  if (absl::IsResourceExhausted(end)) return end;
  return MakeIterator("generator", std::move(items), std::move(end), call.meter());
}

FilterResult UndefinedResult(const BuiltinCall& call, absl::string_view why) {
  return call.interpreter().Undefined(std::string(why));
}

// ---- Counting and choosing.

FilterResult Length(BuiltinCall& call) {
  const ChatValue& value = call.self();
  switch (value.kind()) {
    case Kind::kUndefined:
      return ChatValue::Int(0);
    case Kind::kText:
      return ChatValue::Int(static_cast<int64_t>(value.AsText().size()));
    case Kind::kList:
    case Kind::kTuple:
      return ChatValue::Int(static_cast<int64_t>(value.AsItems().size()));
    case Kind::kDict:
      return ChatValue::Int(static_cast<int64_t>(value.AsDict().entries().size()));
    case Kind::kDictView:
      return ChatValue::Int(
          static_cast<int64_t>(value.As<DictViewObject>().dict.AsDict().entries().size()));
    case Kind::kRange:
      return ChatValue::Int(value.As<RangeObject>().length);
    case Kind::kLoop:
      return call.interpreter().GetAttribute(value,
                                             ChatValue::Text("length", TextOrigin::kTemplate));
    default:
      return call.Error(absl::StrCat("of a value without length: ", ReprForMessage(value)));
  }
}

FilterResult Default(BuiltinCall& call) {
  ASSIGN_OR_RETURN(const bool boolean, call.Bool(1, false));
  if (!call.self().IsUndefined() && (!boolean || call.self().IsTrue())) return call.self();
  return call.Get(0) != nullptr ? *call.Get(0) : MakeText("", call.meter());
}

FilterResult First(BuiltinCall& call) {
  if (call.self().Is(Kind::kIterator)) {
    auto& iterator = call.self().As<IteratorObject>();
    if (iterator.next < iterator.items.size()) return iterator.items[iterator.next++];
    RETURN_IF_ERROR(iterator.end);
    return UndefinedResult(call, "No first item, sequence was empty.");
  }
  if (call.self().IsSequence() && !call.self().AsItems().empty()) return call.self().AsItems()[0];
  ASSIGN_OR_RETURN(const Sequence items, call.interpreter().Items(call.self()));
  return items.empty() ? UndefinedResult(call, "No first item, sequence was empty.")
                       : items.front();
}

FilterResult Last(BuiltinCall& call) {
  if (call.self().Is(Kind::kIterator)) return call.Error("needs a sequence");
  if (call.self().IsSequence() && !call.self().AsItems().empty()) {
    return call.self().AsItems().back();
  }
  ASSIGN_OR_RETURN(const Sequence items, call.interpreter().Items(call.self()));
  return items.empty() ? UndefinedResult(call, "No last item, sequence was empty.") : items.back();
}

template <bool max>
FilterResult Extreme(BuiltinCall& call) {
  ASSIGN_OR_RETURN(const Sequence items, call.interpreter().Items(call.self()));
  if (items.empty()) return UndefinedResult(call, "No aggregated item, sequence was empty.");
  ASSIGN_OR_RETURN(const bool case_sensitive, call.Bool(0, false));
  const AttributePath path(call.Get(1), call.meter());
  ChatValue best = items[0];
  ASSIGN_OR_RETURN(ChatValue best_key, KeyOf(call, path, best, case_sensitive));
  for (size_t i = 1; i < items.size(); ++i) {
    ASSIGN_OR_RETURN(ChatValue key, KeyOf(call, path, items[i], case_sensitive));
    ASSIGN_OR_RETURN(const bool better,
                     max ? IsLess(call, best_key, key) : IsLess(call, key, best_key));
    if (!better) continue;
    best = items[i];
    best_key = std::move(key);
  }
  return best;
}

FilterResult Sum(BuiltinCall& call) {
  ASSIGN_OR_RETURN(const Sequence items, call.interpreter().Items(call.self()));
  const AttributePath path(call.Get(0), call.meter());
  ChatValue sum = call.Get(1) != nullptr ? *call.Get(1) : ChatValue::Int(0);
  if (sum.IsText()) return call.Error("cannot add texts");
  for (const ChatValue& item : items) {
    ASSIGN_OR_RETURN(const ChatValue value, path.Get(call.interpreter(), item));
    ASSIGN_OR_RETURN(sum, BinaryOperation("+", sum, value, &call.interpreter()));
  }
  return sum;
}

FilterResult Attr(BuiltinCall& call) {
  if (!call.Get(0)->IsText()) return call.Error("needs the name of an attribute");
  ASSIGN_OR_RETURN(const std::optional<ChatValue> attribute,
                   call.interpreter().FindAttribute(call.self(), *call.Get(0)));
  if (attribute.has_value()) return *attribute;
  if (call.self().IsUndefined()) {
    return absl::FailedPreconditionError(call.self().As<UndefinedObject>().why);
  }
  return UndefinedResult(call,
                         absl::StrCat("'", call.self().TypeName(), " object' has no attribute ",
                                      ReprForMessage(*call.Get(0))));
}

// ---- Ordering.

FilterResult Sort(BuiltinCall& call) {
  ASSIGN_OR_RETURN(Sequence items, call.interpreter().Items(call.self()));
  ASSIGN_OR_RETURN(const bool reverse, call.Bool(0, false));
  ASSIGN_OR_RETURN(const bool case_sensitive, call.Bool(1, false));
  std::vector<AttributePath> paths;
  if (!call.IsMissingOrNone(2) && call.Get(2)->IsText()) {
    for (const absl::string_view part : absl::StrSplit(call.Get(2)->AsText().Utf8(), ',')) {
      const ChatValue attribute = MakeText(part, call.meter());
      paths.emplace_back(&attribute, call.meter());
    }
  } else {
    paths.emplace_back(call.Get(2), call.meter());
  }
  Sequence keys;
  for (const ChatValue& item : items) {
    Sequence key;
    for (const AttributePath& path : paths) {
      ASSIGN_OR_RETURN(ChatValue part, KeyOf(call, path, item, case_sensitive));
      key.push_back(std::move(part));
    }
    keys.push_back(MakeItems(Kind::kList, std::move(key), call.meter()));
  }
  RETURN_IF_ERROR(SortByKeys(call, reverse, &keys, &items));
  return ListOf(call, std::move(items));
}

FilterResult DictSort(BuiltinCall& call) {
  if (!call.self().IsDict()) return call.Error("needs a dictionary");
  ASSIGN_OR_RETURN(const bool case_sensitive, call.Bool(0, false));
  ASSIGN_OR_RETURN(const OriginText by, call.Text(1, OriginText("key", TextOrigin::kPeople)));
  ASSIGN_OR_RETURN(const bool reverse, call.Bool(2, false));
  if (!(by == "key") && !(by == "value")) return call.Error("sorts by 'key' or 'value'");
  Sequence keys, items;
  for (const auto& [key, value] : call.self().AsDict().entries()) {
    const ChatValue& sorted_by = by == "key" ? key : value;
    keys.push_back(case_sensitive ? sorted_by : WithoutCase(sorted_by, call.meter()));
    items.push_back(MakeItems(Kind::kTuple, {key, value}, call.meter()));
  }
  RETURN_IF_ERROR(SortByKeys(call, reverse, &keys, &items));
  return ListOf(call, std::move(items));
}

FilterResult Unique(BuiltinCall& call) {
  const auto given = call.interpreter().Items(call.self());
  if (!given.ok()) return Generator(call, {}, given.status());
  const Sequence& items = *given;
  ASSIGN_OR_RETURN(const bool case_sensitive, call.Bool(0, false));
  const AttributePath path(call.Get(1), call.meter());
  ChatDict seen;
  Sequence unique;
  for (const ChatValue& item : items) {
    const auto key = KeyOf(call, path, item, case_sensitive);
    if (!key.ok()) return Generator(call, std::move(unique), key.status());
    if (!IsHashable(*key)) {
      return Generator(call, std::move(unique), call.Error("needs items that can be hashed"));
    }
    if (seen.Find(*key, call.meter()) != nullptr) continue;
    seen.Set(*key, ChatValue::None(), call.meter());
    unique.push_back(item);
  }
  return Generator(call, std::move(unique));
}

FilterResult Reverse(BuiltinCall& call) {
  const ChatValue& value = call.self();
  if (value.IsText()) return MakeText(value.AsText().Reversed(), call.meter());
  ASSIGN_OR_RETURN(Sequence items, call.interpreter().Items(value));
  std::reverse(items.begin(), items.end());
  if (value.Is(Kind::kIterator)) return ListOf(call, std::move(items));
  return MakeIterator("list_reverseiterator", std::move(items), absl::OkStatus(), call.meter());
}

FilterResult GroupBy(BuiltinCall& call) {
  ASSIGN_OR_RETURN(Sequence items, call.interpreter().Items(call.self()));
  ASSIGN_OR_RETURN(const bool case_sensitive, call.Bool(2, false));
  const AttributePath path(call.Get(0), call.meter());
  Sequence keys;
  for (const ChatValue& item : items) {
    ASSIGN_OR_RETURN(ChatValue key, KeyOf(call, path, item, case_sensitive, call.Get(1)));
    keys.push_back(std::move(key));
  }
  RETURN_IF_ERROR(SortByKeys(call, false, &keys, &items));
  Sequence groups;
  for (size_t begin = 0, end = 0; begin < items.size(); begin = end) {
    while (end < items.size() && ValuesEqual(keys[end], keys[begin], call.meter())) ++end;
    if (end == begin) ++end;  // NaN equals nothing, not even itself.
    Sequence members(items.begin() + begin, items.begin() + end);
    // The group's name is that of its first item, with its case.
    ASSIGN_OR_RETURN(ChatValue name, path.Get(call.interpreter(), members[0], call.Get(1)));
    ChatValue group = MakeItems(
        Kind::kTuple, {std::move(name), MakeItems(Kind::kList, std::move(members), call.meter())},
        call.meter());
    group.As<ItemsObject>().is_group = true;
    groups.push_back(std::move(group));
  }
  return ListOf(call, std::move(groups));
}

// ---- Changing all items.

FilterResult Items(BuiltinCall& call) {
  if (call.self().IsUndefined()) return Generator(call, {});
  if (!call.self().IsDict()) return Generator(call, {}, call.Error("needs a dictionary"));
  Sequence pairs;
  for (const auto& [key, value] : call.self().AsDict().entries()) {
    pairs.push_back(MakeItems(Kind::kTuple, {key, value}, call.meter()));
  }
  return Generator(call, std::move(pairs));
}

FilterResult List(BuiltinCall& call) {
  ASSIGN_OR_RETURN(Sequence items, call.interpreter().Items(call.self()));
  return ListOf(call, std::move(items));
}

FilterResult JoinFilter(BuiltinCall& call) {
  ASSIGN_OR_RETURN(const Sequence items, call.interpreter().Items(call.self()));
  const ChatValue separator =
      call.Get(0) != nullptr ? StrOf(*call.Get(0), call.meter()) : MakeText("", call.meter());
  const AttributePath path(call.Get(1), call.meter());
  TextBuilder out(call.meter());
  for (size_t i = 0; i < items.size() && call.meter()->ok(); ++i) {
    if (i > 0) out.Append(separator.AsText());
    ASSIGN_OR_RETURN(const ChatValue item, path.Get(call.interpreter(), items[i]));
    AppendStr(item, &out);
  }
  return out.Finish();
}

FilterResult Map(BuiltinCall& call) {
  CallArguments arguments = call.raw();
  std::optional<ChatValue> attribute, otherwise;
  if (arguments.positional.empty()) {
    for (const auto& [name, value] : arguments.keywords) {
      if (name == "attribute") {
        attribute = value;
      } else if (name == "default") {
        otherwise = value;
      } else {
        return Generator(call, {}, call.Error(absl::StrCat("takes no argument '", name, "'")));
      }
    }
    if (!attribute.has_value()) return Generator(call, {}, call.Error("needs a filter"));
  } else if (!arguments.positional[0].IsText()) {
    return Generator(call, {}, call.Error("needs the name of a filter"));
  }
  if (!call.self().IsTrue()) return Generator(call, {});
  const auto given = call.interpreter().Items(call.self());
  if (!given.ok()) return Generator(call, {}, given.status());
  const Sequence& items = *given;
  const AttributePath path(attribute.has_value() ? &*attribute : nullptr, call.meter());
  std::string name;
  if (!attribute.has_value()) {
    name = arguments.positional[0].AsText().Utf8();
    arguments.positional.erase(arguments.positional.begin());
  }
  Sequence mapped;
  for (const ChatValue& item : items) {
    CallArguments copy = arguments;
    const auto result =
        attribute.has_value()
            ? path.Get(call.interpreter(), item, otherwise.has_value() ? &*otherwise : nullptr)
            : call.interpreter().CallFilter(name, item, &copy);
    if (!result.ok()) return Generator(call, std::move(mapped), result.status());
    mapped.push_back(*result);
  }
  return Generator(call, std::move(mapped));
}

template <bool keep, bool of_attribute>
FilterResult Choose(BuiltinCall& call) {
  CallArguments arguments = call.raw();
  if (!call.self().IsTrue()) return Generator(call, {});
  std::optional<ChatValue> attribute;
  if (of_attribute) {
    if (arguments.positional.empty()) {
      return Generator(call, {}, call.Error("needs the name of an attribute"));
    }
    attribute = arguments.positional[0];
    arguments.positional.erase(arguments.positional.begin());
  }
  std::optional<std::string> test;
  if (!arguments.positional.empty()) {
    if (!arguments.positional[0].IsText()) {
      return Generator(call, {}, call.Error("needs the name of a test"));
    }
    test = arguments.positional[0].AsText().Utf8();
    arguments.positional.erase(arguments.positional.begin());
  }
  const auto given = call.interpreter().Items(call.self());
  if (!given.ok()) return Generator(call, {}, given.status());
  const Sequence& items = *given;
  const AttributePath path(of_attribute ? &*attribute : nullptr, call.meter());
  Sequence chosen;
  for (const ChatValue& item : items) {
    const auto value = path.Get(call.interpreter(), item);
    if (!value.ok()) return Generator(call, std::move(chosen), value.status());
    CallArguments copy = arguments;
    const auto passes = test.has_value() ? call.interpreter().CallTest(*test, *value, &copy)
                                         : absl::StatusOr<bool>(value->IsTrue());
    if (!passes.ok()) return Generator(call, std::move(chosen), passes.status());
    if (*passes == keep) chosen.push_back(item);
  }
  return Generator(call, std::move(chosen));
}

FilterResult Batch(BuiltinCall& call) {
  const auto given = call.interpreter().Items(call.self());
  if (!given.ok()) return Generator(call, {}, given.status());
  const Sequence& items = *given;
  ASSIGN_OR_RETURN(const int64_t size, call.Int(0));
  Sequence batches, batch;
  for (const ChatValue& item : items) {
    if (static_cast<int64_t>(batch.size()) == size) {
      batches.push_back(MakeItems(Kind::kList, std::exchange(batch, {}), call.meter()));
    }
    batch.push_back(item);
  }
  if (!batch.empty()) {
    const int64_t missing = size - static_cast<int64_t>(batch.size());
    if (!call.IsMissingOrNone(1) && missing > 0) {
      if (missing > kMaxFill || !call.meter()->Step(missing)) {
        return call.Error("fills with too many values");
      }
      batch.insert(batch.end(), static_cast<size_t>(missing), *call.Get(1));
    }
    batches.push_back(MakeItems(Kind::kList, std::move(batch), call.meter()));
  }
  return Generator(call, std::move(batches));
}

FilterResult Slice(BuiltinCall& call) {
  const auto given = call.interpreter().Items(call.self());
  if (!given.ok()) return Generator(call, {}, given.status());
  const Sequence& items = *given;
  ASSIGN_OR_RETURN(const int64_t slices, call.Int(0));
  if (slices == 0) return Generator(call, {}, call.Error("needs a number that is not zero"));
  if (slices < 0) return Generator(call, {});
  if (slices > kMaxFill) return call.Error("makes too many slices");
  const auto length = static_cast<int64_t>(items.size());
  const int64_t size = length / slices;
  const int64_t larger = length % slices;
  Sequence parts;
  int64_t begin = 0;
  for (int64_t i = 0; i < slices && call.meter()->ok(); ++i) {
    const int64_t end = begin + size + (i < larger ? 1 : 0);
    Sequence part(items.begin() + begin, items.begin() + end);
    if (!call.IsMissingOrNone(1) && i >= larger) part.push_back(*call.Get(1));
    parts.push_back(MakeItems(Kind::kList, std::move(part), call.meter()));
    begin = end;
  }
  return Generator(call, std::move(parts));
}

}  // namespace

BuiltinTable SequenceFilters() {
  static constexpr Builtin kTable[] = {
      {"attr", "name", 1, Attr},
      {"batch", "linecount fill_with", 1, Batch},
      {"count", "", 0, Length},
      {"d", "default_value boolean", 0, Default},
      {"default", "default_value boolean", 0, Default},
      {"dictsort", "case_sensitive by reverse", 0, DictSort},
      {"first", "", 0, First},
      {"groupby", "attribute default case_sensitive", 1, GroupBy},
      {"items", "", 0, Items},
      {"join", "d attribute", 0, JoinFilter},
      {"last", "", 0, Last},
      {"length", "", 0, Length},
      {"list", "", 0, List},
      {"map", "*", 0, Map},
      {"max", "case_sensitive attribute", 0, Extreme<true>},
      {"min", "case_sensitive attribute", 0, Extreme<false>},
      {"reject", "*", 0, Choose<false, false>},
      {"rejectattr", "*", 0, Choose<false, true>},
      {"reverse", "", 0, Reverse},
      {"select", "*", 0, Choose<true, false>},
      {"selectattr", "*", 0, Choose<true, true>},
      {"slice", "slices fill_with", 1, Slice},
      {"sort", "reverse case_sensitive attribute", 0, Sort},
      {"sum", "attribute start", 0, Sum},
      {"unique", "case_sensitive attribute", 0, Unique},
  };
  return kTable;
}

}  // namespace baton
