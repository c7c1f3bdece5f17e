#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/chat/chat_renderer.h"
#include "common/model/source/model_config.h"
#include "common/tokenizer/tokenizer.h"
#include "router/core/core_events.h"
#include "router/door/client_request.h"

namespace baton {

// Metadata (gRPC) or header (HTTP) in which a trusted client names the caller.
inline constexpr char kTenantHeader[] = "x-baton-tenant";

// The model that this router serves. Constant while the router runs. What it points to outlives it.
struct ServedModel {
  std::string name;
  ModelConfig config;
  const Tokenizer* tokenizer = nullptr;
  const ChatRenderer* chat = nullptr;  // Null: every conversation is refused.
};

// Limits on the requests that the router accepts.
struct RequestLimits {
  // Deadline of a request whose client set none, after its arrival.
  absl::Duration default_deadline = absl::Seconds(600);
  // Time in which a client must send its request, once it has begun its call.
  absl::Duration request_limit = absl::Seconds(60);
  // If true, a caller is named by the metadata or header kTenantHeader where a request has it.
  bool trust_tenant_metadata = false;
  size_t text_bytes = 8 << 20;  // Max size of a prompt's text, and of a text to tokenise.
};

// Checks everything about a request that does not depend on the workers, and turns its prompt into
// tokens. It may take long for a long text, so call it on another thread than the core's. Returns
// NotFound for another model. Returns InvalidArgument, with field and value, for any other fault;
// the status names the parameter, too (common/base/error_details.h), and if the context is too
// short the reason is kContextLengthExceeded.
// `interrupted` is called now and then while a text is tokenised, which stops with the first status
// that is not OK; it may be empty. Any thread.
absl::StatusOr<CheckedRequest> CheckRequest(const ClientRequest& request, const ServedModel& model,
                                            const RequestLimits& limits, absl::Time arrival,
                                            absl::Time deadline,
                                            std::function<absl::Status()> interrupted = nullptr);

// Makes an id for a request that came without one. Any thread.
std::string NewRequestId();
// Returns the number of answers that a request asks for; 1 if that number is not valid. Any thread.
int AnswersWanted(const ClientRequest& request);

// Returns NotFound unless `name` is empty or the name of the model. Any thread.
absl::Status CheckModelName(absl::string_view name, const ServedModel& model);
// Writes a conversation with the model's chat template. Returns the errors of
// ChatRenderer::Render(), and InvalidArgument if its texts, or the text of the prompt, are longer
// than the limit. Any thread.
absl::StatusOr<ChatRenderer::Prompt> RenderChat(const Chat& chat, const ServedModel& model,
                                                const RequestLimits& limits);
// Returns InvalidArgument, with the name `field`, if `text` is longer than the limit. Any thread.
absl::Status CheckTextSize(absl::string_view field, absl::string_view text,
                           const RequestLimits& limits);

}  // namespace baton
