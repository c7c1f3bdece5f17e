#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/chat/interpreter.h"
#include "common/chat/text_case.h"

namespace baton {
namespace {

using Kind = ChatValue::Kind;
using TestResult = absl::StatusOr<ChatValue>;

template <Kind kind, bool is>
TestResult HasKind(BuiltinCall& call) {
  return ChatValue::Bool(call.self().Is(kind) == is);
}

template <int64_t value>
TestResult IsBool(BuiltinCall& call) {
  return ChatValue::Bool(call.self().Is(Kind::kBool) && call.self().AsInt() == value);
}

TestResult IsInteger(BuiltinCall& call) {
  return ChatValue::Bool(call.self().Is(Kind::kInt) || call.self().Is(Kind::kBigInt));
}

TestResult IsNumber(BuiltinCall& call) { return ChatValue::Bool(call.self().IsNumber()); }

TestResult IsSequence(BuiltinCall& call) {
  const ChatValue& value = call.self();
  return ChatValue::Bool(value.IsText() || value.IsSequence() || value.IsDict() ||
                         value.Is(Kind::kRange) || value.IsUndefined());
}

TestResult IsIterable(BuiltinCall& call) {
  const ChatValue& value = call.self();
  return ChatValue::Bool(value.IsText() || value.IsSequence() || value.IsDict() ||
                         value.Is(Kind::kRange) || value.IsUndefined() ||
                         value.Is(Kind::kDictView) || value.Is(Kind::kIterator) ||
                         value.Is(Kind::kLoop));
}

TestResult IsCallable(BuiltinCall& call) {
  const ChatValue& value = call.self();
  return ChatValue::Bool(value.Is(Kind::kMacro) || value.Is(Kind::kMethod) ||
                         value.Is(Kind::kFunction) || value.Is(Kind::kLoop) ||
                         value.Is(Kind::kJoiner) || value.IsUndefined());
}

TestResult IsEscaped(BuiltinCall& call) { return ChatValue::Bool(call.self().IsMarkup()); }

TestResult IsFilter(BuiltinCall& call) {
  return ChatValue::Bool(call.self().IsText() && IsFilterName(call.self().AsText().Utf8()));
}

TestResult IsTest(BuiltinCall& call) {
  return ChatValue::Bool(call.self().IsText() && IsTestName(call.self().AsText().Utf8()));
}

template <bool upper>
TestResult HasCase(BuiltinCall& call) {
  return ChatValue::Bool(IsAllOfCase(call.SelfText().AsText(), upper));
}

TestResult Remainder(BuiltinCall& call, const ChatValue& divisor, int64_t wanted) {
  if (!call.self().IsNumber()) {
    return call.Error(absl::StrCat("needs a number, not ", ReprForMessage(call.self())));
  }
  ASSIGN_OR_RETURN(const ChatValue rest,
                   BinaryOperation("%", call.self(), divisor, &call.interpreter()));
  return ChatValue::Bool(ValuesEqual(rest, ChatValue::Int(wanted), call.meter()));
}

TestResult IsOdd(BuiltinCall& call) { return Remainder(call, ChatValue::Int(2), 1); }
TestResult IsEven(BuiltinCall& call) { return Remainder(call, ChatValue::Int(2), 0); }
TestResult IsDivisible(BuiltinCall& call) { return Remainder(call, *call.Get(0), 0); }

TestResult IsSame(BuiltinCall& call) {
  const ChatValue& a = call.self();
  const ChatValue& b = *call.Get(0);
  if (a.kind() != b.kind()) return ChatValue::Bool(false);
  if (a.object() != nullptr) return ChatValue::Bool(a.object() == b.object());
  if (a.Is(Kind::kFloat)) return ChatValue::Bool(a.AsFloat() == b.AsFloat());
  return ChatValue::Bool(a.IsNone() || a.AsInt() == b.AsInt());
}

TestResult IsIn(BuiltinCall& call) {
  ASSIGN_OR_RETURN(const bool in, call.interpreter().Contains(*call.Get(0), call.self()));
  return ChatValue::Bool(in);
}

template <bool is>
TestResult IsEqual(BuiltinCall& call) {
  return ChatValue::Bool(ValuesEqual(call.self(), *call.Get(0), call.meter()) == is);
}

enum class Order { kLess, kLessEqual, kGreater, kGreaterEqual };

template <Order order>
TestResult IsOrdered(BuiltinCall& call) {
  constexpr bool kSwapped = order == Order::kGreater || order == Order::kLessEqual;
  const ChatValue& left = kSwapped ? *call.Get(0) : call.self();
  const ChatValue& right = kSwapped ? call.self() : *call.Get(0);
  for (const ChatValue* value : {&left, &right}) {
    if (value->IsUndefined())
      return absl::FailedPreconditionError(value->As<UndefinedObject>().why);
  }
  bool less = false;
  if (!ValueLess(left, right, call.meter(), &less)) {
    return call.Error(
        absl::StrCat("cannot order '", left.TypeName(), "' and '", right.TypeName(), "'"));
  }
  return ChatValue::Bool(less == (order == Order::kLess || order == Order::kGreater));
}

}  // namespace

BuiltinTable ValueTests() {
  static constexpr Builtin kTable[] = {
      {"boolean", "", 0, HasKind<Kind::kBool, true>},
      {"callable", "", 0, IsCallable},
      {"defined", "", 0, HasKind<Kind::kUndefined, false>},
      {"divisibleby", "num", 1, IsDivisible},
      {"eq", "/other", 1, IsEqual<true>},
      {"==", "/other", 1, IsEqual<true>},
      {"equalto", "/other", 1, IsEqual<true>},
      {"escaped", "", 0, IsEscaped},
      {"even", "", 0, IsEven},
      {"false", "", 0, IsBool<0>},
      {"filter", "", 0, IsFilter},
      {"float", "", 0, HasKind<Kind::kFloat, true>},
      {"ge", "/other", 1, IsOrdered<Order::kGreaterEqual>},
      {">=", "/other", 1, IsOrdered<Order::kGreaterEqual>},
      {"gt", "/other", 1, IsOrdered<Order::kGreater>},
      {">", "/other", 1, IsOrdered<Order::kGreater>},
      {"greaterthan", "/other", 1, IsOrdered<Order::kGreater>},
      {"in", "seq", 1, IsIn},
      {"integer", "", 0, IsInteger},
      {"iterable", "", 0, IsIterable},
      {"le", "/other", 1, IsOrdered<Order::kLessEqual>},
      {"<=", "/other", 1, IsOrdered<Order::kLessEqual>},
      {"lessthan", "/other", 1, IsOrdered<Order::kLess>},
      {"lower", "", 0, HasCase<false>},
      {"lt", "/other", 1, IsOrdered<Order::kLess>},
      {"<", "/other", 1, IsOrdered<Order::kLess>},
      {"mapping", "", 0, HasKind<Kind::kDict, true>},
      {"ne", "/other", 1, IsEqual<false>},
      {"!=", "/other", 1, IsEqual<false>},
      {"none", "", 0, HasKind<Kind::kNone, true>},
      {"number", "", 0, IsNumber},
      {"odd", "", 0, IsOdd},
      {"sameas", "other", 1, IsSame},
      {"sequence", "", 0, IsSequence},
      {"string", "", 0, HasKind<Kind::kText, true>},
      {"test", "", 0, IsTest},
      {"true", "", 0, IsBool<1>},
      {"undefined", "", 0, HasKind<Kind::kUndefined, true>},
      {"upper", "", 0, HasCase<true>},
  };
  return kTable;
}

}  // namespace baton
