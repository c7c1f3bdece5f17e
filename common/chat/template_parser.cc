#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/chat/builtins.h"
#include "common/chat/template_lexer.h"
#include "common/chat/template_syntax.h"

namespace baton {
namespace {

using TokenKind = TemplateToken::Kind;
using MutableExpression = std::unique_ptr<Expression>;
using MutableStatement = std::unique_ptr<Statement>;

constexpr int kMaxNesting = 100;    // Open brackets and blocks. Bounds the parser's stack.
constexpr int kMaxTreeDepth = 400;  // Chains such as a + b + c deepen the tree without nesting.

// A recursive-descent parser with one function for each level of Jinja's grammar.
class TemplateParser {
 public:
  explicit TemplateParser(std::vector<TemplateToken> tokens)
      : tokens_(std::move(tokens)), tree_(std::make_unique<TemplateTree>()) {
    for (const char* name : {"loop", "caller", "kwargs", "varargs"}) Variable(name);
  }

  absl::StatusOr<std::unique_ptr<const TemplateTree>> Parse() {
    RETURN_IF_ERROR(ParseBody({}, &tree_->statements));
    if (!unknown_.empty()) return unknown_.front();
    return std::move(tree_);
  }

 private:
  // ---- Tokens.

  const TemplateToken& Now() const { return tokens_[at_]; }
  const TemplateToken& Next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  void Skip() { at_ = std::min(at_ + 1, tokens_.size() - 1); }
  static bool Is(const TemplateToken& token, TokenKind kind, absl::string_view text) {
    return token.kind == kind && token.text == text;
  }
  bool AtOperator(absl::string_view text) const { return Is(Now(), TokenKind::kOperator, text); }
  bool AtName(absl::string_view text) const { return Is(Now(), TokenKind::kName, text); }
  bool TakeOperator(absl::string_view text) {
    if (!AtOperator(text)) return false;
    Skip();
    return true;
  }
  bool TakeName(absl::string_view text) {
    if (!AtName(text)) return false;
    Skip();
    return true;
  }

  static absl::Status ErrorAt(int line, absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("line ", line, ": ", what));
  }
  absl::Status Error(absl::string_view what) const { return ErrorAt(Now().line, what); }
  std::string Found() const {
    switch (Now().kind) {
      case TokenKind::kEnd:
        return "the end of the template";
      case TokenKind::kBlockEnd:
        return "the end of the tag";
      case TokenKind::kPrintEnd:
        return "the end of the expression";
      default:
        return absl::StrCat("'", Now().text, "'");
    }
  }
  absl::Status Expect(absl::string_view op) {
    if (TakeOperator(op)) return absl::OkStatus();
    return Error(absl::StrCat("expected '", op, "', found ", Found()));
  }
  absl::Status ExpectName(absl::string_view name) {
    if (TakeName(name)) return absl::OkStatus();
    return Error(absl::StrCat("expected '", name, "', found ", Found()));
  }
  absl::Status ExpectKind(TokenKind kind, absl::string_view what) {
    if (Now().kind != kind) return Error(absl::StrCat("expected ", what, ", found ", Found()));
    Skip();
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> TakeAnyName(absl::string_view what) {
    if (Now().kind != TokenKind::kName) {
      return Error(absl::StrCat("expected ", what, ", found ", Found()));
    }
    std::string name = Now().text;
    Skip();
    return name;
  }

  int Variable(const std::string& name) {
    const auto [place, is_new] =
        tree_->variables.emplace(name, static_cast<int>(tree_->names.size()));
    if (is_new) tree_->names.push_back(name);
    return place->second;
  }

  // ---- Building the tree.

  MutableExpression New(ExpressionKind kind, int line) const {
    auto expression = std::make_unique<Expression>();
    expression->kind = kind;
    expression->line = line;
    return expression;
  }
  static void AddPart(MutableExpression part, Expression* to) {
    if (part != nullptr) to->depth = std::max(to->depth, part->depth + 1);
    to->parts.push_back(std::move(part));
  }
  absl::StatusOr<MutableExpression> Binary(ExpressionKind kind, MutableExpression left,
                                           MutableExpression right, absl::string_view op = "") {
    auto expression = New(kind, left->line);
    AddPart(std::move(left), expression.get());
    AddPart(std::move(right), expression.get());
    if (!op.empty()) expression->operators.emplace_back(op);
    return Checked(std::move(expression));
  }
  absl::StatusOr<MutableExpression> Checked(MutableExpression expression) const {
    if (expression->depth > kMaxTreeDepth) {
      return ErrorAt(expression->line, "the expression has too many parts");
    }
    return expression;
  }
  MutableExpression Constant(ChatValue value, int line) const {
    auto expression = New(ExpressionKind::kConst, line);
    expression->value = std::move(value);
    return expression;
  }

  // Counts open brackets and blocks, from construction to destruction.
  class Nesting {
   public:
    explicit Nesting(int* depth) : depth_(depth) { ++*depth_; }
    ~Nesting() { --*depth_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;
    bool TooDeep() const { return *depth_ > kMaxNesting; }

   private:
    int* const depth_;
  };

  // ---- Statements.

  // Parses statements up to one of the tags `ends`, which is left where it is, or up to the end of
  // the template if there are none.
  absl::Status ParseBody(std::initializer_list<absl::string_view> ends, Statements* body) {
    const Nesting nesting(&nesting_);
    if (nesting.TooDeep()) return Error("blocks are nested too deeply");
    while (Now().kind != TokenKind::kEnd) {
      if (Now().kind == TokenKind::kBlockBegin) {
        if (Next().kind == TokenKind::kName &&
            std::find(ends.begin(), ends.end(), Next().text) != ends.end()) {
          Skip();
          return absl::OkStatus();
        }
        ASSIGN_OR_RETURN(MutableStatement statement, ParseTag());
        body->push_back(std::move(statement));
      } else {
        RETURN_IF_ERROR(ParseOutput(body));
      }
    }
    if (ends.size() == 0) return absl::OkStatus();
    return Error(absl::StrCat("the template ends where a tag '", absl::StrJoin(ends, "' or '"),
                              "' is missing"));
  }

  absl::Status ParseOutput(Statements* body) {
    if (body->empty() || body->back()->kind != StatementKind::kOutput) {
      auto output = std::make_unique<Statement>();
      output->line = Now().line;
      body->push_back(std::move(output));
    }
    // The last statement was made by this function, and nobody else holds it yet.
    auto* const output = const_cast<Statement*>(body->back().get());
    const int line = Now().line;
    if (Now().kind == TokenKind::kData) {
      output->expressions.push_back(
          Constant(ChatValue::Text(Now().text, TextOrigin::kTemplate), line));
      Skip();
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(ExpectKind(TokenKind::kPrintBegin, "a tag"));
    ASSIGN_OR_RETURN(MutableExpression expression, ParseTuple(TupleRules{}));
    output->expressions.push_back(std::move(expression));
    return ExpectKind(TokenKind::kPrintEnd, "'}}'");
  }

  // Parses "{% if ... %} ... {% endif %}" and its like.
  absl::StatusOr<MutableStatement> ParseTag() {
    Skip();
    auto statement = std::make_unique<Statement>();
    statement->line = Now().line;
    ASSIGN_OR_RETURN(const std::string tag, TakeAnyName("the name of a tag"));
    RETURN_IF_ERROR(ParseTagNamed(tag, statement.get()));
    RETURN_IF_ERROR(ExpectKind(TokenKind::kBlockEnd, "'%}'"));
    return statement;
  }

  absl::Status ParseTagNamed(const std::string& tag, Statement* statement) {
    if (tag == "if") return ParseIf(statement);
    if (tag == "for") return ParseFor(statement);
    if (tag == "set") return ParseSet(statement);
    if (tag == "macro") return ParseMacro(statement);
    if (tag == "call") return ParseCallBlock(statement);
    if (tag == "filter") return ParseFilterBlock(statement);
    if (tag == "with") return ParseWith(statement);
    if (tag == "print") return ParsePrint(statement);
    if (tag == "break" || tag == "continue") {
      statement->kind = tag == "break" ? StatementKind::kBreak : StatementKind::kContinue;
      return loops_ > 0 ? absl::OkStatus()
                        : ErrorAt(statement->line, absl::StrCat("'", tag, "' outside of a loop"));
    }
    if (tag == "generation") {
      statement->kind = StatementKind::kGeneration;
      return ParseFunctionBody({"endgeneration"}, statement);
    }
    return ErrorAt(statement->line, absl::StrCat("the tag '", tag, "' is not supported"));
  }

  // Parses the end of a tag, and the body up to one of `ends`, whose name is returned and skipped.
  absl::StatusOr<std::string> ParseBlock(std::initializer_list<absl::string_view> ends,
                                         Statement* statement) {
    TakeOperator(":");
    RETURN_IF_ERROR(ExpectKind(TokenKind::kBlockEnd, "'%}'"));
    Statements body;
    RETURN_IF_ERROR(ParseBody(ends, &body));
    statement->bodies.push_back(std::move(body));
    return TakeAnyName("the name of a tag");
  }

  // Parses the body of a block that has variables of its own. `conditional_` says whether code may
  // be left out, as only then may it use filters that do not exist.
  absl::Status ParseScopeBody(std::initializer_list<absl::string_view> ends, Statement* statement) {
    const bool was_conditional = std::exchange(conditional_, false);
    const auto end = ParseBlock(ends, statement);
    conditional_ = was_conditional;
    return end.status();
  }

  // Parses the body of a block that is a function, which a `break` cannot leave.
  absl::Status ParseFunctionBody(std::initializer_list<absl::string_view> ends,
                                 Statement* statement) {
    const int loops = std::exchange(loops_, 0);
    const absl::Status status = ParseScopeBody(ends, statement);
    loops_ = loops;
    return status;
  }

  absl::Status ParseIf(Statement* statement) {
    statement->kind = StatementKind::kIf;
    const bool was_conditional = std::exchange(conditional_, true);
    std::string end = "elif";
    while (end == "elif") {
      ASSIGN_OR_RETURN(MutableExpression condition, ParseTuple({.with_conditional = false}));
      statement->expressions.push_back(std::move(condition));
      ASSIGN_OR_RETURN(end, ParseBlock({"elif", "else", "endif"}, statement));
    }
    if (end == "else") RETURN_IF_ERROR(ParseBlock({"endif"}, statement).status());
    conditional_ = was_conditional;
    return absl::OkStatus();
  }

  absl::Status ParseFor(Statement* statement) {
    statement->kind = StatementKind::kFor;
    ASSIGN_OR_RETURN(MutableExpression target, ParseTarget(false));
    if (SetsVariable(*target, kLoopVariable)) {
      return ErrorAt(target->line, "a loop cannot set the variable 'loop'");
    }
    statement->targets.push_back(std::move(target));
    RETURN_IF_ERROR(ExpectName("in"));
    ASSIGN_OR_RETURN(MutableExpression items,
                     ParseTuple({.with_conditional = false, .end_name = "recursive"}));
    statement->expressions.push_back(std::move(items));
    statement->expressions.push_back(nullptr);
    if (TakeName("if")) {
      ASSIGN_OR_RETURN(statement->expressions[1], ParseExpression());
    }
    statement->recursive = TakeName("recursive");
    const bool was_conditional = std::exchange(conditional_, false);
    ++loops_;
    ASSIGN_OR_RETURN(const std::string end, ParseBlock({"endfor", "else"}, statement));
    --loops_;
    if (end == "else") RETURN_IF_ERROR(ParseBlock({"endfor"}, statement).status());
    conditional_ = was_conditional;
    return absl::OkStatus();
  }

  static bool SetsVariable(const Expression& target, int variable) {
    if (target.kind == ExpressionKind::kName) return target.variable == variable;
    return std::any_of(target.parts.begin(), target.parts.end(),
                       [&](const ExpressionPtr& part) { return SetsVariable(*part, variable); });
  }

  absl::Status ParseSet(Statement* statement) {
    ASSIGN_OR_RETURN(MutableExpression target, ParseTarget(true));
    statement->targets.push_back(std::move(target));
    if (TakeOperator("=")) {
      statement->kind = StatementKind::kSet;
      ASSIGN_OR_RETURN(MutableExpression value, ParseTuple(TupleRules{}));
      statement->expressions.push_back(std::move(value));
      return absl::OkStatus();
    }
    statement->kind = StatementKind::kSetBlock;
    MutableExpression filter;
    while (TakeOperator("|")) {
      ASSIGN_OR_RETURN(filter, ParseFilter(std::move(filter)));
    }
    statement->expressions.push_back(std::move(filter));
    return ParseScopeBody({"endset"}, statement);
  }

  absl::Status ParseMacro(Statement* statement) {
    statement->kind = StatementKind::kMacro;
    ASSIGN_OR_RETURN(statement->name, TakeAnyName("the name of a macro"));
    statement->variable = Variable(statement->name);
    return ParseSignatureAndBody("endmacro", statement);
  }

  absl::Status ParseCallBlock(Statement* statement) {
    statement->kind = StatementKind::kCallBlock;
    statement->name = "caller";
    if (AtOperator("(")) RETURN_IF_ERROR(ParseSignature(&statement->signature));
    ASSIGN_OR_RETURN(MutableExpression call, ParseExpression());
    if (call->kind != ExpressionKind::kCall) {
      return ErrorAt(statement->line, "the tag 'call' needs a call");
    }
    statement->expressions.push_back(std::move(call));
    return ParseMacroBody("endcall", statement);
  }

  absl::Status ParseSignatureAndBody(absl::string_view end, Statement* statement) {
    RETURN_IF_ERROR(ParseSignature(&statement->signature));
    return ParseMacroBody(end, statement);
  }

  absl::Status ParseMacroBody(absl::string_view end, Statement* statement) {
    signatures_.push_back(&statement->signature);
    const absl::Status status = ParseFunctionBody({end}, statement);
    signatures_.pop_back();
    RETURN_IF_ERROR(status);
    MacroSignature& signature = statement->signature;
    for (size_t i = 0; i < signature.variables.size(); ++i) {
      const int variable = signature.variables[i];
      if (variable == kKwargsVariable) signature.uses_kwargs = false;
      if (variable == kVarargsVariable) signature.uses_varargs = false;
      if (variable != kCallerVariable) continue;
      signature.uses_caller = false;
      if (i + signature.defaults.size() < signature.variables.size()) {
        return ErrorAt(statement->line, "the parameter 'caller' needs a default");
      }
    }
    return absl::OkStatus();
  }

  absl::Status ParseSignature(MacroSignature* signature) {
    RETURN_IF_ERROR(Expect("("));
    while (!AtOperator(")")) {
      if (!signature->names.empty()) RETURN_IF_ERROR(Expect(","));
      ASSIGN_OR_RETURN(const std::string name, TakeAnyName("the name of a parameter"));
      if (std::count(signature->names.begin(), signature->names.end(), name) > 0) {
        return Error(absl::StrCat("the parameter '", name, "' occurs twice"));
      }
      if (signature->names.size() >= 100) return Error("a macro has too many parameters");
      signature->names.push_back(name);
      signature->variables.push_back(Variable(name));
      if (TakeOperator("=")) {
        ASSIGN_OR_RETURN(MutableExpression value, ParseExpression());
        signature->defaults.push_back(std::move(value));
      } else if (!signature->defaults.empty()) {
        return Error(absl::StrCat("the parameter '", name, "' needs a default"));
      }
    }
    return Expect(")");
  }

  absl::Status ParseFilterBlock(Statement* statement) {
    statement->kind = StatementKind::kFilterBlock;
    ASSIGN_OR_RETURN(MutableExpression filter, ParseFilter(nullptr));
    while (TakeOperator("|")) {
      ASSIGN_OR_RETURN(filter, ParseFilter(std::move(filter)));
    }
    statement->expressions.push_back(std::move(filter));
    return ParseScopeBody({"endfilter"}, statement);
  }

  absl::Status ParseWith(Statement* statement) {
    statement->kind = StatementKind::kWith;
    while (Now().kind != TokenKind::kBlockEnd) {
      if (!statement->targets.empty()) RETURN_IF_ERROR(Expect(","));
      ASSIGN_OR_RETURN(MutableExpression target, ParseTarget(false));
      statement->targets.push_back(std::move(target));
      RETURN_IF_ERROR(Expect("="));
      ASSIGN_OR_RETURN(MutableExpression value, ParseExpression());
      statement->expressions.push_back(std::move(value));
    }
    return ParseScopeBody({"endwith"}, statement);
  }

  absl::Status ParsePrint(Statement* statement) {
    statement->kind = StatementKind::kOutput;
    while (Now().kind != TokenKind::kBlockEnd) {
      if (!statement->expressions.empty()) RETURN_IF_ERROR(Expect(","));
      ASSIGN_OR_RETURN(MutableExpression value, ParseExpression());
      statement->expressions.push_back(std::move(value));
    }
    return absl::OkStatus();
  }

  // ---- Targets of assignments: names, tuples of names, attributes of namespaces.

  absl::StatusOr<MutableExpression> ParseTarget(bool with_namespace) {
    const int line = Now().line;
    auto tuple = New(ExpressionKind::kTuple, line);
    bool is_tuple = false;
    while (true) {
      const bool ends = AtName("in") || AtOperator("=") || AtOperator(")") || AtOperator("|") ||
                        Now().kind == TokenKind::kBlockEnd;
      if (ends && is_tuple) break;
      ASSIGN_OR_RETURN(MutableExpression part, ParseOneTarget(with_namespace));
      AddPart(std::move(part), tuple.get());
      if (!TakeOperator(",")) break;
      is_tuple = true;
    }
    if (is_tuple) return tuple;
    return std::unique_ptr<Expression>(const_cast<Expression*>(tuple->parts[0].release()));
  }

  absl::StatusOr<MutableExpression> ParseOneTarget(bool with_namespace) {
    const Nesting nesting(&nesting_);
    if (nesting.TooDeep()) return Error("brackets are nested too deeply");
    if (TakeOperator("(")) {
      ASSIGN_OR_RETURN(MutableExpression tuple, ParseTarget(with_namespace));
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

  // ---- Expressions, from the weakest operator to the strongest.

  struct TupleRules {
    bool with_conditional = true;
    absl::string_view end_name = "";
    bool in_brackets = false;
  };

  absl::StatusOr<MutableExpression> ParseTuple(const TupleRules& rules) {
    auto tuple = New(ExpressionKind::kTuple, Now().line);
    bool is_tuple = false;
    while (true) {
      const bool ends = Now().kind == TokenKind::kPrintEnd || Now().kind == TokenKind::kBlockEnd ||
                        AtOperator(")") || (!rules.end_name.empty() && AtName(rules.end_name));
      if (ends) {
        if (is_tuple || rules.in_brackets) break;
        return Error(absl::StrCat("expected an expression, found ", Found()));
      }
      ASSIGN_OR_RETURN(MutableExpression part,
                       rules.with_conditional ? ParseExpression() : ParseOr());
      AddPart(std::move(part), tuple.get());
      if (!TakeOperator(",")) break;
      is_tuple = true;
    }
    if (is_tuple || tuple->parts.empty()) return Checked(std::move(tuple));
    return std::unique_ptr<Expression>(const_cast<Expression*>(tuple->parts[0].release()));
  }

  absl::StatusOr<MutableExpression> ParseExpression() {
    const Nesting nesting(&nesting_);
    if (nesting.TooDeep()) return Error("the expression is nested too deeply");
    const size_t unknown = unknown_.size();
    ASSIGN_OR_RETURN(MutableExpression value, ParseOr());
    while (TakeName("if")) {
      auto conditional = New(ExpressionKind::kConditional, value->line);
      ASSIGN_OR_RETURN(MutableExpression condition, ParseOr());
      MutableExpression otherwise;
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

  absl::StatusOr<MutableExpression> ParseOr() {
    ASSIGN_OR_RETURN(MutableExpression left, ParseAnd());
    while (TakeName("or")) {
      ASSIGN_OR_RETURN(MutableExpression right, ParseAnd());
      ASSIGN_OR_RETURN(left, Binary(ExpressionKind::kOr, std::move(left), std::move(right)));
    }
    return left;
  }

  absl::StatusOr<MutableExpression> ParseAnd() {
    ASSIGN_OR_RETURN(MutableExpression left, ParseNot());
    while (TakeName("and")) {
      ASSIGN_OR_RETURN(MutableExpression right, ParseNot());
      ASSIGN_OR_RETURN(left, Binary(ExpressionKind::kAnd, std::move(left), std::move(right)));
    }
    return left;
  }

  absl::StatusOr<MutableExpression> ParseNot() {
    if (!AtName("not")) return ParseCompare();
    const Nesting nesting(&nesting_);
    if (nesting.TooDeep()) return Error("the expression is nested too deeply");
    auto result = New(ExpressionKind::kNot, Now().line);
    Skip();
    ASSIGN_OR_RETURN(MutableExpression value, ParseNot());
    AddPart(std::move(value), result.get());
    return Checked(std::move(result));
  }

  // Takes "==", "in", "not in" and their like. Returns an empty text if there is none.
  std::string TakeComparison() {
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

  absl::StatusOr<MutableExpression> ParseCompare() {
    ASSIGN_OR_RETURN(MutableExpression first, ParseSum());
    std::string op = TakeComparison();
    if (op.empty()) return first;
    auto compare = New(ExpressionKind::kCompare, first->line);
    AddPart(std::move(first), compare.get());
    for (; !op.empty(); op = TakeComparison()) {
      ASSIGN_OR_RETURN(MutableExpression next, ParseSum());
      AddPart(std::move(next), compare.get());
      compare->operators.push_back(op);
    }
    return Checked(std::move(compare));
  }

  using Level = absl::StatusOr<MutableExpression> (TemplateParser::*)();

  absl::StatusOr<MutableExpression> ParseBinary(std::initializer_list<absl::string_view> operators,
                                                Level operand) {
    ASSIGN_OR_RETURN(MutableExpression left, (this->*operand)());
    while (Now().kind == TokenKind::kOperator &&
           std::find(operators.begin(), operators.end(), Now().text) != operators.end()) {
      const std::string op = Now().text;
      Skip();
      ASSIGN_OR_RETURN(MutableExpression right, (this->*operand)());
      ASSIGN_OR_RETURN(left,
                       Binary(ExpressionKind::kBinary, std::move(left), std::move(right), op));
    }
    return left;
  }

  absl::StatusOr<MutableExpression> ParseSum() {
    return ParseBinary({"+", "-"}, &TemplateParser::ParseConcat);
  }

  absl::StatusOr<MutableExpression> ParseConcat() {
    ASSIGN_OR_RETURN(MutableExpression first, ParseProduct());
    if (!AtOperator("~")) return first;
    auto concat = New(ExpressionKind::kConcat, first->line);
    AddPart(std::move(first), concat.get());
    while (TakeOperator("~")) {
      ASSIGN_OR_RETURN(MutableExpression next, ParseProduct());
      AddPart(std::move(next), concat.get());
    }
    return Checked(std::move(concat));
  }

  absl::StatusOr<MutableExpression> ParseProduct() {
    return ParseBinary({"*", "/", "//", "%"}, &TemplateParser::ParsePower);
  }

  absl::StatusOr<MutableExpression> ParsePower() {
    return ParseBinary({"**"}, &TemplateParser::ParseFilteredUnary);
  }

  absl::StatusOr<MutableExpression> ParseFilteredUnary() { return ParseUnary(true); }

  absl::StatusOr<MutableExpression> ParseUnary(bool with_filter) {
    MutableExpression value;
    if (AtOperator("-") || AtOperator("+")) {
      const Nesting nesting(&nesting_);
      if (nesting.TooDeep()) return Error("the expression is nested too deeply");
      auto sign =
          New(AtOperator("-") ? ExpressionKind::kNegative : ExpressionKind::kPositive, Now().line);
      Skip();
      ASSIGN_OR_RETURN(MutableExpression operand, ParseUnary(false));
      AddPart(std::move(operand), sign.get());
      value = std::move(sign);
    } else {
      ASSIGN_OR_RETURN(value, ParsePrimary());
    }
    ASSIGN_OR_RETURN(value, ParsePostfix(std::move(value)));
    if (!with_filter) return Checked(std::move(value));
    return ParseFilters(std::move(value));
  }

  absl::StatusOr<MutableExpression> ParsePrimary() {
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

  absl::StatusOr<MutableExpression> ParseNameOrConstant(const std::string& name, int line) {
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

  absl::StatusOr<MutableExpression> ParseStrings() {
    const int line = Now().line;
    std::string text;
    for (; Now().kind == TokenKind::kString; Skip()) text += Now().text;
    tree_->strings.insert(text);
    return Constant(ChatValue::Text(text, TextOrigin::kTemplate), line);
  }

  absl::StatusOr<MutableExpression> ParseInteger(const std::string& text, int line) {
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

  absl::StatusOr<MutableExpression> ParseBrackets() {
    Skip();
    ASSIGN_OR_RETURN(MutableExpression value, ParseTuple({.in_brackets = true}));
    RETURN_IF_ERROR(Expect(")"));
    return value;
  }

  absl::StatusOr<MutableExpression> ParseList() {
    auto list = New(ExpressionKind::kList, Now().line);
    Skip();
    while (!AtOperator("]")) {
      if (!list->parts.empty()) RETURN_IF_ERROR(Expect(","));
      if (AtOperator("]")) break;
      ASSIGN_OR_RETURN(MutableExpression item, ParseExpression());
      AddPart(std::move(item), list.get());
    }
    Skip();
    return Checked(std::move(list));
  }

  absl::StatusOr<MutableExpression> ParseDict() {
    auto dict = New(ExpressionKind::kDict, Now().line);
    Skip();
    while (!AtOperator("}")) {
      if (!dict->parts.empty()) RETURN_IF_ERROR(Expect(","));
      if (AtOperator("}")) break;
      ASSIGN_OR_RETURN(MutableExpression key, ParseExpression());
      RETURN_IF_ERROR(Expect(":"));
      ASSIGN_OR_RETURN(MutableExpression value, ParseExpression());
      AddPart(std::move(key), dict.get());
      AddPart(std::move(value), dict.get());
    }
    Skip();
    return Checked(std::move(dict));
  }

  // Parses what stands behind a value: .name, [item] and (arguments).
  absl::StatusOr<MutableExpression> ParsePostfix(MutableExpression value) {
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

  absl::StatusOr<MutableExpression> ParseFilters(MutableExpression value) {
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

  absl::StatusOr<MutableExpression> ParseAttribute(MutableExpression object) {
    const int line = Now().line;
    Skip();
    if (Now().kind == TokenKind::kInteger) {
      auto item = New(ExpressionKind::kItem, line);
      AddPart(std::move(object), item.get());
      ASSIGN_OR_RETURN(MutableExpression index, ParsePrimary());
      AddPart(std::move(index), item.get());
      return Checked(std::move(item));
    }
    auto attribute = New(ExpressionKind::kAttribute, line);
    ASSIGN_OR_RETURN(attribute->name, TakeAnyName("a name or number after '.'"));
    attribute->value = ChatValue::Text(attribute->name, TextOrigin::kTemplate);
    AddPart(std::move(object), attribute.get());
    return Checked(std::move(attribute));
  }

  absl::StatusOr<MutableExpression> ParseSubscript(MutableExpression object) {
    auto item = New(ExpressionKind::kItem, Now().line);
    Skip();
    AddPart(std::move(object), item.get());
    MutableExpression part;
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

  absl::StatusOr<MutableExpression> ParseCall(MutableExpression callee) {
    auto call = New(ExpressionKind::kCall, Now().line);
    AddPart(std::move(callee), call.get());
    RETURN_IF_ERROR(ParseArguments(call.get()));
    return Checked(std::move(call));
  }

  // Parses "(a, b, name=c, *d, **e)" into `call`.
  absl::Status ParseArguments(Expression* call) {
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

  absl::Status ParseArgument(Expression* call) {
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
    ASSIGN_OR_RETURN(MutableExpression value, ParseExpression());
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

  absl::StatusOr<std::string> ParseDottedName(absl::string_view what) {
    ASSIGN_OR_RETURN(std::string name, TakeAnyName(what));
    while (TakeOperator(".")) {
      ASSIGN_OR_RETURN(const std::string part, TakeAnyName(what));
      absl::StrAppend(&name, ".", part);
    }
    return name;
  }

  // Parses the name and the arguments of a filter.
  absl::StatusOr<MutableExpression> ParseFilter(MutableExpression value) {
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

  absl::StatusOr<MutableExpression> ParseTest(MutableExpression value) {
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
      ASSIGN_OR_RETURN(MutableExpression argument, ParsePrimary());
      ASSIGN_OR_RETURN(argument, ParsePostfix(std::move(argument)));
      AddPart(std::move(argument), test.get());
    }
    if (!negated) return Checked(std::move(test));
    auto result = New(ExpressionKind::kNot, test->line);
    AddPart(std::move(test), result.get());
    return Checked(std::move(result));
  }

  bool BeginsTestArgument() const {
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

  const std::vector<TemplateToken> tokens_;
  size_t at_ = 0;
  std::unique_ptr<TemplateTree> tree_;
  int nesting_ = 0;
  int loops_ = 0;             // Open loops that a `break` can leave.
  bool conditional_ = false;  // True inside of `if`, where unknown filters fail only when they run.
  std::vector<absl::Status> unknown_;        // Unknown filters and tests at places that always run.
  std::vector<MacroSignature*> signatures_;  // The macros around this place.
};

}  // namespace

absl::StatusOr<std::unique_ptr<const TemplateTree>> ParseTemplate(absl::string_view source) {
  ASSIGN_OR_RETURN(std::vector<TemplateToken> tokens, LexTemplate(source));
  return TemplateParser(std::move(tokens)).Parse();
}

}  // namespace baton
