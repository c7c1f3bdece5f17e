#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/chat/template_lexer.h"

namespace baton {

// A place in the tokens of a template, from which the parsers take tokens. Errors are
// InvalidArgument, "line 12: ...".
class TemplateCursor {
 public:
  using TokenKind = TemplateToken::Kind;

  explicit TemplateCursor(std::vector<TemplateToken> tokens) : tokens_(std::move(tokens)) {}

 protected:
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

  int nesting_ = 0;

 private:
  static constexpr int kMaxNesting = 100;  // Bounds the stack of the parsers.

  const std::vector<TemplateToken> tokens_;
  size_t at_ = 0;
};

}  // namespace baton
