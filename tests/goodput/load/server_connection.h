#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tests/goodput/load/load_spec.h"
#include "tests/goodput/load/request_stream.h"
#include "tests/goodput/load/stop_flag.h"
#include "tests/goodput/results/record.h"

namespace baton {

// Connections of a load to the server that it measures: a router by gRPC, or a server with OpenAI's
// API by HTTP. Must outlive its streams.
class ServerConnection {
 public:
  // Connects to spec.endpoint, with `channels` connections if it is a router. Returns the errors of
  // RouterConnection::Open or of OpenAiConnection::Open.
  static absl::StatusOr<std::unique_ptr<ServerConnection>> Open(const LoadSpec& spec, int channels,
                                                                StopFlag* stop);
  virtual ~ServerConnection() = default;

  // Its context_tokens is 0 if the server does not tell the model's context.
  virtual const ServerInfo& server() const = 0;
  // Returns the ids from which prompts are made.
  virtual absl::StatusOr<std::vector<int32_t>> OrdinaryTokens() = 0;
  // Returns the tokens that the server makes of `text`. Returns Unimplemented if the server can't
  // count tokens, another error of the call if it fails, and Cancelled once `stop` is set.
  virtual absl::StatusOr<std::vector<int32_t>> Tokenize(const std::string& text,
                                                        StopFlag* stop) = 0;
  // Returns true if answers have the ids of their tokens.
  virtual bool GivesTokenIds() const = 0;

  // Makes the form of a request in which it is sent. Takes time for a long prompt, so call it
  // before the request is due.
  virtual OutgoingRequest Prepare(v1::GenerateRequest request) const = 0;
  // Makes a stream. `record` must have index, mode, measured, scheduled_s, wanted_tokens and
  // forced_length. Times in the record count from `start`.
  virtual std::unique_ptr<RequestStream> NewStream(RequestRecord record,
                                                   RequestStream::Clock::time_point start,
                                                   bool keep_token_ids,
                                                   RequestStream::OnEnded on_ended) = 0;
  // Adds notes on this connection and its answers, for the reader of the results. Call when no
  // stream is open.
  virtual void Remark(std::vector<std::string>* remarks) const = 0;
};

// Returns true if `endpoint` is a URL, and not HOST:PORT of a router.
bool IsOpenAiEndpoint(absl::string_view endpoint);

// Returns the context to which the lengths of a load are cut: the longest possible length if the
// server does not tell its context.
uint32_t ContextOf(const ServerInfo& server);

}  // namespace baton
