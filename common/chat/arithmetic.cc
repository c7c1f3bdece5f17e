#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/chat/interpreter.h"

namespace baton {
namespace {

using Kind = ChatValue::Kind;

absl::Status ArithmeticError(absl::string_view what) { return absl::FailedPreconditionError(what); }

absl::Status TooLarge() { return ArithmeticError("the result is an integer beyond 64 bits"); }

absl::StatusOr<ChatValue> IntPower(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return ArithmeticError("0 cannot be raised to a negative power");
    return ChatValue::Float(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) return TooLarge();
    exponent >>= 1;
    // The last square is not needed, and may be too large although the result is not.
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return TooLarge();
  }
  return ChatValue::Int(result);
}

// Returns an integer that may lie beyond 64 bits. It can then be printed, but not computed with.
ChatValue WideInt(__int128 value) {
  if (value >= std::numeric_limits<int64_t>::min() &&
      value <= std::numeric_limits<int64_t>::max()) {
    return ChatValue::Int(static_cast<int64_t>(value));
  }
  unsigned __int128 rest =
      value < 0 ? -static_cast<unsigned __int128>(value) : static_cast<unsigned __int128>(value);
  std::string digits;
  for (; rest > 0; rest /= 10)
    digits.push_back(static_cast<char>('0' + static_cast<int>(rest % 10)));
  if (value < 0) digits.push_back('-');
  std::reverse(digits.begin(), digits.end());
  return ChatValue::BigInt(digits);
}

absl::StatusOr<ChatValue> IntOperation(absl::string_view op, int64_t a, int64_t b) {
  if (op == "+") return WideInt(__int128{a} + b);
  if (op == "-") return WideInt(__int128{a} - b);
  if (op == "*") return WideInt(__int128{a} * b);
  if (op == "**") return IntPower(a, b);
  if (b == 0) return ArithmeticError("division by zero");
  if (op == "/") return ChatValue::Float(static_cast<double>(a) / static_cast<double>(b));
  if (b == -1) return op == "%" ? ChatValue::Int(0) : WideInt(-__int128{a});
  // The quotient is rounded down, and the rest has the sign of the divisor.
  int64_t rest = a % b;
  int64_t quotient = a / b;
  if (rest != 0 && (rest < 0) != (b < 0)) {
    rest += b;
    --quotient;
  }
  return ChatValue::Int(op == "%" ? rest : quotient);
}

absl::StatusOr<ChatValue> FloatOperation(absl::string_view op, double a, double b) {
  if (op == "+") return ChatValue::Float(a + b);
  if (op == "-") return ChatValue::Float(a - b);
  if (op == "*") return ChatValue::Float(a * b);
  if (op == "**") {
    if (a == 0 && b < 0) return ArithmeticError("0 cannot be raised to a negative power");
    if (a < 0 && std::isfinite(a) && std::isfinite(b) && std::floor(b) != b) {
      return ArithmeticError("the result is a complex number");
    }
    const double power = std::pow(a, b);
    if (std::isinf(power) && std::isfinite(a) && std::isfinite(b)) {
      return ArithmeticError("the result is too large");
    }
    return ChatValue::Float(power);
  }
  if (b == 0) return ArithmeticError("division by zero");
  if (op == "/") return ChatValue::Float(a / b);
  double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0 && (rest < 0) != (b < 0)) {
    rest += b;
    quotient -= 1;
  } else if (rest == 0) {
    rest = std::copysign(0.0, b);
  }
  if (op == "%") return ChatValue::Float(rest);
  if (quotient == 0) return ChatValue::Float(std::copysign(0.0, a / b));
  const double whole = std::floor(quotient);
  return ChatValue::Float(quotient - whole > 0.5 ? whole + 1 : whole);
}

absl::StatusOr<ChatValue> Repeated(const ChatValue& value, int64_t times, RenderMeter* meter) {
  times = std::max<int64_t>(times, 0);
  const int64_t length =
      static_cast<int64_t>(value.IsText() ? value.AsText().size() : value.AsItems().size());
  const int64_t unit =
      static_cast<int64_t>(value.IsText() ? sizeof(OriginChar) : sizeof(ChatValue));
  int64_t bytes = 0;
  if (__builtin_mul_overflow(length, times, &bytes) ||
      __builtin_mul_overflow(bytes, unit, &bytes)) {
    bytes = std::numeric_limits<int64_t>::max();
  }
  if (length == 0) times = 0;
  if (!meter->Allows(bytes) || !meter->Step(bytes / 64)) return meter->status();
  if (value.IsText()) {
    OriginText text;
    for (int64_t i = 0; i < times; ++i) text.Append(value.AsText());
    return MakeText(std::move(text), meter);
  }
  std::vector<ChatValue> items;
  for (int64_t i = 0; i < times; ++i) {
    items.insert(items.end(), value.AsItems().begin(), value.AsItems().end());
  }
  return MakeItems(value.kind(), std::move(items), meter);
}

absl::StatusOr<ChatValue> Joined(const ChatValue& a, const ChatValue& b, RenderMeter* meter) {
  if (a.IsText()) {
    const bool escapes = a.IsMarkup() || b.IsMarkup();
    TextBuilder text(meter);
    text.Append(escapes ? EscapedText(a, meter).AsText() : a.AsText());
    text.Append(escapes ? EscapedText(b, meter).AsText() : b.AsText());
    return escapes ? MarkupOf(text.TakeText(), meter) : text.Finish();
  }
  const auto bytes = (a.AsItems().size() + b.AsItems().size()) * sizeof(ChatValue);
  if (!meter->Allows(static_cast<int64_t>(bytes))) return meter->status();
  std::vector<ChatValue> items = a.AsItems();
  items.insert(items.end(), b.AsItems().begin(), b.AsItems().end());
  return MakeItems(a.kind(), std::move(items), meter);
}

}  // namespace

absl::StatusOr<ChatValue> BinaryOperation(absl::string_view op, const ChatValue& a,
                                          const ChatValue& b, Interpreter* interpreter) {
  RenderMeter* const meter = interpreter->meter();
  if (op == "%" && a.IsText()) {
    meter->Characters(static_cast<int64_t>(a.AsText().size()));
    return PercentFormat(a.AsText(), b, interpreter);
  }
  for (const ChatValue* value : {&a, &b}) {
    if (value->IsUndefined()) return ArithmeticError(value->As<UndefinedObject>().why);
  }
  if (a.IsSmallInt() && b.IsSmallInt()) return IntOperation(op, a.AsInt(), b.AsInt());
  if (a.IsNumber() && b.IsNumber()) {
    if (a.Is(Kind::kFloat) || b.Is(Kind::kFloat)) {
      return FloatOperation(op, a.AsFloat(), b.AsFloat());
    }
    return ArithmeticError("integers beyond 64 bits cannot be computed with");
  }
  const bool a_repeats = a.IsText() || a.IsSequence();
  const bool b_repeats = b.IsText() || b.IsSequence();
  if (op == "*" && a_repeats && b.IsSmallInt()) return Repeated(a, b.AsInt(), meter);
  if (op == "*" && b_repeats && a.IsSmallInt()) return Repeated(b, a.AsInt(), meter);
  if (op == "+" && a_repeats && a.kind() == b.kind()) return Joined(a, b, meter);
  return ArithmeticError(absl::StrCat("unsupported operand types for ", op, ": '", a.TypeName(),
                                      "' and '", b.TypeName(), "'"));
}

absl::StatusOr<ChatValue> Negated(const ChatValue& value) {
  if (value.IsSmallInt()) return WideInt(-__int128{value.AsInt()});
  if (value.Is(Kind::kBigInt)) {
    const std::string& digits = value.As<BigIntObject>().digits;
    if (digits == "9223372036854775808") return WideInt(std::numeric_limits<int64_t>::min());
    return ChatValue::BigInt(digits[0] == '-' ? digits.substr(1) : absl::StrCat("-", digits));
  }
  if (value.Is(Kind::kFloat)) return ChatValue::Float(-value.AsFloat());
  if (value.IsUndefined()) return ArithmeticError(value.As<UndefinedObject>().why);
  return ArithmeticError(absl::StrCat("bad operand for unary -: '", value.TypeName(), "'"));
}

}  // namespace baton
