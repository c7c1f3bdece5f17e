#include "kernels/mutations/code_structure.h"

#include <algorithm>

namespace baton::mutations {

CodeStructure::CodeStructure(absl::string_view source)
    : tokens_(Tokens(source)), partner_(tokens_.size(), kNone), outer_(tokens_.size(), kNone) {
  std::vector<size_t> open;
  for (size_t i = 0; i < size() && balanced_; ++i) {
    if (Is(i, {")", "]", "}"})) {
      const absl::string_view opener = Is(i, {")"}) ? "(" : Is(i, {"]"}) ? "[" : "{";
      balanced_ = !open.empty() && Is(open.back(), {opener});
      if (!balanced_) return;
      partner_[i] = open.back();
      partner_[open.back()] = i;
      open.pop_back();
    }
    if (!open.empty()) outer_[i] = open.back();
    if (Is(i, {"(", "[", "{"})) open.push_back(i);
  }
  balanced_ = open.empty();
}

bool CodeStructure::Is(size_t i, std::initializer_list<absl::string_view> texts) const {
  return tokens_[i].kind != TokenKind::kLiteral &&
         std::find(texts.begin(), texts.end(), tokens_[i].text) != texts.end();
}

size_t CodeStructure::OpenAt(size_t i) const {
  if (i == size()) return kNone;
  return Closes(i) ? partner_[i] : outer_[i];
}

bool CodeStructure::EndsHead(size_t i) const {
  return Is(i, {")"}) && partner_[i] > 0 &&
         Is(partner_[i] - 1, {"if", "for", "while", "switch", "constexpr"});
}

bool CodeStructure::BeginsBlock(size_t i) const {
  if (!Is(i, {"{"})) return false;
  return i == 0 || Is(i - 1, {";", "{", "}", ")", "]", ":", "else", "do", "const", "noexcept",
                              "override", "mutable"});
}

bool CodeStructure::StatementBeginsAt(size_t i) const {
  const size_t open = OpenAt(i);
  if (open == kNone || !BeginsBlock(open)) return false;
  return i == open + 1 || StatementEndsAt(i);
}

bool CodeStructure::StatementEndsAt(size_t i) const {
  if (i == 0 || (i < size() && Is(i, {"else"}))) return false;
  const size_t open = OpenAt(i);
  if (open != kNone && !BeginsBlock(open)) return false;
  if (Is(i - 1, {";"})) return true;
  if (!Is(i - 1, {"}"}) || !BeginsBlock(partner_[i - 1])) return false;
  const size_t begin = partner_[i - 1];
  if (begin > 0 && Is(begin - 1, {"do"})) return false;
  return i == size() || !Is(i, {";", ",", ")", "]", ".", "(", "["});
}

Binding CodeStructure::BindingOf(size_t i) const {
  if (token(i).kind == TokenKind::kDirective || BeginsBlock(i)) return Binding::kStatement;
  if (Opens(i) && EndsHead(partner_[i])) return Binding::kStatement;
  if (Is(i, {";", "return", "if", "else", "for", "while", "do", "switch", "case", "default",
             "break", "continue", "goto", "constexpr", "static_assert", "using", "typedef"})) {
    return Binding::kStatement;
  }
  if (Is(i, {","})) return Binding::kComma;
  if (Is(i, {"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="})) {
    return Binding::kAssignment;
  }
  if (Is(i, {"?", ":"})) return Binding::kChoice;
  if (Is(i, {"&&", "||"})) return Binding::kLogic;
  return Binding::kOperand;
}

Binding CodeStructure::WeakestIn(const TokenRange& range) const {
  Binding weakest = Binding::kOperand;
  for (size_t i = range.begin; i < range.end; ++i) {
    weakest = std::min(weakest, BindingOf(i));
    if (Opens(i)) i = partner_[i];
  }
  return weakest;
}

TokenRange CodeStructure::Expression(TokenRange range, Binding weakest) const {
  while (range.begin > 0) {
    const size_t i = range.begin - 1;
    if (Opens(i) || EndsHead(i) || BindingOf(i) < weakest) break;
    if (Closes(i) && BeginsBlock(partner_[i])) break;
    range.begin = Closes(i) ? partner_[i] : i;
  }
  while (range.end < size()) {
    const size_t i = range.end;
    if (Closes(i) || BindingOf(i) < weakest) break;
    range.end = Opens(i) ? partner_[i] + 1 : i + 1;
  }
  return range;
}

}  // namespace baton::mutations
