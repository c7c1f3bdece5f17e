#include <algorithm>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/chat/interpreter.h"

namespace baton {
namespace {

using Kind = ChatValue::Kind;

constexpr absl::string_view kExpressionNames[] = {
    "const",   "name",   "namespace target", "list",     "tuple",       "dict", "attribute", "item",
    "slice",   "call",   "filter",           "test",     "conditional", "and",  "or",        "not",
    "compare", "binary", "negative",         "positive", "concat"};

absl::Status EvaluationError(absl::string_view what) { return absl::FailedPreconditionError(what); }

// Turns `start:stop:step` into the items of a sequence of `length`, as Python does.
struct SliceRange {
  int64_t start, step, count;
};
SliceRange ResolveSlice(const std::optional<int64_t>& start, const std::optional<int64_t>& stop,
                        int64_t step, int64_t length) {
  const int64_t lowest = step < 0 ? -1 : 0;
  const int64_t highest = step < 0 ? length - 1 : length;
  const auto clamp = [&](const std::optional<int64_t>& place, int64_t otherwise) {
    if (!place.has_value()) return otherwise;
    return std::clamp(*place < 0 ? *place + length : *place, lowest, highest);
  };
  const int64_t first = clamp(start, step < 0 ? highest : lowest);
  const int64_t last = clamp(stop, step < 0 ? lowest : highest);
  const int64_t span = step < 0 ? first - last : last - first;
  // A step beyond the length takes one item, whatever it is.
  const int64_t width = std::min(step < 0 ? -std::max(step, -length - 1) : step, length + 1);
  return {first, step, span <= 0 ? 0 : (span - 1) / width + 1};
}

}  // namespace

std::vector<std::string> InterpreterConstructs() {
  std::vector<std::string> names;
  for (const char* statement : {"output", "if", "for", "break", "continue", "macro", "call block",
                                "filter block", "set", "set block", "with", "generation"}) {
    names.push_back(absl::StrCat("statement ", statement));
  }
  for (const absl::string_view expression : kExpressionNames) {
    if (expression != "namespace target") names.push_back(absl::StrCat("expression ", expression));
  }
  for (const absl::string_view attribute : LoopAttributes()) {
    names.push_back(absl::StrCat("attribute loop.", attribute));
  }
  return names;
}

absl::StatusOr<ChatValue> Interpreter::Evaluate(const Expression& expression) {
  const Depth depth(this);
  meter_.Step();
  Count("expression", kExpressionNames[static_cast<size_t>(expression.kind)]);
  auto value = meter_.ok() ? EvaluateKind(expression) : meter_.status();
  if (!value.ok()) return AtLine(expression.line, value.status());
  return value;
}

absl::StatusOr<ChatValue> Interpreter::EvaluateKind(const Expression& expression) {
  switch (expression.kind) {
    case ExpressionKind::kConst:
      return expression.value;
    case ExpressionKind::kName:
    case ExpressionKind::kNamespaceTarget:
      return Lookup(expression);
    case ExpressionKind::kList:
    case ExpressionKind::kTuple:
      return EvaluateItems(expression);
    case ExpressionKind::kDict:
      return EvaluateDict(expression);
    case ExpressionKind::kAttribute: {
      ASSIGN_OR_RETURN(const ChatValue object, Evaluate(*expression.parts[0]));
      return GetAttribute(object, expression.value);
    }
    case ExpressionKind::kItem: {
      ASSIGN_OR_RETURN(const ChatValue object, Evaluate(*expression.parts[0]));
      ASSIGN_OR_RETURN(const ChatValue key, Evaluate(*expression.parts[1]));
      return GetItem(object, key);
    }
    case ExpressionKind::kSlice:
      return EvaluateSlice(expression);
    case ExpressionKind::kCall:
      return EvaluateCall(expression, nullptr);
    case ExpressionKind::kFilter:
      return EvaluateFilter(expression, nullptr);
    case ExpressionKind::kTest:
      return EvaluateTest(expression);
    case ExpressionKind::kConditional:
      return EvaluateConditional(expression);
    case ExpressionKind::kAnd:
    case ExpressionKind::kOr: {
      ASSIGN_OR_RETURN(ChatValue left, Evaluate(*expression.parts[0]));
      if (left.IsTrue() == (expression.kind == ExpressionKind::kOr)) return left;
      return Evaluate(*expression.parts[1]);
    }
    case ExpressionKind::kNot: {
      ASSIGN_OR_RETURN(const ChatValue value, Evaluate(*expression.parts[0]));
      return ChatValue::Bool(!value.IsTrue());
    }
    case ExpressionKind::kCompare:
      return EvaluateCompare(expression);
    case ExpressionKind::kBinary: {
      ASSIGN_OR_RETURN(const ChatValue left, Evaluate(*expression.parts[0]));
      ASSIGN_OR_RETURN(const ChatValue right, Evaluate(*expression.parts[1]));
      return BinaryOperation(expression.operators[0], left, right, this);
    }
    case ExpressionKind::kNegative: {
      ASSIGN_OR_RETURN(const ChatValue value, Evaluate(*expression.parts[0]));
      return Negated(value);
    }
    case ExpressionKind::kPositive: {
      ASSIGN_OR_RETURN(const ChatValue value, Evaluate(*expression.parts[0]));
      if (value.Is(Kind::kBool)) return ChatValue::Int(value.AsInt());
      if (value.IsNumber()) return value;
      return EvaluationError(absl::StrCat("bad operand for unary +: ", ObjectName(value)));
    }
    case ExpressionKind::kConcat:
      return EvaluateConcat(expression);
  }
  return EvaluationError("an unknown expression");
}

absl::StatusOr<ChatValue> Interpreter::Lookup(const Expression& name) {
  for (const TemplateScope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get()) {
    meter_.Step();
    const auto found = scope->variables.find(name.variable);
    if (found != scope->variables.end()) return found->second;
  }
  const std::string& text = tree_.names[name.variable];
  if (const Builtin* const function = FindBuiltin(GlobalFunctions(), text)) {
    auto object = std::make_shared<FunctionObject>();
    object->function = function;
    ChargeObject(object.get(), 0, &meter_);
    return ChatValue(Kind::kFunction, std::move(object));
  }
  return Undefined(absl::StrCat("'", text, "' is undefined"));
}

absl::StatusOr<ChatValue> Interpreter::EvaluateItems(const Expression& expression) {
  std::vector<ChatValue> items;
  for (const ExpressionPtr& part : expression.parts) {
    ASSIGN_OR_RETURN(ChatValue item, Evaluate(*part));
    items.push_back(std::move(item));
  }
  return MakeItems(expression.kind == ExpressionKind::kList ? Kind::kList : Kind::kTuple,
                   std::move(items), &meter_);
}

absl::StatusOr<ChatValue> Interpreter::EvaluateDict(const Expression& expression) {
  ChatDict dict;
  for (size_t i = 0; i < expression.parts.size(); i += 2) {
    ASSIGN_OR_RETURN(const ChatValue key, Evaluate(*expression.parts[i]));
    ASSIGN_OR_RETURN(const ChatValue value, Evaluate(*expression.parts[i + 1]));
    if (!IsHashable(key)) {
      return EvaluationError(absl::StrCat("a ", key.TypeName(), " cannot be a key"));
    }
    dict.Set(key, value, &meter_);
  }
  return MakeDict(std::move(dict), &meter_);
}

absl::StatusOr<ChatValue> Interpreter::EvaluateSlice(const Expression& expression) {
  ASSIGN_OR_RETURN(const ChatValue object, Evaluate(*expression.parts[0]));
  std::optional<int64_t> bounds[3];
  for (int i = 0; i < 3; ++i) {
    if (expression.parts[i + 1] == nullptr) continue;
    ASSIGN_OR_RETURN(const ChatValue bound, Evaluate(*expression.parts[i + 1]));
    if (bound.IsNone()) continue;
    if (!bound.IsSmallInt()) {
      return EvaluationError(
          absl::StrCat("the bound of a slice must be a whole number, not ", ObjectName(bound)));
    }
    bounds[i] = bound.AsInt();
  }
  const int64_t step = bounds[2].value_or(1);
  if (step == 0) return EvaluationError("the step of a slice cannot be zero");
  if (object.IsUndefined()) return EvaluationError(object.As<UndefinedObject>().why);
  if (object.Is(Kind::kRange)) {
    const auto& range = object.As<RangeObject>();
    const SliceRange slice = ResolveSlice(bounds[0], bounds[1], step, range.length);
    std::vector<ChatValue> items;  // Printing such a slice is the only way to see the difference.
    for (int64_t i = 0; i < slice.count; ++i) {
      items.push_back(ChatValue::Int(range.At(slice.start + i * step)));
    }
    return MakeItems(Kind::kList, std::move(items), &meter_);
  }
  if (object.IsText()) {
    const OriginText& text = object.AsText();
    const SliceRange slice =
        ResolveSlice(bounds[0], bounds[1], step, static_cast<int64_t>(text.size()));
    TextBuilder out(&meter_);
    if (step == 1) {
      out.Append(text, slice.start, slice.start + slice.count);
    } else {
      for (int64_t i = 0; i < slice.count; ++i) out.Append(text[slice.start + i * step]);
    }
    return out.Finish();
  }
  if (!object.IsSequence()) {
    return EvaluationError(absl::StrCat("a ", ObjectName(object), " cannot be sliced"));
  }
  const auto& items = object.AsItems();
  const SliceRange slice =
      ResolveSlice(bounds[0], bounds[1], step, static_cast<int64_t>(items.size()));
  std::vector<ChatValue> part;
  for (int64_t i = 0; i < slice.count; ++i) part.push_back(items[slice.start + i * step]);
  return MakeItems(object.kind(), std::move(part), &meter_);
}

absl::Status Interpreter::EvaluateArguments(const Expression& expression,
                                            CallArguments* arguments) {
  for (size_t i = 1; i < expression.parts.size(); ++i) {
    ASSIGN_OR_RETURN(ChatValue value, Evaluate(*expression.parts[i]));
    arguments->positional.push_back(std::move(value));
  }
  for (const auto& [name, part] : expression.keywords) {
    ASSIGN_OR_RETURN(ChatValue value, Evaluate(*part));
    arguments->keywords.emplace_back(name, std::move(value));
  }
  if (expression.star != nullptr) {
    ASSIGN_OR_RETURN(const ChatValue star, Evaluate(*expression.star));
    ASSIGN_OR_RETURN(const std::vector<ChatValue> items, Items(star));
    arguments->positional.insert(arguments->positional.end(), items.begin(), items.end());
  }
  if (expression.double_star == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const ChatValue stars, Evaluate(*expression.double_star));
  if (!stars.IsDict()) return EvaluationError("the value behind ** must be a dictionary");
  if (stars.AsDict().entries().size() > 1000) {
    return EvaluationError("the dictionary behind ** has more than 1000 entries");
  }
  for (const auto& [key, value] : stars.AsDict().entries()) {
    if (!key.IsText()) return EvaluationError("the keys behind ** must be texts");
    std::string name = key.AsText().Utf8();
    for (const auto& [other, unused] : expression.keywords) {
      if (other == name) return EvaluationError(absl::StrCat("two values for '", name, "'"));
    }
    arguments->keywords.emplace_back(std::move(name), value);
  }
  return absl::OkStatus();
}

absl::StatusOr<ChatValue> Interpreter::EvaluateCall(const Expression& expression,
                                                    const ChatValue* caller) {
  ASSIGN_OR_RETURN(const ChatValue callee, Evaluate(*expression.parts[0]));
  CallArguments arguments;
  RETURN_IF_ERROR(EvaluateArguments(expression, &arguments));
  if (caller != nullptr) arguments.keywords.emplace_back("caller", *caller);
  return Call(callee, &arguments);
}

absl::StatusOr<ChatValue> Interpreter::Call(const ChatValue& callee, CallArguments* arguments) {
  switch (callee.kind()) {
    case Kind::kMacro:
      return CallMacro(callee.As<MacroObject>(), arguments);
    case Kind::kLoop:
      return CallLoop(callee.As<LoopObject>(), arguments);
    case Kind::kMethod: {
      const auto& method = callee.As<MethodObject>();
      return CallBuiltin(absl::StrCat("method ", method.self.TypeName()), *method.method,
                         method.self, arguments);
    }
    case Kind::kFunction:
      return CallBuiltin("function", *callee.As<FunctionObject>().function, callee, arguments);
    case Kind::kJoiner: {
      auto& joiner = callee.As<JoinerObject>();
      if (std::exchange(joiner.used, true)) return joiner.separator;
      return MakeText("", &meter_);
    }
    case Kind::kUndefined:
      return EvaluationError(callee.As<UndefinedObject>().why);
    default:
      return EvaluationError(absl::StrCat("a ", ObjectName(callee), " cannot be called"));
  }
}

absl::StatusOr<ChatValue> Interpreter::CallBuiltin(absl::string_view kind, const Builtin& builtin,
                                                   const ChatValue& self,
                                                   CallArguments* arguments) {
  const Depth depth(this);
  Count(kind, builtin.name);
  // The work of most builtins grows with their texts.
  if (self.IsText()) meter_.Characters(static_cast<int64_t>(self.AsText().size()));
  for (const ChatValue& argument : arguments->positional) {
    if (argument.IsText()) meter_.Characters(static_cast<int64_t>(argument.AsText().size()));
  }
  RETURN_IF_ERROR(meter_.status());
  BuiltinCall call(this, builtin, self, arguments);
  RETURN_IF_ERROR(call.Bind());
  return builtin.function(call);
}

absl::StatusOr<ChatValue> Interpreter::EvaluateFilter(const Expression& filter,
                                                      const ChatValue* value) {
  ChatValue input;
  if (filter.parts[0] != nullptr && filter.parts[0]->kind == ExpressionKind::kFilter &&
      value != nullptr) {
    const Depth depth(this);  // A chain of filters of a block.
    RETURN_IF_ERROR(meter_.status());
    ASSIGN_OR_RETURN(input, EvaluateFilter(*filter.parts[0], value));
  } else if (filter.parts[0] != nullptr) {
    ASSIGN_OR_RETURN(input, Evaluate(*filter.parts[0]));
  } else {
    input = *value;
  }
  CallArguments arguments;
  RETURN_IF_ERROR(EvaluateArguments(filter, &arguments));
  return CallFilter(filter.name, input, &arguments);
}

absl::StatusOr<ChatValue> Interpreter::CallFilter(absl::string_view name, const ChatValue& value,
                                                  CallArguments* arguments) {
  const Builtin* const filter = FindFilter(name);
  if (filter == nullptr) return EvaluationError(absl::StrCat("there is no filter '", name, "'"));
  return CallBuiltin("filter", *filter, value, arguments);
}

absl::StatusOr<ChatValue> Interpreter::EvaluateTest(const Expression& expression) {
  ASSIGN_OR_RETURN(const ChatValue value, Evaluate(*expression.parts[0]));
  CallArguments arguments;
  RETURN_IF_ERROR(EvaluateArguments(expression, &arguments));
  ASSIGN_OR_RETURN(const bool result, CallTest(expression.name, value, &arguments));
  return ChatValue::Bool(result);
}

absl::StatusOr<bool> Interpreter::CallTest(absl::string_view name, const ChatValue& value,
                                           CallArguments* arguments) {
  const Builtin* const test = FindBuiltin(ValueTests(), name);
  if (test == nullptr) return EvaluationError(absl::StrCat("there is no test '", name, "'"));
  ASSIGN_OR_RETURN(const ChatValue result, CallBuiltin("test", *test, value, arguments));
  return result.IsTrue();
}

absl::StatusOr<ChatValue> Interpreter::EvaluateConditional(const Expression& expression) {
  ASSIGN_OR_RETURN(const ChatValue condition, Evaluate(*expression.parts[0]));
  if (condition.IsTrue()) return Evaluate(*expression.parts[1]);
  if (expression.parts[2] != nullptr) return Evaluate(*expression.parts[2]);
  return Undefined(absl::StrCat("the inline if-expression on line ", expression.line,
                                " evaluated to false and no else section was defined."));
}

absl::StatusOr<ChatValue> Interpreter::EvaluateCompare(const Expression& expression) {
  ASSIGN_OR_RETURN(ChatValue left, Evaluate(*expression.parts[0]));
  for (size_t i = 1; i < expression.parts.size(); ++i) {
    ASSIGN_OR_RETURN(ChatValue right, Evaluate(*expression.parts[i]));
    ASSIGN_OR_RETURN(const bool result, Compare(expression.operators[i - 1], left, right));
    if (!result) return ChatValue::Bool(false);
    left = std::move(right);
  }
  return ChatValue::Bool(true);
}

absl::StatusOr<bool> Interpreter::Compare(absl::string_view op, const ChatValue& a,
                                          const ChatValue& b) {
  if (op == "==") return ValuesEqual(a, b, &meter_);
  if (op == "!=") return !ValuesEqual(a, b, &meter_);
  if (op == "in") return Contains(b, a);
  if (op == "not in") {
    ASSIGN_OR_RETURN(const bool contains, Contains(b, a));
    return !contains;
  }
  for (const ChatValue* value : {&a, &b}) {
    if (value->IsUndefined()) return EvaluationError(value->As<UndefinedObject>().why);
  }
  bool less = false;
  const bool swapped = op == ">" || op == "<=";
  if (!(swapped ? ValueLess(b, a, &meter_, &less) : ValueLess(a, b, &meter_, &less))) {
    return EvaluationError(absl::StrCat("'", op, "' is not supported between instances of '",
                                        a.TypeName(), "' and '", b.TypeName(), "'"));
  }
  if (op == "<" || op == ">") return less;
  // Nothing is ordered beside a NaN, so neither <= nor >= is then true.
  const auto is_nan = [](const ChatValue& v) { return v.IsNumber() && v.AsFloat() != v.AsFloat(); };
  return !less && !is_nan(a) && !is_nan(b);
}

absl::StatusOr<ChatValue> Interpreter::EvaluateConcat(const Expression& expression) {
  TextBuilder text(&meter_);
  for (const ExpressionPtr& part : expression.parts) {
    ASSIGN_OR_RETURN(const ChatValue value, Evaluate(*part));
    AppendStr(value, &text);
  }
  return text.Finish();
}

}  // namespace baton
