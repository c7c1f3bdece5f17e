#pragma once

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/chat/chat_value.h"

namespace baton {

// The tree of a template. Variables are numbers, which TemplateTree::names gives.

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

enum class ExpressionKind {
  kConst,            // value
  kName,             // variable
  kNamespaceTarget,  // variable, name: the target of {% set variable.name = ... %}
  kList,             // parts
  kTuple,            // parts
  kDict,             // parts: key, value, key, value ...
  kAttribute,        // parts: object; name
  kItem,             // parts: object, key
  kSlice,            // parts: object, start, stop, step; the last three may be null
  kCall,             // parts: callee, positional arguments ...; keywords, stars
  kFilter,           // parts: value (null in a filter block), arguments ...; name, keywords, stars
  kTest,             // parts: value, arguments ...; name, keywords, stars
  kConditional,      // parts: condition, value, value otherwise (may be null)
  kAnd,              // parts: left, right
  kOr,               // parts: left, right
  kNot,              // parts: value
  kCompare,          // parts: first, second ...; operators between them
  kBinary,           // parts: left, right; operators: one
  kNegative,         // parts: value
  kPositive,         // parts: value
  kConcat,           // parts
};

struct Expression {
  ExpressionKind kind = ExpressionKind::kConst;
  int line = 0;
  int depth = 1;
  int variable = -1;
  std::string name;
  ChatValue value;
  std::vector<std::string> operators;  // "==", "in", "not in", "+" ...
  std::vector<ExpressionPtr> parts;
  std::vector<std::pair<std::string, ExpressionPtr>> keywords;
  ExpressionPtr star, double_star;  // *args and **kwargs of a call. May be null.
};

struct Statement;
using Statements = std::vector<std::unique_ptr<Statement>>;

enum class StatementKind {
  kOutput,  // expressions
  kIf,      // expressions: conditions; bodies: one for each, and one more for else
  kFor,     // target; expressions: items, filter (may be null); bodies: loop, else (may miss)
  kBreak,
  kContinue,
  kMacro,        // variable, name, signature; bodies: one
  kCallBlock,    // expressions: the call; signature of the caller; bodies: one
  kFilterBlock,  // expressions: the filter; bodies: one
  kSet,          // target; expressions: value
  kSetBlock,     // target; expressions: filter (may be null); bodies: one
  kWith,         // targets; expressions: values; bodies: one
  kGeneration,   // bodies: one
};

struct MacroSignature {
  std::vector<int> variables;
  std::vector<std::string> names;
  std::vector<ExpressionPtr> defaults;  // They belong to the last parameters.
  bool uses_caller = false, uses_kwargs = false, uses_varargs = false;
};

struct Statement {
  StatementKind kind = StatementKind::kOutput;
  int line = 0;
  bool recursive = false;  // A loop with the word "recursive".
  int variable = -1;
  std::string name;
  std::vector<ExpressionPtr> targets;
  std::vector<ExpressionPtr> expressions;
  std::vector<Statements> bodies;
  MacroSignature signature;
};

struct TemplateTree {
  Statements statements;
  absl::flat_hash_map<std::string, int> variables;
  std::vector<std::string> names;  // Names of the variables.
  std::set<std::string> strings;   // All strings in quotes.
};

// Returns InvalidArgument, "line 12: ...", if `source` is not a template of the supported language.
absl::StatusOr<std::unique_ptr<const TemplateTree>> ParseTemplate(absl::string_view source);

// Variables that the interpreter itself sets.
inline constexpr int kLoopVariable = 0, kCallerVariable = 1, kKwargsVariable = 2,
                     kVarargsVariable = 3;

}  // namespace baton
