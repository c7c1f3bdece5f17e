#include "tests/goodput/load/server_connection.h"

#include "absl/strings/match.h"
#include "tests/goodput/load/openai_connection.h"
#include "tests/goodput/load/router_connection.h"
#include "tests/goodput/traces/length_distribution.h"

namespace baton {

absl::StatusOr<std::unique_ptr<ServerConnection>> ServerConnection::Open(const LoadSpec& spec,
                                                                         int channels,
                                                                         StopFlag* stop) {
  if (!IsOpenAiEndpoint(spec.endpoint)) {
    return RouterConnection::Open({.endpoint = spec.endpoint,
                                   .model = spec.model,
                                   .channels = channels,
                                   .connect_timeout = spec.connect_timeout},
                                  stop);
  }
  return OpenAiConnection::Open({.url = spec.endpoint,
                                 .model = spec.openai_model,
                                 .chat = spec.openai_chat,
                                 .vocabulary_router = spec.vocabulary_router,
                                 .token_ids_in_answers = spec.keep_token_ids,
                                 .connect_timeout = spec.connect_timeout},
                                stop);
}

bool IsOpenAiEndpoint(absl::string_view endpoint) { return absl::StrContains(endpoint, "://"); }

uint32_t ContextOf(const ServerInfo& server) {
  return server.context_tokens > 0 ? server.context_tokens
                                   : static_cast<uint32_t>(LengthDistribution::kLongest);
}

}  // namespace baton
