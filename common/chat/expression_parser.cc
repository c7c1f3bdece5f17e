#include "common/chat/expression_parser.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/chat/builtins.h"

namespace baton {
namespace {

constexpr int kMaxTreeDepth = 400;  // Chains such as a + b + c deepen the tree without nesting.

}  // namespace

int ExpressionParser::Variable(const std::string& name) {
  const auto [place, is_new] =
      tree_->variables.emplace(name, static_cast<int>(tree_->names.size()));
  if (is_new) tree_->names.push_back(name);
  return place->second;
}

ExpressionPtr ExpressionParser::New(ExpressionKind kind, int line) const {
  auto expression = std::make_unique<Expression>();
  expression->kind = kind;
  expression->line = line;
  return expression;
}

void ExpressionParser::AddPart(ExpressionPtr part, Expression* to) {
  if (part != nullptr) to->depth = std::max(to->depth, part->depth + 1);
  to->parts.push_back(std::move(part));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::Binary(ExpressionKind kind, ExpressionPtr left,
                                                       ExpressionPtr right, absl::string_view op) {
  auto expression = New(kind, left->line);
  AddPart(std::move(left), expression.get());
  AddPart(std::move(right), expression.get());
  if (!op.empty()) expression->operators.emplace_back(op);
  return Checked(std::move(expression));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::Checked(ExpressionPtr expression) const {
  if (expression->depth > kMaxTreeDepth) {
    return ErrorAt(expression->line, "the expression has too many parts");
  }
  return expression;
}

ExpressionPtr ExpressionParser::Constant(ChatValue value, int line) const {
  auto expression = New(ExpressionKind::kConst, line);
  expression->value = std::move(value);
  return expression;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseTarget(bool with_namespace) {
  const int line = Now().line;
  auto tuple = New(ExpressionKind::kTuple, line);
  bool is_tuple = false;
  while (true) {
    const bool ends = AtName("in") || AtOperator("=") || AtOperator(")") || AtOperator("|") ||
                      Now().kind == TokenKind::kBlockEnd;
    if (ends && is_tuple) break;
    ASSIGN_OR_RETURN(ExpressionPtr part, ParseOneTarget(with_namespace));
    AddPart(std::move(part), tuple.get());
    if (!TakeOperator(",")) break;
    is_tuple = true;
  }
  if (is_tuple) return tuple;
  return std::move(tuple->parts[0]);
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseOneTarget(bool with_namespace) {
  const Nesting nesting(&nesting_);
  if (nesting.TooDeep()) return Error("brackets are nested too deeply");
  if (TakeOperator("(")) {
    ASSIGN_OR_RETURN(ExpressionPtr tuple, ParseTarget(with_namespace));
    RETURN_IF_ERROR(Expect(")"));
    return tuple;
  }
  auto target = New(ExpressionKind::kName, Now().line);
  ASSIGN_OR_RETURN(const std::string name, TakeAnyName("the name of a variable"));
  static constexpr absl::string_view kConstants[] = {"true", "false", "none",
                                                     "True", "False", "None"};
  if (std::count(std::begin(kConstants), std::end(kConstants), name) > 0) {
    return ErrorAt(target->line, absl::StrCat("cannot set '", name, "'"));
  }
  target->variable = Variable(name);
  if (with_namespace && TakeOperator(".")) {
    target->kind = ExpressionKind::kNamespaceTarget;
    ASSIGN_OR_RETURN(target->name, TakeAnyName("the name of an attribute"));
  }
  return target;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseTuple(const TupleRules& rules) {
  auto tuple = New(ExpressionKind::kTuple, Now().line);
  bool is_tuple = false;
  while (true) {
    const bool ends = Now().kind == TokenKind::kPrintEnd || Now().kind == TokenKind::kBlockEnd ||
                      AtOperator(")") || (!rules.end_name.empty() && AtName(rules.end_name));
    if (ends) {
      if (is_tuple || rules.in_brackets) break;
      return Error(absl::StrCat("expected an expression, found ", Found()));
    }
    ASSIGN_OR_RETURN(ExpressionPtr part, rules.with_conditional ? ParseExpression() : ParseOr());
    AddPart(std::move(part), tuple.get());
    if (!TakeOperator(",")) break;
    is_tuple = true;
  }
  if (is_tuple || tuple->parts.empty()) return Checked(std::move(tuple));
  return std::move(tuple->parts[0]);
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseExpression() {
  const Nesting nesting(&nesting_);
  if (nesting.TooDeep()) return Error("the expression is nested too deeply");
  const size_t unknown = unknown_.size();
  ASSIGN_OR_RETURN(ExpressionPtr value, ParseOr());
  while (TakeName("if")) {
    auto conditional = New(ExpressionKind::kConditional, value->line);
    ASSIGN_OR_RETURN(ExpressionPtr condition, ParseOr());
    ExpressionPtr otherwise;
    if (TakeName("else")) {
      ASSIGN_OR_RETURN(otherwise, ParseExpression());
    }
    AddPart(std::move(condition), conditional.get());
    AddPart(std::move(value), conditional.get());
    AddPart(std::move(otherwise), conditional.get());
    ASSIGN_OR_RETURN(value, Checked(std::move(conditional)));
    unknown_.resize(unknown);  // All of it was conditional.
  }
  return value;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseOr() {
  ASSIGN_OR_RETURN(ExpressionPtr left, ParseAnd());
  while (TakeName("or")) {
    ASSIGN_OR_RETURN(ExpressionPtr right, ParseAnd());
    ASSIGN_OR_RETURN(left, Binary(ExpressionKind::kOr, std::move(left), std::move(right)));
  }
  return left;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseAnd() {
  ASSIGN_OR_RETURN(ExpressionPtr left, ParseNot());
  while (TakeName("and")) {
    ASSIGN_OR_RETURN(ExpressionPtr right, ParseNot());
    ASSIGN_OR_RETURN(left, Binary(ExpressionKind::kAnd, std::move(left), std::move(right)));
  }
  return left;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseNot() {
  if (!AtName("not")) return ParseCompare();
  const Nesting nesting(&nesting_);
  if (nesting.TooDeep()) return Error("the expression is nested too deeply");
  auto result = New(ExpressionKind::kNot, Now().line);
  Skip();
  ASSIGN_OR_RETURN(ExpressionPtr value, ParseNot());
  AddPart(std::move(value), result.get());
  return Checked(std::move(result));
}

std::string ExpressionParser::TakeComparison() {
  for (const absl::string_view op : {"==", "!=", "<=", ">=", "<", ">"}) {
    if (TakeOperator(op)) return std::string(op);
  }
  if (TakeName("in")) return "in";
  if (AtName("not") && Is(Next(), TokenKind::kName, "in")) {
    Skip();
    Skip();
    return "not in";
  }
  return "";
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseCompare() {
  ASSIGN_OR_RETURN(ExpressionPtr first, ParseSum());
  std::string op = TakeComparison();
  if (op.empty()) return first;
  auto compare = New(ExpressionKind::kCompare, first->line);
  AddPart(std::move(first), compare.get());
  for (; !op.empty(); op = TakeComparison()) {
    ASSIGN_OR_RETURN(ExpressionPtr next, ParseSum());
    AddPart(std::move(next), compare.get());
    compare->operators.push_back(op);
  }
  return Checked(std::move(compare));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseBinary(
    std::initializer_list<absl::string_view> operators, Level operand) {
  ASSIGN_OR_RETURN(ExpressionPtr left, (this->*operand)());
  while (Now().kind == TokenKind::kOperator &&
         std::find(operators.begin(), operators.end(), Now().text) != operators.end()) {
    const std::string op = Now().text;
    Skip();
    ASSIGN_OR_RETURN(ExpressionPtr right, (this->*operand)());
    ASSIGN_OR_RETURN(left, Binary(ExpressionKind::kBinary, std::move(left), std::move(right), op));
  }
  return left;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseSum() {
  return ParseBinary({"+", "-"}, &ExpressionParser::ParseConcat);
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseConcat() {
  ASSIGN_OR_RETURN(ExpressionPtr first, ParseProduct());
  if (!AtOperator("~")) return first;
  auto concat = New(ExpressionKind::kConcat, first->line);
  AddPart(std::move(first), concat.get());
  while (TakeOperator("~")) {
    ASSIGN_OR_RETURN(ExpressionPtr next, ParseProduct());
    AddPart(std::move(next), concat.get());
  }
  return Checked(std::move(concat));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseProduct() {
  return ParseBinary({"*", "/", "//", "%"}, &ExpressionParser::ParsePower);
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParsePower() {
  return ParseBinary({"**"}, &ExpressionParser::ParseFilteredUnary);
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseFilteredUnary() { return ParseUnary(true); }

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseUnary(bool with_filter) {
  ExpressionPtr value;
  if (AtOperator("-") || AtOperator("+")) {
    const Nesting nesting(&nesting_);
    if (nesting.TooDeep()) return Error("the expression is nested too deeply");
    auto sign =
        New(AtOperator("-") ? ExpressionKind::kNegative : ExpressionKind::kPositive, Now().line);
    Skip();
    ASSIGN_OR_RETURN(ExpressionPtr operand, ParseUnary(false));
    AddPart(std::move(operand), sign.get());
    value = std::move(sign);
  } else {
    ASSIGN_OR_RETURN(value, ParsePrimary());
  }
  ASSIGN_OR_RETURN(value, ParsePostfix(std::move(value)));
  if (!with_filter) return Checked(std::move(value));
  return ParseFilters(std::move(value));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParsePrimary() {
  const int line = Now().line;
  const std::string text = Now().text;
  switch (Now().kind) {
    case TokenKind::kName:
      Skip();
      return ParseNameOrConstant(text, line);
    case TokenKind::kString:
      return ParseStrings();
    case TokenKind::kInteger:
      Skip();
      return ParseInteger(text, line);
    case TokenKind::kFloat:
      Skip();
      return Constant(ChatValue::Float(std::strtod(text.c_str(), nullptr)), line);
    case TokenKind::kOperator:
      if (text == "(") return ParseBrackets();
      if (text == "[") return ParseList();
      if (text == "{") return ParseDict();
      [[fallthrough]];
    default:
      return Error(absl::StrCat("expected an expression, found ", Found()));
  }
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseNameOrConstant(const std::string& name,
                                                                    int line) {
  if (name == "true" || name == "True") return Constant(ChatValue::Bool(true), line);
  if (name == "false" || name == "False") return Constant(ChatValue::Bool(false), line);
  if (name == "none" || name == "None") return Constant(ChatValue::None(), line);
  auto expression = New(ExpressionKind::kName, line);
  expression->variable = Variable(name);
  for (MacroSignature* signature : signatures_) {
    signature->uses_caller |= expression->variable == kCallerVariable;
    signature->uses_kwargs |= expression->variable == kKwargsVariable;
    signature->uses_varargs |= expression->variable == kVarargsVariable;
  }
  return expression;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseStrings() {
  const int line = Now().line;
  std::string text;
  for (; Now().kind == TokenKind::kString; Skip()) text += Now().text;
  tree_->strings.insert(text);
  return Constant(ChatValue::Text(text, TextOrigin::kTemplate), line);
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseInteger(const std::string& text, int line) {
  const char prefix = text.size() > 1 ? text[1] : '0';
  const int base = prefix == 'x' || prefix == 'X'   ? 16
                   : prefix == 'o' || prefix == 'O' ? 8
                   : prefix == 'b' || prefix == 'B' ? 2
                                                    : 10;
  const char* const digits = text.c_str() + (base == 10 ? 0 : 2);
  char* end = nullptr;
  errno = 0;
  const int64_t value = std::strtoll(digits, &end, base);
  if (*end != 0 || end == digits) {
    return ErrorAt(line, absl::StrCat("'", text, "' is no number"));
  }
  if (errno == 0) return Constant(ChatValue::Int(value), line);
  if (base == 10 && text.size() <= 4300) return Constant(ChatValue::BigInt(text), line);
  return ErrorAt(line, absl::StrCat("the number ", text.substr(0, 40), "... is too large"));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseBrackets() {
  Skip();
  ASSIGN_OR_RETURN(ExpressionPtr value, ParseTuple({.in_brackets = true}));
  RETURN_IF_ERROR(Expect(")"));
  return value;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseList() {
  auto list = New(ExpressionKind::kList, Now().line);
  Skip();
  while (!AtOperator("]")) {
    if (!list->parts.empty()) RETURN_IF_ERROR(Expect(","));
    if (AtOperator("]")) break;
    ASSIGN_OR_RETURN(ExpressionPtr item, ParseExpression());
    AddPart(std::move(item), list.get());
  }
  Skip();
  return Checked(std::move(list));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseDict() {
  auto dict = New(ExpressionKind::kDict, Now().line);
  Skip();
  while (!AtOperator("}")) {
    if (!dict->parts.empty()) RETURN_IF_ERROR(Expect(","));
    if (AtOperator("}")) break;
    ASSIGN_OR_RETURN(ExpressionPtr key, ParseExpression());
    RETURN_IF_ERROR(Expect(":"));
    ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
    AddPart(std::move(key), dict.get());
    AddPart(std::move(value), dict.get());
  }
  Skip();
  return Checked(std::move(dict));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParsePostfix(ExpressionPtr value) {
  while (true) {
    if (AtOperator(".")) {
      ASSIGN_OR_RETURN(value, ParseAttribute(std::move(value)));
    } else if (AtOperator("[")) {
      ASSIGN_OR_RETURN(value, ParseSubscript(std::move(value)));
    } else if (AtOperator("(")) {
      ASSIGN_OR_RETURN(value, ParseCall(std::move(value)));
    } else {
      return value;
    }
  }
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseFilters(ExpressionPtr value) {
  while (true) {
    if (TakeOperator("|")) {
      ASSIGN_OR_RETURN(value, ParseFilter(std::move(value)));
    } else if (AtName("is")) {
      ASSIGN_OR_RETURN(value, ParseTest(std::move(value)));
    } else if (AtOperator("(")) {
      ASSIGN_OR_RETURN(value, ParseCall(std::move(value)));
    } else {
      return Checked(std::move(value));
    }
  }
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseAttribute(ExpressionPtr object) {
  const int line = Now().line;
  Skip();
  if (Now().kind == TokenKind::kInteger) {
    auto item = New(ExpressionKind::kItem, line);
    AddPart(std::move(object), item.get());
    ASSIGN_OR_RETURN(ExpressionPtr index, ParsePrimary());
    AddPart(std::move(index), item.get());
    return Checked(std::move(item));
  }
  auto attribute = New(ExpressionKind::kAttribute, line);
  ASSIGN_OR_RETURN(attribute->name, TakeAnyName("a name or number after '.'"));
  attribute->value = ChatValue::Text(attribute->name, TextOrigin::kTemplate);
  AddPart(std::move(object), attribute.get());
  return Checked(std::move(attribute));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseSubscript(ExpressionPtr object) {
  auto item = New(ExpressionKind::kItem, Now().line);
  Skip();
  AddPart(std::move(object), item.get());
  ExpressionPtr part;
  if (!AtOperator(":")) {
    ASSIGN_OR_RETURN(part, ParseExpression());
  }
  if (AtOperator(":")) {
    item->kind = ExpressionKind::kSlice;
    AddPart(std::move(part), item.get());
    for (int i = 0; i < 2; ++i) {
      part = nullptr;
      if (TakeOperator(":") && !AtOperator(":") && !AtOperator("]")) {
        ASSIGN_OR_RETURN(part, ParseExpression());
      }
      AddPart(std::move(part), item.get());
    }
  } else {
    AddPart(std::move(part), item.get());
  }
  if (AtOperator(",")) return Error("a subscript of several parts is not supported");
  RETURN_IF_ERROR(Expect("]"));
  return Checked(std::move(item));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseCall(ExpressionPtr callee) {
  auto call = New(ExpressionKind::kCall, Now().line);
  AddPart(std::move(callee), call.get());
  RETURN_IF_ERROR(ParseArguments(call.get()));
  return Checked(std::move(call));
}

absl::Status ExpressionParser::ParseArguments(Expression* call) {
  RETURN_IF_ERROR(Expect("("));
  bool first = true;
  while (!AtOperator(")")) {
    if (!first) RETURN_IF_ERROR(Expect(","));
    if (!first && AtOperator(")")) break;
    first = false;
    RETURN_IF_ERROR(ParseArgument(call));
  }
  return Expect(")");
}

absl::Status ExpressionParser::ParseArgument(Expression* call) {
  const bool star = AtOperator("*");
  const bool double_star = AtOperator("**");
  const bool keyword = Now().kind == TokenKind::kName && Is(Next(), TokenKind::kOperator, "=");
  const bool misplaced = call->double_star != nullptr ||
                         (call->star != nullptr && !double_star && !keyword) ||
                         (!call->keywords.empty() && !star && !double_star && !keyword);
  if (misplaced) return Error("an argument of a call is at the wrong place");
  std::string name;
  if (keyword) {
    name = Now().text;
    Skip();
  }
  if (keyword || star || double_star) Skip();
  ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
  call->depth = std::max(call->depth, value->depth + 1);
  if (star) {
    call->star = std::move(value);
  } else if (double_star) {
    call->double_star = std::move(value);
  } else if (keyword) {
    for (const auto& [other, unused] : call->keywords) {
      if (other == name) return Error(absl::StrCat("the argument '", name, "' occurs twice"));
    }
    if (call->keywords.size() >= 100) return Error("a call has too many named arguments");
    call->keywords.emplace_back(name, std::move(value));
  } else {
    AddPart(std::move(value), call);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ExpressionParser::ParseDottedName(absl::string_view what) {
  ASSIGN_OR_RETURN(std::string name, TakeAnyName(what));
  while (TakeOperator(".")) {
    ASSIGN_OR_RETURN(const std::string part, TakeAnyName(what));
    absl::StrAppend(&name, ".", part);
  }
  return name;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseFilter(ExpressionPtr value) {
  auto filter = New(ExpressionKind::kFilter, Now().line);
  AddPart(std::move(value), filter.get());
  ASSIGN_OR_RETURN(filter->name, ParseDottedName("the name of a filter"));
  if (!conditional_ && !IsFilterName(filter->name)) {
    unknown_.push_back(
        ErrorAt(filter->line, absl::StrCat("there is no filter '", filter->name, "'")));
  }
  if (AtOperator("(")) RETURN_IF_ERROR(ParseArguments(filter.get()));
  return Checked(std::move(filter));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseTest(ExpressionPtr value) {
  auto test = New(ExpressionKind::kTest, Now().line);
  Skip();
  const bool negated = TakeName("not");
  AddPart(std::move(value), test.get());
  ASSIGN_OR_RETURN(test->name, ParseDottedName("the name of a test"));
  if (!conditional_ && !IsTestName(test->name)) {
    unknown_.push_back(ErrorAt(test->line, absl::StrCat("there is no test '", test->name, "'")));
  }
  if (AtName("is")) return Error("a test cannot follow a test");
  if (AtOperator("(")) {
    RETURN_IF_ERROR(ParseArguments(test.get()));
  } else if (BeginsTestArgument()) {
    ASSIGN_OR_RETURN(ExpressionPtr argument, ParsePrimary());
    ASSIGN_OR_RETURN(argument, ParsePostfix(std::move(argument)));
    AddPart(std::move(argument), test.get());
  }
  if (!negated) return Checked(std::move(test));
  auto result = New(ExpressionKind::kNot, test->line);
  AddPart(std::move(test), result.get());
  return Checked(std::move(result));
}

bool ExpressionParser::BeginsTestArgument() const {
  switch (Now().kind) {
    case TokenKind::kName:
      return !AtName("else") && !AtName("or") && !AtName("and");
    case TokenKind::kString:
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return true;
    default:
      return AtOperator("[") || AtOperator("{");
  }
}

}  // namespace baton
