#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/chat/expression_parser.h"
#include "common/chat/template_lexer.h"
#include "common/chat/template_syntax.h"

namespace baton {
namespace {

using MutableStatement = std::unique_ptr<Statement>;

class TemplateParser : private ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  absl::StatusOr<std::unique_ptr<const TemplateTree>> Parse() {
    RETURN_IF_ERROR(ParseBody({}, &tree_->statements));
    if (!unknown_.empty()) return unknown_.front();
    return std::move(tree_);
  }

 private:
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
    Statement* const output = body->back().get();
    const int line = Now().line;
    if (Now().kind == TokenKind::kData) {
      output->expressions.push_back(
          Constant(ChatValue::Text(Now().text, TextOrigin::kTemplate), line));
      Skip();
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(ExpectKind(TokenKind::kPrintBegin, "a tag"));
    ASSIGN_OR_RETURN(ExpressionPtr expression, ParseTuple(TupleRules{}));
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
      ASSIGN_OR_RETURN(ExpressionPtr condition, ParseTuple({.with_conditional = false}));
      statement->expressions.push_back(std::move(condition));
      ASSIGN_OR_RETURN(end, ParseBlock({"elif", "else", "endif"}, statement));
    }
    if (end == "else") RETURN_IF_ERROR(ParseBlock({"endif"}, statement).status());
    conditional_ = was_conditional;
    return absl::OkStatus();
  }

  absl::Status ParseFor(Statement* statement) {
    statement->kind = StatementKind::kFor;
    ASSIGN_OR_RETURN(ExpressionPtr target, ParseTarget(false));
    if (SetsVariable(*target, kLoopVariable)) {
      return ErrorAt(target->line, "a loop cannot set the variable 'loop'");
    }
    statement->targets.push_back(std::move(target));
    RETURN_IF_ERROR(ExpectName("in"));
    ASSIGN_OR_RETURN(ExpressionPtr items,
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
    ASSIGN_OR_RETURN(ExpressionPtr target, ParseTarget(true));
    statement->targets.push_back(std::move(target));
    if (TakeOperator("=")) {
      statement->kind = StatementKind::kSet;
      ASSIGN_OR_RETURN(ExpressionPtr value, ParseTuple(TupleRules{}));
      statement->expressions.push_back(std::move(value));
      return absl::OkStatus();
    }
    statement->kind = StatementKind::kSetBlock;
    ExpressionPtr filter;
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
    ASSIGN_OR_RETURN(ExpressionPtr call, ParseExpression());
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
        ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
        signature->defaults.push_back(std::move(value));
      } else if (!signature->defaults.empty()) {
        return Error(absl::StrCat("the parameter '", name, "' needs a default"));
      }
    }
    return Expect(")");
  }

  absl::Status ParseFilterBlock(Statement* statement) {
    statement->kind = StatementKind::kFilterBlock;
    ASSIGN_OR_RETURN(ExpressionPtr filter, ParseFilter(nullptr));
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
      ASSIGN_OR_RETURN(ExpressionPtr target, ParseTarget(false));
      statement->targets.push_back(std::move(target));
      RETURN_IF_ERROR(Expect("="));
      ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
      statement->expressions.push_back(std::move(value));
    }
    return ParseScopeBody({"endwith"}, statement);
  }

  absl::Status ParsePrint(Statement* statement) {
    statement->kind = StatementKind::kOutput;
    while (Now().kind != TokenKind::kBlockEnd) {
      if (!statement->expressions.empty()) RETURN_IF_ERROR(Expect(","));
      ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
      statement->expressions.push_back(std::move(value));
    }
    return absl::OkStatus();
  }

  int loops_ = 0;  // Open loops that a `break` can leave.
};

}  // namespace

absl::StatusOr<std::unique_ptr<const TemplateTree>> ParseTemplate(absl::string_view source) {
  ASSIGN_OR_RETURN(std::vector<TemplateToken> tokens, LexTemplate(source));
  return TemplateParser(std::move(tokens)).Parse();
}

}  // namespace baton
