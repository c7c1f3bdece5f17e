#pragma once

#include <functional>

#include "absl/time/time.h"
#include "baton/v1/inference.pb.h"
#include "tests/cluster/cluster.h"
#include "tests/goodput/http/http_caller.h"

namespace baton {

// Returns true if /v1/completions has fields for all that a request of token ids asks for, except
// for its mode. It is served in the router's own mode there.
bool IsCompletion(const v1::GenerateRequest& request);

// Sends a request, for which IsCompletion() holds, to /v1/completions and waits for its end. The
// answer is what Generate() of the cluster would return, except that its Summaries have only the
// usage, which is the sum over all answers. A request for logprobs of its prompt, and every fourth
// other one, is answered as a whole; all others as a stream of events. `on_token` is called with
// every token of a stream.
Answer Complete(HttpCaller& http, const v1::GenerateRequest& request, absl::Duration deadline,
                const std::function<void(const v1::Token&)>& on_token);

}  // namespace baton
