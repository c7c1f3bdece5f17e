#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/chat/template_cursor.h"
#include "common/chat/template_syntax.h"

namespace baton {

// Parses the expressions of a template by recursive descent, with one function for each level of
// Jinja's grammar. The parser of statements (template_parser.cc) is built on it.
class ExpressionParser : protected TemplateCursor {
 public:
  using Level = absl::StatusOr<ExpressionPtr> (ExpressionParser::*)();

  explicit ExpressionParser(std::vector<TemplateToken> tokens)
      : TemplateCursor(std::move(tokens)), tree_(std::make_unique<TemplateTree>()) {
    for (const char* name : {"loop", "caller", "kwargs", "varargs"}) Variable(name);
  }

 protected:
  int Variable(const std::string& name);
  ExpressionPtr New(ExpressionKind kind, int line) const;
  static void AddPart(ExpressionPtr part, Expression* to);
  absl::StatusOr<ExpressionPtr> Binary(ExpressionKind kind, ExpressionPtr left, ExpressionPtr right,
                                       absl::string_view op = "");
  absl::StatusOr<ExpressionPtr> Checked(ExpressionPtr expression) const;
  ExpressionPtr Constant(ChatValue value, int line) const;

  // Targets of assignments: names, tuples of names, attributes of namespaces.
  absl::StatusOr<ExpressionPtr> ParseTarget(bool with_namespace);
  absl::StatusOr<ExpressionPtr> ParseOneTarget(bool with_namespace);

  // Expressions, from the weakest operator to the strongest.
  struct TupleRules {
    bool with_conditional = true;
    absl::string_view end_name = "";
    bool in_brackets = false;
  };
  absl::StatusOr<ExpressionPtr> ParseTuple(const TupleRules& rules);
  absl::StatusOr<ExpressionPtr> ParseExpression();
  absl::StatusOr<ExpressionPtr> ParseOr();
  absl::StatusOr<ExpressionPtr> ParseAnd();
  absl::StatusOr<ExpressionPtr> ParseNot();
  // Takes "==", "in", "not in" and their like. Returns an empty text if there is none.
  std::string TakeComparison();
  absl::StatusOr<ExpressionPtr> ParseCompare();
  absl::StatusOr<ExpressionPtr> ParseBinary(std::initializer_list<absl::string_view> operators,
                                            Level operand);
  absl::StatusOr<ExpressionPtr> ParseSum();
  absl::StatusOr<ExpressionPtr> ParseConcat();
  absl::StatusOr<ExpressionPtr> ParseProduct();
  absl::StatusOr<ExpressionPtr> ParsePower();
  absl::StatusOr<ExpressionPtr> ParseFilteredUnary();
  absl::StatusOr<ExpressionPtr> ParseUnary(bool with_filter);
  absl::StatusOr<ExpressionPtr> ParsePrimary();
  absl::StatusOr<ExpressionPtr> ParseNameOrConstant(const std::string& name, int line);
  absl::StatusOr<ExpressionPtr> ParseStrings();
  absl::StatusOr<ExpressionPtr> ParseInteger(const std::string& text, int line);
  absl::StatusOr<ExpressionPtr> ParseBrackets();
  absl::StatusOr<ExpressionPtr> ParseList();
  absl::StatusOr<ExpressionPtr> ParseDict();
  // Parses what stands behind a value: .name, [item] and (arguments).
  absl::StatusOr<ExpressionPtr> ParsePostfix(ExpressionPtr value);
  absl::StatusOr<ExpressionPtr> ParseFilters(ExpressionPtr value);
  absl::StatusOr<ExpressionPtr> ParseAttribute(ExpressionPtr object);
  absl::StatusOr<ExpressionPtr> ParseSubscript(ExpressionPtr object);
  absl::StatusOr<ExpressionPtr> ParseCall(ExpressionPtr callee);
  // Parses "(a, b, name=c, *d, **e)" into `call`.
  absl::Status ParseArguments(Expression* call);
  absl::Status ParseArgument(Expression* call);
  absl::StatusOr<std::string> ParseDottedName(absl::string_view what);
  // Parses the name and the arguments of a filter.
  absl::StatusOr<ExpressionPtr> ParseFilter(ExpressionPtr value);
  absl::StatusOr<ExpressionPtr> ParseTest(ExpressionPtr value);
  bool BeginsTestArgument() const;

  std::unique_ptr<TemplateTree> tree_;
  bool conditional_ = false;  // True inside of `if`, where unknown filters fail only when they run.
  std::vector<absl::Status> unknown_;        // Unknown filters and tests at places that always run.
  std::vector<MacroSignature*> signatures_;  // The macros around this place.
};

}  // namespace baton
