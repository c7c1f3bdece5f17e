#include "common/chat/interpreter.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

using Kind = ChatValue::Kind;

constexpr absl::string_view kStatementNames[] = {
    "output",     "if",           "for", "break",     "continue", "macro",
    "call block", "filter block", "set", "set block", "with",     "generation"};

}  // namespace

Interpreter::Interpreter(const TemplateTree& tree, const RenderLimits& limits, absl::Time now,
                         absl::TimeZone zone, ConstructCounts* counts)
    : tree_(tree), meter_(limits), now_(now), zone_(zone), counts_(counts) {}

Interpreter::~Interpreter() {
  // Namespaces may hold each other. Emptied from the oldest to the newest, no chain of them is
  // freed by recursion.
  for (const ChatValue& space : namespaces_) space.As<NamespaceObject>().attributes.clear();
}

absl::StatusOr<OriginText> Interpreter::Run(
    const std::vector<std::pair<std::string, ChatValue>>& variables) {
  TextBuilder out(&meter_);
  out_ = &out;
  const Scope given = NewScope(nullptr);
  for (const auto& [name, value] : variables) {
    const auto known = tree_.variables.find(name);
    if (known != tree_.variables.end()) given->variables[known->second] = value;
  }
  scope_ = NewScope(given);
  const auto flow = Run(tree_.statements);
  scope_ = nullptr;
  out_ = nullptr;
  RETURN_IF_ERROR(flow.status());
  RETURN_IF_ERROR(meter_.status());
  return out.TakeText();
}

Interpreter::Scope Interpreter::NewScope(const Scope& parent) const {
  auto scope = std::make_shared<TemplateScope>();
  scope->parent = parent;
  return scope;
}

void Interpreter::Count(absl::string_view kind, absl::string_view name) {
  if (counts_ != nullptr) ++(*counts_)[absl::StrCat(kind, " ", name)];
}

ChatValue Interpreter::MakeNamespace(absl::flat_hash_map<std::string, ChatValue> attributes) {
  auto object = std::make_shared<NamespaceObject>();
  ChargeObject(object.get(), static_cast<int64_t>(attributes.size() * 2 * sizeof(ChatValue)),
               &meter_);
  object->attributes = std::move(attributes);
  namespaces_.push_back(ChatValue(Kind::kNamespace, std::move(object)));
  return namespaces_.back();
}

absl::StatusOr<Interpreter::Flow> Interpreter::Run(const Statements& statements) {
  for (const auto& statement : statements) {
    ASSIGN_OR_RETURN(const Flow flow, Run(*statement));
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

absl::Status AtLine(int line, const absl::Status& error) {
  if (absl::IsInvalidArgument(error) || absl::StartsWith(error.message(), "line ")) return error;
  return absl::Status(error.code(), absl::StrCat("line ", line, ": ", error.message()));
}

absl::StatusOr<Interpreter::Flow> Interpreter::Run(const Statement& statement) {
  const Depth depth(this);
  meter_.Step();
  Count("statement", kStatementNames[static_cast<size_t>(statement.kind)]);
  auto flow = meter_.ok() ? RunKind(statement) : meter_.status();
  if (!flow.ok()) return AtLine(statement.line, flow.status());
  return flow;
}

absl::StatusOr<Interpreter::Flow> Interpreter::RunKind(const Statement& statement) {
  absl::Status status;
  switch (statement.kind) {
    case StatementKind::kOutput:
      status = RunOutput(statement);
      break;
    case StatementKind::kIf:
      return RunIf(statement);
    case StatementKind::kFor:
      return RunFor(statement);
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
    case StatementKind::kMacro:
      scope_->variables[statement.variable] = MakeMacro(statement);
      break;
    case StatementKind::kCallBlock:
      status = RunCallBlock(statement);
      break;
    case StatementKind::kFilterBlock:
      return RunFilterBlock(statement);
    case StatementKind::kSet: {
      ASSIGN_OR_RETURN(const ChatValue value, Evaluate(*statement.expressions[0]));
      status = Assign(*statement.targets[0], value);
      break;
    }
    case StatementKind::kSetBlock:
      return RunSetBlock(statement);
    case StatementKind::kWith:
      return RunWith(statement);
    case StatementKind::kGeneration:
      status = RunGeneration(statement);
      break;
  }
  RETURN_IF_ERROR(status);
  return Flow::kNormal;
}

absl::Status Interpreter::RunOutput(const Statement& statement) {
  for (const ExpressionPtr& expression : statement.expressions) {
    ASSIGN_OR_RETURN(const ChatValue value, Evaluate(*expression));
    if (expression->kind == ExpressionKind::kConst && !value.IsText()) {
      // A number or name that stands in the template is the template's own text.
      out_->Append(OriginText(StrOf(value, &meter_).AsText().Utf8(), TextOrigin::kTemplate));
    } else {
      AppendStr(value, out_);
    }
    if (static_cast<int64_t>(out_->size()) > meter_.limits().max_output_bytes) {
      meter_.Fail(absl::StrCat("the template writes more than ", meter_.limits().max_output_bytes,
                               " bytes"));
    }
    RETURN_IF_ERROR(meter_.status());
  }
  return absl::OkStatus();
}

absl::StatusOr<Interpreter::Flow> Interpreter::RunIf(const Statement& statement) {
  for (size_t i = 0; i < statement.expressions.size(); ++i) {
    ASSIGN_OR_RETURN(const ChatValue condition, Evaluate(*statement.expressions[i]));
    if (condition.IsTrue()) return Run(statement.bodies[i]);
  }
  if (statement.bodies.size() > statement.expressions.size()) return Run(statement.bodies.back());
  return Flow::kNormal;
}

absl::StatusOr<Interpreter::Flow> Interpreter::RunFor(const Statement& statement) {
  ASSIGN_OR_RETURN(const ChatValue source, Evaluate(*statement.expressions[0]));
  return RunLoop(statement, source, 0);
}

absl::StatusOr<Interpreter::Flow> Interpreter::RunLoop(const Statement& statement,
                                                       const ChatValue& source, int64_t depth0) {
  auto loop = std::make_shared<LoopObject>();
  ASSIGN_OR_RETURN(loop->source, Items(source));
  loop->depth = DepthAbove(loop->source, &meter_);
  loop->statement = &statement;
  loop->scope = scope_;
  loop->depth0 = depth0;
  if (statement.expressions[1] != nullptr) {
    loop->keep = std::make_shared<LoopObject::Keep>(
        [this, &statement, scope = scope_](const ChatValue& item) -> absl::StatusOr<bool> {
          const Scope outer = std::exchange(scope_, NewScope(scope));
          absl::Status status = Assign(*statement.targets[0], item);
          absl::StatusOr<ChatValue> condition = ChatValue::None();
          if (status.ok()) condition = Evaluate(*statement.expressions[1]);
          scope_ = outer;
          RETURN_IF_ERROR(status);
          RETURN_IF_ERROR(condition.status());
          return condition->IsTrue();
        });
  }
  ChargeObject(loop.get(), static_cast<int64_t>(loop->source.size() * sizeof(ChatValue)), &meter_);
  const ChatValue value(Kind::kLoop, loop);
  const auto flow = RunIterations(statement, value);
  // Someone may still hold the loop, but it can neither go on nor hold itself.
  loop->running = false;
  loop->keep = nullptr;
  loop->changed = std::nullopt;
  return flow;
}

absl::StatusOr<Interpreter::Flow> Interpreter::RunIterations(const Statement& statement,
                                                             const ChatValue& value) {
  auto& loop = value.As<LoopObject>();
  const Scope outer = scope_;
  absl::StatusOr<Flow> flow = Flow::kNormal;
  bool finished_one = false;
  while (flow.ok() && *flow != Flow::kBreak) {
    std::optional<ChatValue> item = std::exchange(loop.after, std::nullopt);
    if (!item.has_value()) {
      ASSIGN_OR_RETURN(const bool found, Pull(&loop, &item));
      if (!found) break;
    }
    meter_.Step(4);  // A scope and the variables of an iteration cost about as much as four nodes.
    ++loop.index0;
    loop.before = std::exchange(loop.current, item);
    scope_ = NewScope(outer);
    const absl::Status status = Assign(*statement.targets[0], *item);
    scope_->variables[kLoopVariable] = value;
    flow = status.ok() ? Run(statement.bodies[0]) : absl::StatusOr<Flow>(status);
    scope_ = outer;
    finished_one |= flow.ok() && *flow == Flow::kNormal;
  }
  RETURN_IF_ERROR(flow.status());
  // As in Jinja, `else` also runs if each iteration was left by `continue` or `break`.
  if (finished_one || statement.bodies.size() < 2) return Flow::kNormal;
  scope_ = NewScope(outer);
  flow = Run(statement.bodies[1]);
  scope_ = outer;
  return flow;
}

absl::StatusOr<bool> Interpreter::Pull(LoopObject* loop, std::optional<ChatValue>* item) {
  while (loop->next < loop->source.size()) {
    meter_.Step();
    RETURN_IF_ERROR(meter_.status());
    const ChatValue candidate = loop->source[loop->next++];
    // The loop may lose its filter while the filter runs.
    if (const auto keep = loop->keep; keep != nullptr) {
      ASSIGN_OR_RETURN(const bool kept, (*keep)(candidate));
      if (!kept) continue;
    }
    *item = candidate;
    return true;
  }
  return false;
}

absl::StatusOr<ChatValue> Interpreter::CallLoop(const LoopObject& loop, CallArguments* arguments) {
  if (!loop.statement->recursive) {
    return absl::FailedPreconditionError(
        "the loop must have the 'recursive' marker to be called recursively");
  }
  const Scope scope = loop.scope.lock();
  if (arguments->positional.size() != 1 || !arguments->keywords.empty() || scope == nullptr) {
    return absl::FailedPreconditionError("loop() takes one argument, inside of the loop");
  }
  TextBuilder text(&meter_);
  TextBuilder* const outer_out = std::exchange(out_, &text);
  const Scope outer = std::exchange(scope_, scope);
  const auto flow = RunLoop(*loop.statement, arguments->positional[0], loop.depth0 + 1);
  scope_ = outer;
  out_ = outer_out;
  RETURN_IF_ERROR(flow.status());
  return text.Finish();
}

absl::StatusOr<Interpreter::Flow> Interpreter::Capture(const Statements& statements,
                                                       ChatValue* text) {
  TextBuilder captured(&meter_);
  TextBuilder* const outer_out = std::exchange(out_, &captured);
  const Scope outer = std::exchange(scope_, NewScope(scope_));
  const auto flow = Run(statements);
  scope_ = outer;
  out_ = outer_out;
  RETURN_IF_ERROR(flow.status());
  *text = captured.Finish();
  return flow;
}

absl::StatusOr<Interpreter::Flow> Interpreter::RunSetBlock(const Statement& statement) {
  ChatValue text;
  ASSIGN_OR_RETURN(const Flow flow, Capture(statement.bodies[0], &text));
  if (flow != Flow::kNormal) return flow;
  if (statement.expressions[0] != nullptr) {
    ASSIGN_OR_RETURN(text, EvaluateFilter(*statement.expressions[0], &text));
  }
  RETURN_IF_ERROR(Assign(*statement.targets[0], text));
  return Flow::kNormal;
}

absl::StatusOr<Interpreter::Flow> Interpreter::RunFilterBlock(const Statement& statement) {
  ChatValue text;
  ASSIGN_OR_RETURN(const Flow flow, Capture(statement.bodies[0], &text));
  if (flow != Flow::kNormal) return flow;
  ASSIGN_OR_RETURN(const ChatValue filtered, EvaluateFilter(*statement.expressions[0], &text));
  AppendStr(filtered, out_);
  return Flow::kNormal;
}

absl::StatusOr<Interpreter::Flow> Interpreter::RunWith(const Statement& statement) {
  std::vector<ChatValue> values;
  for (const ExpressionPtr& expression : statement.expressions) {
    ASSIGN_OR_RETURN(ChatValue value, Evaluate(*expression));
    values.push_back(std::move(value));
  }
  const Scope outer = std::exchange(scope_, NewScope(scope_));
  absl::Status status;
  for (size_t i = 0; i < values.size() && status.ok(); ++i) {
    status = Assign(*statement.targets[i], values[i]);
  }
  const auto flow = status.ok() ? Run(statement.bodies[0]) : absl::StatusOr<Flow>(status);
  scope_ = outer;
  return flow;
}

absl::Status Interpreter::RunGeneration(const Statement& statement) {
  const Scope outer = std::exchange(scope_, NewScope(scope_));
  const auto flow = Run(statement.bodies[0]);
  scope_ = outer;
  return flow.status();
}

absl::Status Interpreter::RunCallBlock(const Statement& statement) {
  const ChatValue caller = MakeMacro(statement);
  const Depth depth(this);
  ASSIGN_OR_RETURN(const ChatValue text, EvaluateCall(*statement.expressions[0], &caller));
  AppendStr(text, out_);
  return absl::OkStatus();
}

absl::Status Interpreter::Assign(const Expression& target, const ChatValue& value) {
  if (target.kind == ExpressionKind::kName) {
    scope_->variables[target.variable] = value;
    return absl::OkStatus();
  }
  if (target.kind == ExpressionKind::kNamespaceTarget) {
    ASSIGN_OR_RETURN(const ChatValue space, Lookup(target));
    if (!space.Is(Kind::kNamespace)) {
      return absl::FailedPreconditionError(
          absl::StrCat("cannot set the attribute '", target.name, "' of what is no namespace"));
    }
    if (absl::StartsWith(target.name, "_")) {
      return absl::FailedPreconditionError(absl::StrCat("a namespace cannot have the attribute '",
                                                        target.name, "', which begins with '_'"));
    }
    space.As<NamespaceObject>().attributes[target.name] = value;
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const std::vector<ChatValue> items, Items(value));
  if (items.size() != target.parts.size()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "cannot unpack ", items.size(), " values into ", target.parts.size(), " variables"));
  }
  for (size_t i = 0; i < items.size(); ++i) RETURN_IF_ERROR(Assign(*target.parts[i], items[i]));
  return absl::OkStatus();
}

ChatValue Interpreter::MakeMacro(const Statement& statement) {
  auto macro = std::make_shared<MacroObject>();
  macro->statement = &statement;
  macro->scope = scope_;
  ChargeObject(macro.get(), 0, &meter_);
  return ChatValue(Kind::kMacro, std::move(macro));
}

absl::StatusOr<ChatValue> Interpreter::CallMacro(const MacroObject& macro,
                                                 CallArguments* arguments) {
  const Depth depth(this);
  const Scope defined_in = macro.scope.lock();
  if (defined_in == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("the macro '", macro.statement->name,
                                                      "' is called behind the block that has it"));
  }
  TextBuilder text(&meter_);
  TextBuilder* const outer_out = std::exchange(out_, &text);
  const Scope outer = std::exchange(scope_, NewScope(defined_in));
  const absl::Status status = BindMacro(macro, arguments);
  const auto flow = status.ok() ? Run(macro.statement->bodies[0]) : absl::StatusOr<Flow>(status);
  scope_ = outer;
  out_ = outer_out;
  RETURN_IF_ERROR(flow.status());
  return text.Finish();
}

// Sets the parameters of a macro in the scope of its call.
absl::Status Interpreter::BindMacro(const MacroObject& macro, CallArguments* arguments) {
  const MacroSignature& signature = macro.statement->signature;
  const auto error = [&](absl::string_view what) {
    return absl::FailedPreconditionError(
        absl::StrCat("the macro '", macro.statement->name, "' takes ", what));
  };
  auto& keywords = arguments->keywords;
  const auto take_keyword = [&](absl::string_view name) -> std::optional<ChatValue> {
    const auto found = std::find_if(keywords.begin(), keywords.end(),
                                    [&](const auto& keyword) { return keyword.first == name; });
    if (found == keywords.end()) return std::nullopt;
    ChatValue value = found->second;
    keywords.erase(found);
    return value;
  };
  const size_t parameters = signature.variables.size();
  std::vector<std::optional<ChatValue>> values(parameters);
  for (size_t i = 0; i < parameters; ++i) {
    if (i < arguments->positional.size()) {
      values[i] = arguments->positional[i];
    } else {
      values[i] = take_keyword(signature.names[i]);
    }
  }
  if (signature.uses_caller) {
    const auto caller = take_keyword("caller");
    scope_->variables[kCallerVariable] =
        caller.has_value() && !caller->IsNone() ? *caller : Undefined("No caller defined");
  }
  if (signature.uses_kwargs) {
    ChatDict kwargs;
    for (const auto& [name, value] : keywords) kwargs.Set(MakeText(name, &meter_), value, &meter_);
    scope_->variables[kKwargsVariable] = MakeDict(std::move(kwargs), &meter_);
  } else if (!keywords.empty()) {
    return error(absl::StrCat("no argument '", keywords.front().first, "'"));
  }
  if (signature.uses_varargs) {
    std::vector<ChatValue> rest(
        arguments->positional.begin() + std::min(parameters, arguments->positional.size()),
        arguments->positional.end());
    scope_->variables[kVarargsVariable] = MakeItems(Kind::kTuple, std::move(rest), &meter_);
  } else if (arguments->positional.size() > parameters) {
    return error(absl::StrCat("not more than ", parameters, " arguments"));
  }
  const size_t first_default = parameters - signature.defaults.size();
  for (size_t i = 0; i < parameters; ++i) {
    if (!values[i].has_value() && i >= first_default) {
      ASSIGN_OR_RETURN(values[i], Evaluate(*signature.defaults[i - first_default]));
    } else if (!values[i].has_value()) {
      values[i] = Undefined(absl::StrCat("parameter '", signature.names[i], "' was not provided"));
    }
    scope_->variables[signature.variables[i]] = *values[i];
  }
  return absl::OkStatus();
}

}  // namespace baton
