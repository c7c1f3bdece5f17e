#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/chat/interpreter.h"

namespace baton {
namespace {

using Kind = ChatValue::Kind;

constexpr int64_t kMaxRange = 100'000;  // As in Jinja's sandbox.

absl::StatusOr<ChatValue> ListIndex(BuiltinCall& call) {
  const auto& items = call.self().AsItems();
  const auto length = static_cast<int64_t>(items.size());
  ASSIGN_OR_RETURN(int64_t begin, call.Int(1, 0));
  ASSIGN_OR_RETURN(int64_t end, call.Int(2, length));
  begin = std::max<int64_t>(begin < 0 ? begin + length : begin, 0);
  end = std::min(end < 0 ? end + length : end, length);
  for (int64_t i = begin; i < end; ++i) {
    if (ValuesEqual(items[i], *call.Get(0), call.meter())) return ChatValue::Int(i);
  }
  return call.Error(absl::StrCat("did not find ", ReprForMessage(*call.Get(0))));
}

absl::StatusOr<ChatValue> ListCount(BuiltinCall& call) {
  const auto& items = call.self().AsItems();
  return ChatValue::Int(std::count_if(items.begin(), items.end(), [&](const ChatValue& item) {
    return ValuesEqual(item, *call.Get(0), call.meter());
  }));
}

absl::StatusOr<ChatValue> CopyOf(BuiltinCall& call) { return call.self(); }

absl::StatusOr<ChatValue> DictGet(BuiltinCall& call) {
  if (!IsHashable(*call.Get(0))) return call.Error("needs a key that can be hashed");
  const ChatValue* const found = call.self().AsDict().Find(*call.Get(0), call.meter());
  if (found != nullptr) return *found;
  return call.Get(1) == nullptr ? ChatValue::None() : *call.Get(1);
}

template <DictViewObject::Part part>
absl::StatusOr<ChatValue> DictPart(BuiltinCall& call) {
  auto view = std::make_shared<DictViewObject>();
  view->dict = call.self();
  view->part = part;
  view->depth = call.self().depth() + 1;
  if (view->depth > kMaxValueDepth) call.meter()->Fail("the template nests values too deeply");
  ChargeObject(view.get(), 0, call.meter());
  return ChatValue(Kind::kDictView, std::move(view));
}

absl::StatusOr<ChatValue> Range(BuiltinCall& call) {
  ASSIGN_OR_RETURN(const int64_t first, call.Int(0));
  ASSIGN_OR_RETURN(const int64_t second, call.Int(1));
  ASSIGN_OR_RETURN(const int64_t step, call.Int(2, 1));
  if (step == 0) return call.Error("needs a step that is not zero");
  const bool one = call.Get(1) == nullptr;
  const int64_t start = one ? 0 : first;
  const int64_t stop = one ? first : second;
  // The numbers may be as far apart as int64_t allows, so their distance needs more bits.
  const __int128 span = step > 0 ? __int128{stop} - start : __int128{start} - stop;
  const __int128 width = step > 0 ? __int128{step} : -__int128{step};
  const __int128 length = span <= 0 ? 0 : (span - 1) / width + 1;
  if (length > kMaxRange) return call.Error(absl::StrCat("has more than ", kMaxRange, " numbers"));
  auto range = std::make_shared<RangeObject>();
  range->start = start;
  range->stop = stop;
  range->step = step;
  range->length = static_cast<int64_t>(length);
  ChargeObject(range.get(), 0, call.meter());
  return ChatValue(Kind::kRange, std::move(range));
}

// Adds what dict() takes: a dictionary or pairs, and named values.
absl::Status FillDict(const BuiltinCall& call, ChatDict* dict) {
  const auto& positional = call.raw().positional;
  if (positional.size() > 1) return call.Error("takes at most one unnamed argument");
  if (!positional.empty() && positional[0].IsDict()) {
    *dict = positional[0].AsDict();
  } else if (!positional.empty()) {
    ASSIGN_OR_RETURN(const std::vector<ChatValue> pairs, call.interpreter().Items(positional[0]));
    for (const ChatValue& pair : pairs) {
      ASSIGN_OR_RETURN(const std::vector<ChatValue> items, call.interpreter().Items(pair));
      if (items.size() != 2 || !IsHashable(items[0])) return call.Error("needs pairs");
      dict->Set(items[0], items[1], call.meter());
    }
  }
  for (const auto& [name, value] : call.raw().keywords) {
    // A name can be a key of people's, so it does not count as the template's text.
    dict->Set(MakeText(name, call.meter()), value, call.meter());
  }
  return absl::OkStatus();
}

absl::StatusOr<ChatValue> NewDict(BuiltinCall& call) {
  ChatDict dict;
  RETURN_IF_ERROR(FillDict(call, &dict));
  return MakeDict(std::move(dict), call.meter());
}

absl::StatusOr<ChatValue> NewNamespace(BuiltinCall& call) {
  ChatDict dict;
  RETURN_IF_ERROR(FillDict(call, &dict));
  absl::flat_hash_map<std::string, ChatValue> attributes;
  for (const auto& [key, value] : dict.entries()) {
    if (!key.IsText()) continue;
    const std::string name = key.AsText().Utf8();
    if (absl::StartsWith(name, "_")) {
      return call.Error(absl::StrCat("cannot have the attribute '", name, "'"));
    }
    attributes[name] = value;
  }
  return call.interpreter().MakeNamespace(std::move(attributes));
}

absl::StatusOr<ChatValue> NewCycler(BuiltinCall& call) {
  if (call.raw().positional.empty()) return call.Error("needs an argument");
  auto cycler = std::make_shared<CyclerObject>();
  cycler->items = call.raw().positional;
  cycler->depth = DepthAbove(cycler->items, call.meter());
  ChargeObject(cycler.get(), static_cast<int64_t>(cycler->items.size() * sizeof(ChatValue)),
               call.meter());
  return ChatValue(Kind::kCycler, std::move(cycler));
}

absl::StatusOr<ChatValue> NewJoiner(BuiltinCall& call) {
  auto joiner = std::make_shared<JoinerObject>();
  joiner->separator = call.Get(0) != nullptr ? *call.Get(0) : MakeText(", ", call.meter());
  joiner->depth = joiner->separator.depth() + 1;
  if (joiner->depth > kMaxValueDepth) call.meter()->Fail("the template nests values too deeply");
  ChargeObject(joiner.get(), 0, call.meter());
  return ChatValue(Kind::kJoiner, std::move(joiner));
}

absl::StatusOr<ChatValue> RaiseException(BuiltinCall& call) {
  const ChatValue message = StrOf(*call.Get(0), call.meter());
  RETURN_IF_ERROR(call.meter()->status());
  return absl::InvalidArgumentError(message.AsText().Utf8());
}

absl::StatusOr<ChatValue> StrftimeNow(BuiltinCall& call) {
  ASSIGN_OR_RETURN(const OriginText format, call.Text(0));
  return FormatClock(format, call.interpreter().now(), call.interpreter().zone(), call.meter());
}

}  // namespace

BuiltinTable ListMethods() {
  static constexpr Builtin kTable[] = {
      {"copy", "", 0, CopyOf},
      {"count", "/value", 1, ListCount},
      {"index", "/value start stop", 1, ListIndex},
  };
  return kTable;
}

BuiltinTable DictMethods() {
  static constexpr Builtin kTable[] = {
      {"copy", "", 0, CopyOf},
      {"get", "/key default", 1, DictGet},
      {"items", "", 0, DictPart<DictViewObject::Part::kItems>},
      {"keys", "", 0, DictPart<DictViewObject::Part::kKeys>},
      {"values", "", 0, DictPart<DictViewObject::Part::kValues>},
  };
  return kTable;
}

BuiltinTable GlobalFunctions() {
  static constexpr Builtin kTable[] = {
      {"cycler", "*", 0, NewCycler},
      {"dict", "*", 0, NewDict},
      {"joiner", "sep", 0, NewJoiner},
      {"namespace", "*", 0, NewNamespace},
      {"raise_exception", "message", 1, RaiseException},
      {"range", "/start stop step", 1, Range},
      {"strftime_now", "format", 1, StrftimeNow},
  };
  return kTable;
}

}  // namespace baton
