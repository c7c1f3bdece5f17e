#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include <google/protobuf/io/zero_copy_stream.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "baton/v1/inference.pb.h"
#include "common/model/model_config.h"
#include "common/tokenizer/tokenizer.h"
#include "router/core/core_events.h"

namespace baton {

// The model that this router serves. Constant while the router runs. The tokeniser outlives it.
struct ServedModel {
  std::string name;
  ModelConfig config;
  const Tokenizer* tokenizer = nullptr;
};

// Limits on the requests that the router accepts.
struct RequestLimits {
  // Deadline of a request whose client set none, after its arrival.
  absl::Duration default_deadline = absl::Seconds(600);
  // Time in which a client must send its request, once it has begun its call.
  absl::Duration request_limit = absl::Seconds(60);
  // If true, a caller is named by the metadata kTenantMetadata where a request has it.
  bool trust_tenant_metadata = false;
  size_t text_bytes = 8 << 20;  // Max size of a prompt's text, and of a text to tokenise.
};

// Checks everything about a request that does not depend on the workers, and turns its prompt into
// tokens. It may take long for a long text, so call it on another thread than the core's. Returns
// NotFound for another model. Returns InvalidArgument, with field and value, for any other fault.
// `interrupted` is called now and then while a text is tokenised, which stops with the first status
// that is not OK; it may be empty. Any thread.
absl::StatusOr<CheckedRequest> CheckRequest(const v1::GenerateRequest& request,
                                            const ServedModel& model, const RequestLimits& limits,
                                            absl::Time arrival, absl::Time deadline,
                                            std::function<absl::Status()> interrupted = nullptr);

// Returns the max bytes that a request can have in its message beside its text, for a model with
// this context.
size_t MaxBytesBesideText(int context);
// Checks the message of a GenerateRequest, of `size` bytes, before it is parsed. Returns
// InvalidArgument, with the number of bytes and the max, if it has more than MaxBytesBesideText().
// (Parsed, each of these bytes may take eight bytes of memory, and several such messages may come
// at once.) Returns OK for a message that is not valid, unless it is too long. Any thread.
absl::Status CheckBytesBesideText(google::protobuf::io::ZeroCopyInputStream* message, size_t size,
                                  int context);

// Makes an id for a request that came without one. Any thread.
std::string NewRequestId();
// Returns the number of answers that a request asks for; 1 if that number is not valid. Any thread.
int AnswersWanted(const v1::GenerateRequest& request);

// Returns NotFound unless `name` is empty or the name of the model. Any thread.
absl::Status CheckModelName(absl::string_view name, const ServedModel& model);
// Returns InvalidArgument, with the name `field`, if `text` is longer than the limit. Any thread.
absl::Status CheckTextSize(absl::string_view field, absl::string_view text,
                           const RequestLimits& limits);

}  // namespace baton
