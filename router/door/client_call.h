#pragma once

#include <vector>

#include "absl/status/status.h"
#include "common/base/types.h"
#include "router/core/client_event.h"

namespace baton {

// A client's wait for the answers to one prompt, whatever protocol it came by. The core's loop
// talks to the client through it. Any thread may call the functions.
class ClientCall {
 public:
  virtual ~ClientCall() = default;
  // Gets the tokens of the prompt, once, before the first event.
  virtual void NotePrompt(const std::vector<TokenId>& /*ids*/) {}
  // Queues an event for the client. Does nothing once the call has ended or the client is gone.
  virtual void Send(ClientEvent event) = 0;
  // Ends the call. With status OK, all queued events are sent first. With another status, events
  // that were not written yet may be dropped. A second call does nothing.
  virtual void End(const absl::Status& status) = 0;
  // Cuts the call, because the client does not read even its final status.
  virtual void Abort() = 0;
  // True if the client has cancelled the call, or its connection has ended.
  virtual bool cancelled() = 0;
};

}  // namespace baton
