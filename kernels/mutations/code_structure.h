#pragma once

#include <cstddef>
#include <initializer_list>
#include <vector>

#include "absl/strings/string_view.h"
#include "kernels/mutations/source_tokens.h"

namespace baton::mutations {

// Tokens [begin, end) of a source. May be empty, between two tokens.
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
  kOperand,     // all else
};

// The structure of C++ code as far as its tokens show it: which brackets belong together, where
// statements begin and end, and how far an expression reaches. A macro counts as what it looks
// like, and every `<` as an operator.
class CodeStructure {
 public:
  // Views into the source, which must outlive this.
  explicit CodeStructure(absl::string_view source);

  // True if each bracket has its partner. Where it is false, no other function may be called.
  bool balanced() const { return balanced_; }

  const std::vector<Token>& tokens() const { return tokens_; }
  size_t size() const { return tokens_.size(); }
  const Token& token(size_t i) const { return tokens_[i]; }
  bool Is(size_t i, std::initializer_list<absl::string_view> texts) const;

  // The partner of the bracket that token i is.
  size_t partner(size_t i) const { return partner_[i]; }
  bool Opens(size_t i) const { return partner_[i] != kNone && partner_[i] > i; }
  bool Closes(size_t i) const { return partner_[i] != kNone && partner_[i] < i; }

  // The innermost bracket that is open between tokens i - 1 and i; kNone where there is none.
  static constexpr size_t kNone = static_cast<size_t>(-1);
  size_t OpenAt(size_t i) const;

  // True if token i is the `)` that ends the head of an `if`, a loop or a `switch`.
  bool EndsHead(size_t i) const;
  // True if token i is the `{` of a block of statements, rather than of values, a class or a
  // namespace.
  bool BeginsBlock(size_t i) const;
  // True if what begins at token i is a statement of a block, and not part of another statement.
  bool StatementBeginsAt(size_t i) const;
  // True if a statement that stands in a block, and is not part of another statement, ends just
  // before token i.
  bool StatementEndsAt(size_t i) const;

  Binding BindingOf(size_t i) const;
  // Returns the weakest binding of the tokens of a range, without those in brackets within it. The
  // range must hold the partners of all its brackets.
  Binding WeakestIn(const TokenRange& range) const;
  // Widens a range in both directions, up to tokens that bind weaker than `weakest`.
  TokenRange Expression(TokenRange range, Binding weakest) const;

 private:
  std::vector<Token> tokens_;
  std::vector<size_t> partner_;  // kNone where it is no bracket
  std::vector<size_t> outer_;    // the innermost bracket that a token lies in, or kNone
  bool balanced_ = true;
};

}  // namespace baton::mutations
