#pragma once

namespace baton {

// Redirects gRPC's own messages to our log, as events named `grpc`, in the chosen format and from
// the chosen level on. Has an effect once per process. Call it before the first server or channel
// is made. Any thread.
void LogGrpc();

}  // namespace baton
