#include "common/chat/chat_template.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/tokenizer/utf8.h"

namespace baton {
namespace {

RenderedText ToRendered(const OriginText& text) {
  RenderedText rendered;
  rendered.text.reserve(text.size());
  for (const OriginChar c : text.chars()) {
    const size_t begin = rendered.text.size();
    AppendUtf8(c.code(), &rendered.text);
    if (c.origin() != TextOrigin::kTemplate) continue;
    auto& ranges = rendered.from_template;
    if (ranges.empty() || ranges.back().end != begin) ranges.push_back({begin, begin});
    ranges.back().end = rendered.text.size();
  }
  return rendered;
}

}  // namespace

absl::StatusOr<std::unique_ptr<const ChatTemplate>> ChatTemplate::Parse(absl::string_view source) {
  ASSIGN_OR_RETURN(std::unique_ptr<const TemplateTree> tree, ParseTemplate(source));
  return std::unique_ptr<const ChatTemplate>(new ChatTemplate(std::move(tree)));
}

absl::StatusOr<RenderedText> ChatTemplate::Render(const ChatVariables& variables,
                                                  const RenderLimits& limits,
                                                  const TemplateClock& clock,
                                                  ConstructCounts* counts) const {
  Interpreter interpreter(*tree_, limits, clock.now, clock.zone, counts);
  ASSIGN_OR_RETURN(const OriginText text, interpreter.Run(variables));
  RenderedText rendered = ToRendered(text);
  if (static_cast<int64_t>(rendered.text.size()) > limits.max_output_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the template writes more than ", limits.max_output_bytes, " bytes"));
  }
  return rendered;
}

bool ChatTemplate::HasString(absl::string_view text) const {
  return tree_->strings.count(std::string(text)) > 0;
}

bool ChatTemplate::HasVariable(absl::string_view name) const {
  return tree_->variables.contains(name);
}

std::vector<std::string> AllConstructs() {
  std::vector<std::string> names = InterpreterConstructs();
  const auto add = [&](absl::string_view kind, BuiltinTable table) {
    for (const Builtin& builtin : table) names.push_back(absl::StrCat(kind, " ", builtin.name));
  };
  add("filter", TextFilters());
  add("filter", SequenceFilters());
  add("test", ValueTests());
  add("method str", TextMethods());
  add("method list", ListMethods());
  add("method dict", DictMethods());
  add("function", GlobalFunctions());
  return names;
}

}  // namespace baton
