#pragma once

#include <cstddef>
#include <initializer_list>
#include <vector>

#include "absl/strings/string_view.h"
#include "kernels/mutations/source_tokens.h"

namespace baton::mutations {

// Tokens [begin, end) of a source. If the range is empty, it stands for the place before token
// `begin`.
struct TokenRange {
  size_t begin = 0, end = 0;

  bool empty() const { return begin == end; }
  bool Holds(const TokenRange& other) const { return begin <= other.begin && other.end <= end; }
  bool Overlaps(const TokenRange& other) const { return begin < other.end && other.begin < end; }
  bool operator==(const TokenRange&) const = default;
};

// The precedence of a token, from the lowest to the highest. An expression ends on both sides at
// the first token whose precedence is lower than that of all tokens in the expression.
enum class Binding {
  kStatement,   // ; and blocks, heads of `if` and loops, keywords such as `return`
  kComma,       // ,
  kAssignment,  // = += ...
  kChoice,      // ? :
  kLogic,       // && ||
  kOperand,     // everything else
};

// The structure of C++ code as far as the tokens show it: matching brackets, the begin and end of
// statements, and the extent of expressions. A macro counts as the code it looks like, and every
// `<` counts as an operator.
class CodeStructure {
 public:
  // The object keeps views into the source, which must outlive it.
  explicit CodeStructure(absl::string_view source);

  // Returns true if every bracket has a matching one. If false, no function below may be called.
  bool balanced() const { return balanced_; }

  const std::vector<Token>& tokens() const { return tokens_; }
  size_t size() const { return tokens_.size(); }
  const Token& token(size_t i) const { return tokens_[i]; }
  bool Is(size_t i, std::initializer_list<absl::string_view> texts) const;

  // Returns the index of the bracket that matches token i, or kNone if token i is no bracket.
  size_t partner(size_t i) const { return partner_[i]; }
  bool Opens(size_t i) const { return partner_[i] != kNone && partner_[i] > i; }
  bool Closes(size_t i) const { return partner_[i] != kNone && partner_[i] < i; }

  // OpenAt returns the index of the innermost bracket that is open between tokens i - 1 and i, or
  // kNone if there is none.
  static constexpr size_t kNone = static_cast<size_t>(-1);
  size_t OpenAt(size_t i) const;

  // Returns true if token i is the `)` that ends the head of an `if`, a loop or a `switch`.
  bool EndsHead(size_t i) const;
  // Returns true if token i is the `{` of a block of statements, and not of values, a class or a
  // namespace.
  bool BeginsBlock(size_t i) const;
  // Returns true if token i begins a statement that stands in a block by itself and is not part of
  // another statement.
  bool StatementBeginsAt(size_t i) const;
  // Returns true if a statement ends just before token i. The statement must stand in a block by
  // itself and not be part of another statement.
  bool StatementEndsAt(size_t i) const;

  Binding BindingOf(size_t i) const;
  // Returns the weakest binding among the tokens of the range, not counting tokens in brackets.
  // Both brackets of every pair must lie in the range.
  Binding WeakestIn(const TokenRange& range) const;
  // Widens a range in both directions, up to the first token that binds weaker than `weakest`.
  TokenRange Expression(TokenRange range, Binding weakest) const;

 private:
  std::vector<Token> tokens_;
  std::vector<size_t> partner_;  // kNone for other tokens
  std::vector<size_t> outer_;    // the innermost bracket around the token, or kNone
  bool balanced_ = true;
};

}  // namespace baton::mutations
