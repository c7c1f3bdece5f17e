#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton {

struct TemplateToken {
  enum class Kind {
    kData,        // Text outside of tags.
    kBlockBegin,  // {%
    kBlockEnd,
    kPrintBegin,  // {{
    kPrintEnd,
    kName,
    kString,
    kInteger,
    kFloat,
    kOperator,
    kEnd,
  };

  Kind kind = Kind::kEnd;
  int line = 0;
  // The text: of a string without quotes and escapes, of a number without underscores.
  std::string text;
};

// Cuts a template into tokens, as Jinja does with trim_blocks and lstrip_blocks. Comments and raw
// blocks are resolved; the last token is kEnd. Returns InvalidArgument, "line 12: ...".
absl::StatusOr<std::vector<TemplateToken>> LexTemplate(absl::string_view source);

}  // namespace baton
