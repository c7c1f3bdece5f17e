#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/chat/builtins.h"
#include "common/chat/chat_value.h"
#include "common/chat/python_text.h"
#include "common/chat/render_meter.h"
#include "common/chat/template_syntax.h"

namespace baton {

// Counts of what renderings executed: "statement for", "expression call", "filter trim",
// "test defined", "method str.strip", "function range", "attribute loop.index".
using ConstructCounts = std::map<std::string, int64_t>;

// Variables of one block. A block sees those of the blocks around it, and sets only its own.
struct TemplateScope {
  std::shared_ptr<TemplateScope> parent;
  absl::flat_hash_map<int, ChatValue> variables;
};

// A macro, or the body of a `call` block. It does not keep its scope alive, so that the scope may
// hold it; a macro that outlives its scope fails when it is called.
struct MacroObject : ChatObject {
  const Statement* statement = nullptr;
  std::weak_ptr<TemplateScope> scope;
};

// The `loop` of a template. While the loop runs, the interpreter gives it what it pulls with.
struct LoopObject : ChatObject {
  using Keep = std::function<absl::StatusOr<bool>(const ChatValue&)>;

  std::vector<ChatValue> source;
  size_t next = 0;                   // In `source`.
  std::shared_ptr<const Keep> keep;  // The loop's `if`. May be null.
  const Statement* statement = nullptr;
  std::weak_ptr<TemplateScope> scope;
  bool running = true;
  int64_t index0 = -1;
  int64_t depth0 = 0;
  std::optional<ChatValue> before, current, after, changed;
};

struct MethodObject : ChatObject {
  ChatValue self;
  const Builtin* method = nullptr;
};
struct FunctionObject : ChatObject {
  const Builtin* function = nullptr;
};

// Renders one template once. One thread. Errors:
//   InvalidArgument     the template called raise_exception; the message is its argument.
//   ResourceExhausted   a bound was reached.
//   FailedPrecondition  anything else that Jinja raises an error for.
// All but the first begin with "line 12: ".
class Interpreter {
 public:
  Interpreter(const TemplateTree& tree, const RenderLimits& limits, absl::Time now,
              absl::TimeZone zone, ConstructCounts* counts);
  ~Interpreter();

  absl::StatusOr<OriginText> Run(const std::vector<std::pair<std::string, ChatValue>>& variables);

  // For builtins.

  RenderMeter* meter() { return &meter_; }
  absl::Time now() const { return now_; }
  absl::TimeZone zone() const { return zone_; }
  // Walks through a value as a `for` does. An iterator is used up.
  absl::StatusOr<std::vector<ChatValue>> Items(const ChatValue& value);
  // value[key] and value.name with Jinja's rules.
  absl::StatusOr<ChatValue> GetItem(const ChatValue& value, const ChatValue& key);
  absl::StatusOr<ChatValue> GetAttribute(const ChatValue& value, const ChatValue& name);
  // value.name without looking at items.
  absl::StatusOr<std::optional<ChatValue>> FindAttribute(const ChatValue& value,
                                                         const ChatValue& name);
  absl::StatusOr<ChatValue> CallFilter(absl::string_view name, const ChatValue& value,
                                       CallArguments* arguments);
  absl::StatusOr<bool> CallTest(absl::string_view name, const ChatValue& value,
                                CallArguments* arguments);
  absl::StatusOr<ChatValue> Call(const ChatValue& callee, CallArguments* arguments);
  absl::StatusOr<bool> Contains(const ChatValue& container, const ChatValue& item);
  // Makes a namespace, which lives until the end of the rendering, so that namespaces may hold each
  // other.
  ChatValue MakeNamespace(absl::flat_hash_map<std::string, ChatValue> attributes);
  ChatValue Undefined(std::string why) { return MakeUndefined(std::move(why), &meter_); }
  void Count(absl::string_view kind, absl::string_view name);

 private:
  enum class Flow { kNormal, kBreak, kContinue };
  using Scope = std::shared_ptr<TemplateScope>;
  class Depth;

  // Statements (interpreter.cc).
  absl::StatusOr<Flow> Run(const Statements& statements);
  absl::StatusOr<Flow> Run(const Statement& statement);
  absl::StatusOr<Flow> RunKind(const Statement& statement);
  absl::Status RunOutput(const Statement& statement);
  absl::StatusOr<Flow> RunIf(const Statement& statement);
  absl::StatusOr<Flow> RunFor(const Statement& statement);
  absl::StatusOr<Flow> RunLoop(const Statement& statement, const ChatValue& source, int64_t depth0);
  absl::StatusOr<Flow> RunIterations(const Statement& statement, const ChatValue& loop);
  absl::StatusOr<Flow> RunSetBlock(const Statement& statement);
  absl::StatusOr<Flow> RunFilterBlock(const Statement& statement);
  absl::StatusOr<Flow> RunWith(const Statement& statement);
  absl::Status RunCallBlock(const Statement& statement);
  absl::Status RunGeneration(const Statement& statement);
  // Runs statements in a scope of their own, with their output in `text`.
  absl::StatusOr<Flow> Capture(const Statements& statements, ChatValue* text);
  absl::Status Assign(const Expression& target, const ChatValue& value);
  absl::StatusOr<bool> Pull(LoopObject* loop, std::optional<ChatValue>* item);
  absl::StatusOr<ChatValue> CallMacro(const MacroObject& macro, CallArguments* arguments);
  absl::Status BindMacro(const MacroObject& macro, CallArguments* arguments);
  absl::StatusOr<ChatValue> CallLoop(const LoopObject& loop, CallArguments* arguments);
  ChatValue MakeMacro(const Statement& statement);
  Scope NewScope(const Scope& parent) const;

  // Expressions (expressions.cc).
  absl::StatusOr<ChatValue> Evaluate(const Expression& expression);
  absl::StatusOr<ChatValue> EvaluateKind(const Expression& expression);
  absl::StatusOr<ChatValue> Lookup(const Expression& name);
  absl::StatusOr<ChatValue> EvaluateItems(const Expression& expression);
  absl::StatusOr<ChatValue> EvaluateDict(const Expression& expression);
  absl::StatusOr<ChatValue> EvaluateSlice(const Expression& expression);
  absl::StatusOr<ChatValue> EvaluateCall(const Expression& expression, const ChatValue* caller);
  absl::StatusOr<ChatValue> EvaluateFilter(const Expression& filter, const ChatValue* value);
  absl::StatusOr<ChatValue> EvaluateTest(const Expression& expression);
  absl::StatusOr<ChatValue> EvaluateConditional(const Expression& expression);
  absl::StatusOr<ChatValue> EvaluateCompare(const Expression& expression);
  absl::StatusOr<bool> Compare(absl::string_view op, const ChatValue& a, const ChatValue& b);
  absl::StatusOr<ChatValue> EvaluateConcat(const Expression& expression);
  absl::Status EvaluateArguments(const Expression& expression, CallArguments* arguments);
  absl::StatusOr<ChatValue> CallBuiltin(absl::string_view kind, const Builtin& builtin,
                                        const ChatValue& self, CallArguments* arguments);

  // Attributes and items (value_access.cc).
  absl::StatusOr<std::optional<ChatValue>> LoopAttribute(const ChatValue& loop,
                                                         absl::string_view name);
  ChatValue MakeMethod(const ChatValue& self, const Builtin& method);

  const TemplateTree& tree_;
  RenderMeter meter_;
  const absl::Time now_;
  const absl::TimeZone zone_;
  ConstructCounts* const counts_;
  int depth_ = 0;
  Scope scope_;
  TextBuilder* out_ = nullptr;  // Takes the output of the statements that run.
  std::vector<ChatValue> namespaces_;
};

// Counts what is open, from construction to destruction.
class Interpreter::Depth {
 public:
  explicit Depth(Interpreter* interpreter) : interpreter_(interpreter) {
    const int limit = interpreter->meter_.limits().max_depth;
    if (++interpreter->depth_ > limit) {
      interpreter->meter_.Fail(
          absl::StrCat("statements, expressions and calls are nested deeper than ", limit));
    }
  }
  ~Depth() { --interpreter_->depth_; }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;

 private:
  Interpreter* const interpreter_;
};

// Adds the line to an error that has none yet. The message of raise_exception stays as it is.
absl::Status AtLine(int line, const absl::Status& error);

// Returns Jinja's name of a value for messages: "dict object".
std::string ObjectName(const ChatValue& value);
absl::Span<const absl::string_view> LoopAttributes();
// Names of statements, expressions and attributes of `loop`, as ConstructCounts has them.
std::vector<std::string> InterpreterConstructs();

// Returns the operation of one of + - * / // % ** as Python computes it.
absl::StatusOr<ChatValue> BinaryOperation(absl::string_view op, const ChatValue& a,
                                          const ChatValue& b, Interpreter* interpreter);
absl::StatusOr<ChatValue> Negated(const ChatValue& value);
// `text % arguments` and text.format(arguments).
absl::StatusOr<ChatValue> PercentFormat(const OriginText& text, const ChatValue& arguments,
                                        Interpreter* interpreter);
absl::StatusOr<ChatValue> StrFormat(const OriginText& text, const CallArguments& arguments,
                                    Interpreter* interpreter);
// Returns a time as Python's strftime writes it.
absl::StatusOr<ChatValue> FormatClock(const OriginText& format, absl::Time now, absl::TimeZone zone,
                                      RenderMeter* meter);

}  // namespace baton
