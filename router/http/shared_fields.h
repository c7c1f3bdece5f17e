#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "baton/v1/sampling.pb.h"
#include "router/door/client_request.h"
#include "router/http/completion_request.h"
#include "router/http/json_cursor.h"

namespace baton {

// The largest number of tokens that a field takes: what SamplingParams can hold.
inline constexpr int64_t kMaxTokenCount = std::numeric_limits<int32_t>::max();
inline constexpr int64_t kMaxAlternatives = 20;
inline constexpr size_t kMaxModelNameBytes = 1000;

// Reads the fields that /v1/completions and /v1/chat/completions share. The parser of a path reads
// its own fields first, and gives all others to this object. Used by one thread at a time.
class SharedFields {
 public:
  // `settings` outlives the object.
  SharedFields(const CompletionSettings& settings, bool chat);

  // Reads a field that the path does not have alone. A field that no path has is ignored or
  // refused, as the settings say.
  absl::Status Read(absl::string_view name, JsonCursor* cursor);
  // Call these two once all fields were read. The first checks the fields that depend on each
  // other, and the second sets what the path's defaults do not say.
  absl::Status CheckTogether() const;
  void SetDefaults();

  const CompletionSettings& settings() const { return settings_; }
  // The request without its prompts.
  CompletionRequest& request() { return request_; }
  CompletionShape& shape() { return request_.shape; }
  // The values that all prompts of the request share.
  ClientRequest& base() { return base_; }
  v1::SamplingParams& sampling() { return base_.sampling; }

 private:
  // Read a field of a group. Set `known` to false, and read nothing, if the group does not have it.
  absl::Status ReadSamplingField(absl::string_view name, JsonCursor* cursor, bool* known);
  absl::Status ReadShapeField(absl::string_view name, JsonCursor* cursor, bool* known);
  absl::Status ReadStop(const JsonPath& path, JsonCursor* cursor);
  absl::Status ReadStopTokenIds(const JsonPath& path, JsonCursor* cursor);
  absl::Status ReadLogitBias(const JsonPath& path, JsonCursor* cursor);
  absl::Status ReadStreamOptions(const JsonPath& path, JsonCursor* cursor);
  absl::Status ReadUnknown(const std::string& name, JsonCursor* cursor);

  const CompletionSettings& settings_;
  CompletionRequest request_;
  ClientRequest base_;
  bool has_stream_options_ = false;
};

}  // namespace baton
