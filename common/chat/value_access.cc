#include <algorithm>
#include <iterator>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/chat/interpreter.h"

namespace baton {
namespace {

using Kind = ChatValue::Kind;

absl::Status AccessError(absl::string_view what) { return absl::FailedPreconditionError(what); }

// Methods that change a list or a dictionary, which Jinja's immutable sandbox refuses to call.
bool IsChangingMethod(const ChatValue& value, absl::string_view name) {
  static constexpr absl::string_view kOfLists[] = {"append", "clear", "pop",    "reverse",
                                                   "insert", "sort",  "extend", "remove"};
  static constexpr absl::string_view kOfDicts[] = {"clear", "pop", "popitem", "setdefault",
                                                   "update"};
  const auto has = [&](const auto& names) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  return (value.Is(Kind::kList) && has(kOfLists)) || (value.IsDict() && has(kOfDicts));
}

BuiltinTable MethodsOf(const ChatValue& value) {
  if (value.IsText()) return TextMethods();
  if (value.IsSequence()) return ListMethods();
  if (value.IsDict()) return DictMethods();
  return {};
}

}  // namespace

std::string ObjectName(const ChatValue& value) {
  if (value.IsNone()) return "None";
  return absl::StrCat(value.TypeName(), " object");
}

absl::Span<const absl::string_view> LoopAttributes() {
  static constexpr absl::string_view kAttributes[] = {
      "index",    "index0",   "revindex", "revindex0", "first", "last",   "length",
      "previtem", "nextitem", "depth",    "depth0",    "cycle", "changed"};
  return kAttributes;
}

absl::StatusOr<bool> Interpreter::Contains(const ChatValue& container, const ChatValue& item) {
  if (container.IsText()) {
    if (!item.IsText()) {
      return AccessError(absl::StrCat("'in' needs a text on its left, not a ", ObjectName(item)));
    }
    const OriginText& text = container.AsText();
    meter_.Characters(static_cast<int64_t>(text.size() + item.AsText().size()));
    return OriginTextSearch(item.AsText()).Find(text, 0, text.size()) != OriginTextSearch::kNone;
  }
  const bool keys = container.Is(Kind::kDictView) &&
                    container.As<DictViewObject>().part == DictViewObject::Part::kKeys;
  if (container.IsDict() || keys) {
    if (!IsHashable(item)) {
      return AccessError(absl::StrCat("a ", item.TypeName(), " cannot be a key"));
    }
    const ChatValue& dict = keys ? container.As<DictViewObject>().dict : container;
    return dict.AsDict().Find(item, &meter_) != nullptr;
  }
  ASSIGN_OR_RETURN(const std::vector<ChatValue> items, Items(container));
  return std::any_of(items.begin(), items.end(),
                     [&](const ChatValue& other) { return ValuesEqual(other, item, &meter_); });
}

absl::StatusOr<std::vector<ChatValue>> Interpreter::Items(const ChatValue& value) {
  std::vector<ChatValue> items;
  switch (value.kind()) {
    case Kind::kUndefined:
      return items;
    case Kind::kList:
    case Kind::kTuple:
      meter_.Step(static_cast<int64_t>(value.AsItems().size() / 4));
      return value.AsItems();
    case Kind::kText:
      for (const OriginChar c : value.AsText().chars()) {
        if (!meter_.ok()) break;
        OriginText text;
        text.Append(c);
        items.push_back(MakeText(std::move(text), &meter_));
      }
      break;
    case Kind::kDict:
      for (const auto& [key, unused] : value.AsDict().entries()) items.push_back(key);
      break;
    case Kind::kDictView: {
      const auto& view = value.As<DictViewObject>();
      for (const auto& [key, item] : view.dict.AsDict().entries()) {
        items.push_back(view.part == DictViewObject::Part::kKeys ? key
                        : view.part == DictViewObject::Part::kValues
                            ? item
                            : MakeItems(Kind::kTuple, {key, item}, &meter_));
      }
      break;
    }
    case Kind::kRange: {
      const auto& range = value.As<RangeObject>();
      for (int64_t i = 0; i < range.length; ++i) items.push_back(ChatValue::Int(range.At(i)));
      break;
    }
    case Kind::kIterator: {
      auto& iterator = value.As<IteratorObject>();
      items.assign(iterator.items.begin() + iterator.next, iterator.items.end());
      iterator.next = iterator.items.size();
      RETURN_IF_ERROR(iterator.end);
      break;
    }
    default:
      return AccessError(absl::StrCat("a ", ObjectName(value), " is not iterable"));
  }
  meter_.Step(static_cast<int64_t>(items.size()));
  RETURN_IF_ERROR(meter_.status());
  return items;
}

absl::StatusOr<ChatValue> Subscript(const ChatValue& object, int64_t index, RenderMeter* meter) {
  const bool is_range = object.Is(Kind::kRange);
  const int64_t length = is_range ? object.As<RangeObject>().length
                                  : static_cast<int64_t>(object.IsText() ? object.AsText().size()
                                                                         : object.AsItems().size());
  if (index < 0) index += length;
  if (index < 0 || index >= length) {
    return MakeUndefined(absl::StrCat(ObjectName(object), " has no element ", index), meter);
  }
  if (is_range) return ChatValue::Int(object.As<RangeObject>().At(index));
  if (!object.IsText()) return object.AsItems()[index];
  return MakeText(object.AsText().Part(index, index + 1), meter);
}

absl::StatusOr<ChatValue> Interpreter::GetItem(const ChatValue& value, const ChatValue& key) {
  if (value.IsUndefined()) return AccessError(value.As<UndefinedObject>().why);
  if (value.IsDict()) {
    if (key.IsText()) meter_.Characters(static_cast<int64_t>(key.AsText().size()));
    if (const ChatValue* const item = value.AsDict().Find(key, &meter_)) return *item;
  } else if (key.IsSmallInt() && (value.IsSequence() || value.IsText() || value.Is(Kind::kRange))) {
    return Subscript(value, key.AsInt(), &meter_);
  }
  if (key.IsText()) {
    ASSIGN_OR_RETURN(const std::optional<ChatValue> attribute, FindAttribute(value, key));
    if (attribute.has_value()) return *attribute;
    return Undefined(
        absl::StrCat("'", ObjectName(value), "' has no attribute ", ReprForMessage(key)));
  }
  return Undefined(absl::StrCat(ObjectName(value), " has no element ", ReprForMessage(key)));
}

absl::StatusOr<ChatValue> Interpreter::GetAttribute(const ChatValue& value, const ChatValue& name) {
  if (value.IsUndefined()) return AccessError(value.As<UndefinedObject>().why);
  ASSIGN_OR_RETURN(const std::optional<ChatValue> attribute, FindAttribute(value, name));
  if (attribute.has_value()) return *attribute;
  if (value.IsDict()) {
    if (const ChatValue* const item = value.AsDict().Find(name, &meter_)) return *item;
  }
  return Undefined(
      absl::StrCat("'", ObjectName(value), "' has no attribute ", ReprForMessage(name)));
}

absl::StatusOr<std::optional<ChatValue>> Interpreter::FindAttribute(const ChatValue& value,
                                                                    const ChatValue& name) {
  meter_.Characters(static_cast<int64_t>(name.AsText().size()));
  const std::string text = name.AsText().Utf8();
  if (value.Is(Kind::kNamespace)) {
    const auto& attributes = value.As<NamespaceObject>().attributes;
    const auto found = attributes.find(text);
    if (found != attributes.end()) return found->second;
  }
  if ((absl::StartsWith(text, "__") && absl::EndsWith(text, "__")) ||
      IsChangingMethod(value, text)) {
    return Undefined(absl::StrCat("access to attribute '", text, "' of '", value.TypeName(),
                                  "' object is unsafe."));
  }
  if (const Builtin* const method = FindBuiltin(MethodsOf(value), text)) {
    return MakeMethod(value, *method);
  }
  switch (value.kind()) {
    case Kind::kLoop:
      return LoopAttribute(value, text);
    case Kind::kTuple:
      if (!value.As<ItemsObject>().is_group) return std::nullopt;
      if (text == "grouper") return value.AsItems()[0];
      if (text == "list") return value.AsItems()[1];
      return std::nullopt;
    case Kind::kCycler: {
      const auto& cycler = value.As<CyclerObject>();
      if (text == "current") return cycler.items[cycler.at];
      break;
    }
    case Kind::kMacro:
      if (text == "name") return MakeText(value.As<MacroObject>().statement->name, &meter_);
      return std::nullopt;
    default:
      break;
  }
  static constexpr Builtin kCyclerMethods[] = {
      {"next", "", 0,
       [](BuiltinCall& call) -> absl::StatusOr<ChatValue> {
         auto& cycler = call.self().As<CyclerObject>();
         const ChatValue item = cycler.items[cycler.at];
         cycler.at = (cycler.at + 1) % cycler.items.size();
         return item;
       }},
      {"reset", "", 0, [](BuiltinCall& call) -> absl::StatusOr<ChatValue> {
         call.self().As<CyclerObject>().at = 0;
         return ChatValue::None();
       }}};
  if (value.Is(Kind::kCycler)) {
    if (const Builtin* const method = FindBuiltin(kCyclerMethods, text)) {
      return MakeMethod(value, *method);
    }
  }
  return std::nullopt;
}

ChatValue Interpreter::MakeMethod(const ChatValue& self, const Builtin& method) {
  auto object = std::make_shared<MethodObject>();
  object->self = self;
  object->method = &method;
  object->depth = self.depth() + 1;
  if (object->depth > kMaxValueDepth) meter_.Fail("the template nests values too deeply");
  ChargeObject(object.get(), 0, &meter_);
  return ChatValue(Kind::kMethod, std::move(object));
}

absl::StatusOr<std::optional<ChatValue>> Interpreter::LoopAttribute(const ChatValue& value,
                                                                    absl::string_view name) {
  auto& loop = value.As<LoopObject>();
  if (absl::c_count(LoopAttributes(), name) == 0) {
    return std::nullopt;
  }
  Count("attribute", absl::StrCat("loop.", name));
  static constexpr Builtin kMethods[] = {
      {"cycle", "*", 0,
       [](BuiltinCall& call) -> absl::StatusOr<ChatValue> {
         const auto& items = call.raw().positional;
         if (items.empty()) return call.Error("needs an argument");
         return items[call.self().As<LoopObject>().index0 % static_cast<int64_t>(items.size())];
       }},
      {"changed", "*", 0, [](BuiltinCall& call) -> absl::StatusOr<ChatValue> {
         auto& loop = call.self().As<LoopObject>();
         const ChatValue now = MakeItems(Kind::kTuple, call.raw().positional, call.meter());
         if (loop.changed.has_value() && ValuesEqual(*loop.changed, now, call.meter())) {
           return ChatValue::Bool(false);
         }
         if (loop.running) loop.changed = now;
         return ChatValue::Bool(true);
       }}};
  if (const Builtin* const method = FindBuiltin(kMethods, name)) return MakeMethod(value, *method);
  if (name == "index0") return ChatValue::Int(loop.index0);
  if (name == "index") return ChatValue::Int(loop.index0 + 1);
  if (name == "depth0") return ChatValue::Int(loop.depth0);
  if (name == "depth") return ChatValue::Int(loop.depth0 + 1);
  if (name == "first") return ChatValue::Bool(loop.index0 == 0);
  if (name == "previtem") {
    return loop.index0 > 0 ? *loop.before : Undefined("there is no previous item");
  }
  if (name == "last" || name == "nextitem") {
    if (!loop.after.has_value()) RETURN_IF_ERROR(Pull(&loop, &loop.after).status());
    if (name == "last") return ChatValue::Bool(!loop.after.has_value());
    return loop.after.has_value() ? *loop.after : Undefined("there is no next item");
  }
  if (loop.keep != nullptr) {  // The length is known once the rest has been tried.
    std::vector<ChatValue> rest;
    std::optional<ChatValue> item;
    while (true) {
      ASSIGN_OR_RETURN(const bool found, Pull(&loop, &item));
      if (!found) break;
      rest.push_back(*item);
    }
    const int64_t taken = loop.index0 + 1 + (loop.after.has_value() ? 1 : 0);
    loop.next = static_cast<size_t>(taken);
    loop.source.assign(taken, ChatValue::None());
    loop.source.insert(loop.source.end(), rest.begin(), rest.end());
    loop.keep = nullptr;
  }
  const int64_t length = static_cast<int64_t>(loop.source.size());
  if (name == "revindex0") return ChatValue::Int(length - loop.index0 - 1);
  if (name == "revindex") return ChatValue::Int(length - loop.index0);
  return ChatValue::Int(length);
}

}  // namespace baton
