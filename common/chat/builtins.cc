#include "common/chat/builtins.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/chat/interpreter.h"

namespace baton {

RenderMeter* BuiltinCall::meter() const { return interpreter_->meter(); }

absl::Status BuiltinCall::Error(absl::string_view what) const {
  return absl::FailedPreconditionError(absl::StrCat("'", builtin_.name, "' ", what));
}

absl::Status BuiltinCall::Bind() {
  if (builtin_.parameters == "*") return absl::OkStatus();
  absl::string_view parameters = builtin_.parameters;
  const bool only_positional = !parameters.empty() && parameters[0] == '/';
  if (only_positional) parameters.remove_prefix(1);
  const std::vector<absl::string_view> names = absl::StrSplit(parameters, ' ', absl::SkipEmpty());
  if (raw_->positional.size() > names.size()) {
    return Error(
        absl::StrCat("takes at most ", names.size(), " arguments, not ", raw_->positional.size()));
  }
  bound_.assign(names.size(), nullptr);
  for (size_t i = 0; i < raw_->positional.size(); ++i) bound_[i] = &raw_->positional[i];
  for (const auto& [name, value] : raw_->keywords) {
    const size_t i = std::find(names.begin(), names.end(), name) - names.begin();
    if (i == names.size() || only_positional) {
      return Error(absl::StrCat("takes no argument named '", name, "'"));
    }
    if (bound_[i] != nullptr) return Error(absl::StrCat("has two values for '", name, "'"));
    bound_[i] = &value;
  }
  for (int i = 0; i < builtin_.required; ++i) {
    if (bound_[i] == nullptr) return Error(absl::StrCat("needs the argument '", names[i], "'"));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> BuiltinCall::Int(size_t i, int64_t otherwise) const {
  if (Get(i) == nullptr) return otherwise;
  if (Get(i)->IsSmallInt()) return Get(i)->AsInt();
  return Error(absl::StrCat("needs a whole number, not ", ReprForMessage(*Get(i))));
}

absl::StatusOr<bool> BuiltinCall::Bool(size_t i, bool otherwise) const {
  return Get(i) == nullptr ? otherwise : Get(i)->IsTrue();
}

absl::StatusOr<OriginText> BuiltinCall::Text(size_t i, const OriginText& otherwise) const {
  if (Get(i) == nullptr) return otherwise;
  if (Get(i)->IsText()) return Get(i)->AsText();
  return Error(absl::StrCat("needs a text, not ", ReprForMessage(*Get(i))));
}

ChatValue BuiltinCall::SelfText() const { return StrOf(self_, meter()); }

const Builtin* FindBuiltin(BuiltinTable table, absl::string_view name) {
  const auto found = std::find_if(table.begin(), table.end(),
                                  [&](const Builtin& builtin) { return builtin.name == name; });
  return found == table.end() ? nullptr : &*found;
}

const Builtin* FindFilter(absl::string_view name) {
  const Builtin* const filter = FindBuiltin(TextFilters(), name);
  return filter != nullptr ? filter : FindBuiltin(SequenceFilters(), name);
}

bool IsFilterName(absl::string_view name) { return FindFilter(name) != nullptr; }
bool IsTestName(absl::string_view name) { return FindBuiltin(ValueTests(), name) != nullptr; }

}  // namespace baton
