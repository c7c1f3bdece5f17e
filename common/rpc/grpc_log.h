#pragma once

namespace baton {

// What gRPC itself has to say becomes events like all others, `grpc`, in the format and from the
// level that is set. Once per process; called before the first server or channel is made. Any
// thread.
void LogGrpc();

}  // namespace baton
