#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/chat/chat_value.h"

namespace baton {

class Interpreter;

// The arguments of a call in a template.
struct CallArguments {
  std::vector<ChatValue> positional;
  std::vector<std::pair<std::string, ChatValue>> keywords;
};

// One call of a filter, test, method or function that is written in C++.
class BuiltinCall {
 public:
  BuiltinCall(Interpreter* interpreter, const struct Builtin& builtin, const ChatValue& self,
              CallArguments* raw)
      : interpreter_(interpreter), builtin_(builtin), self_(self), raw_(raw) {}

  // Assigns the arguments to the parameters of the builtin.
  absl::Status Bind();

  Interpreter& interpreter() const { return *interpreter_; }
  RenderMeter* meter() const;
  const ChatValue& self() const {
    return self_;
  }  // The value that the filter, test or method belongs to.
  CallArguments& raw() const { return *raw_; }  // For builtins with any number of arguments.
  absl::Status Error(absl::string_view what) const;

  // The argument of parameter `i`, or null if it is missing.
  const ChatValue* Get(size_t i) const { return i < bound_.size() ? bound_[i] : nullptr; }
  bool IsMissingOrNone(size_t i) const { return Get(i) == nullptr || Get(i)->IsNone(); }
  // Return the argument, `otherwise` if it is missing, or an error if it has another type.
  absl::StatusOr<int64_t> Int(size_t i, int64_t otherwise = 0) const;
  absl::StatusOr<bool> Bool(size_t i, bool otherwise) const;
  absl::StatusOr<OriginText> Text(size_t i, const OriginText& otherwise = {}) const;
  // Returns `self` as text, as most filters take it.
  ChatValue SelfText() const;

 private:
  Interpreter* const interpreter_;
  const Builtin& builtin_;
  const ChatValue& self_;
  CallArguments* const raw_;
  std::vector<const ChatValue*> bound_;
};

struct Builtin {
  absl::string_view name;
  // Names of the parameters, with a space between them. "/" before them: arguments cannot be named.
  // "*": any arguments, which the function reads from raw().
  absl::string_view parameters;
  int required;  // So many of the parameters need an argument.
  absl::StatusOr<ChatValue> (*function)(BuiltinCall& call);
};

using BuiltinTable = absl::Span<const Builtin>;

// Names that the interpreter finds here. The tables of filters and tests include those of Jinja
// that a text can need; `random` and what makes HTML links is missing.
BuiltinTable TextFilters();
BuiltinTable SequenceFilters();
BuiltinTable ValueTests();
BuiltinTable TextMethods();
BuiltinTable ListMethods();
BuiltinTable DictMethods();
BuiltinTable GlobalFunctions();

const Builtin* FindBuiltin(BuiltinTable table, absl::string_view name);
const Builtin* FindFilter(absl::string_view name);
bool IsFilterName(absl::string_view name);
bool IsTestName(absl::string_view name);

// Shared by filters, methods and the interpreter.

// Strips characters at the ends: those of `chars`, or white space if it is null.
OriginText StripText(const OriginText& text, const OriginText* chars, bool left, bool right);
// Escapes & < > and quotes for HTML, unless the text is markup. Returns markup.
ChatValue EscapedText(const ChatValue& text, RenderMeter* meter);
ChatValue MarkupOf(const OriginText& text, RenderMeter* meter);
// Replaces the first `count` occurrences, or all if it is negative.
ChatValue ReplaceText(const OriginText& text, const OriginText& from, const OriginText& to,
                      int64_t count, RenderMeter* meter);
std::vector<std::pair<size_t, size_t>> LinesOf(const OriginText& text, bool keep_ends);
// Returns the item of a sequence, text or range, or an undefined value.
absl::StatusOr<ChatValue> Subscript(const ChatValue& object, int64_t index, RenderMeter* meter);

}  // namespace baton
