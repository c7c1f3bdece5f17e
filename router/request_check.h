#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "baton/v1/inference.pb.h"
#include "common/model/model_config.h"
#include "common/tokenizer/tokenizer.h"
#include "router/core/core_events.h"

namespace baton {

// What this router serves: constant while it runs.
struct ServedModel {
  std::string name;
  ModelConfig config;
  const Tokenizer* tokenizer = nullptr;
};

// The largest request that is looked at.
struct RequestLimits {
  size_t text_bytes = 8 << 20;  // of a prompt, or of a text to tokenise
};

// Everything about a request that can be judged without the workers, and its prompt as tokens. Any
// thread; a long text takes its time here, so not the core's. NotFound for another model,
// InvalidArgument for everything else, with field and value.
absl::StatusOr<CheckedRequest> CheckRequest(const v1::GenerateRequest& request,
                                            const ServedModel& model, const RequestLimits& limits,
                                            absl::Time arrival, absl::Time deadline);

// For a request that came without one.
std::string NewRequestId();
// How many answers a request asks for, 1 where that is no number it may be. Any thread.
int AnswersWanted(const v1::GenerateRequest& request);

// NotFound unless `name` is empty or the model's.
absl::Status CheckModelName(absl::string_view name, const ServedModel& model);
// InvalidArgument names `field` when `text` is longer than the limit.
absl::Status CheckTextSize(absl::string_view field, absl::string_view text,
                           const RequestLimits& limits);

}  // namespace baton
