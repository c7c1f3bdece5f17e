#include <utility>

#include "common/base/check.h"
#include "router/router_core_parts.h"

// Several answers to one client: each is a request of its own, with its own place in the queue,
// legs and migrations; what the client is told of them is one stream.
namespace baton {

void RouterCore::Parts::ArriveAll(ClientArrived event, absl::Time now) {
  const RequestKey client = event.request;
  const int answers = event.checked.answers;
  BATON_CHECK(client >> Request::kClientBits == 0 && groups.count(client) == 0)
      << "request key " << client;
  if (answers == 1) {
    Arrive(std::move(event), now);
    return;
  }
  AnswerGroup& group = groups[client];
  group.answers = answers;
  for (int index = 0; index < answers && !group.ended; ++index) {
    ClientArrived one = {Request::KeyOf(client, index), event.checked};
    one.checked.sampling.answer_index = static_cast<uint32_t>(index);
    // The first asks for room for all of them, and scores the prompt for all.
    if (index > 0) {
      one.checked.answers = 1;
      one.checked.sampling.prompt_logprobs.reset();
    }
    Arrive(std::move(one), now);
    if (group.ended && event.checked.slo.any()) {
      metrics->Failed(group.status, 0, answers - index - 1);  // those that are not even begun
    }
  }
}

std::vector<Request*> RouterCore::Parts::RequestsOf(RequestKey client) {
  std::vector<Request*> all;
  const auto group = groups.find(client);
  const int answers = group == groups.end() ? 1 : group->second.answers;
  for (int index = 0; index < answers; ++index) {
    if (Request* request = FindRequest(Request::KeyOf(client, index))) all.push_back(request);
  }
  return all;
}

AnswerGroup* RouterCore::Parts::GroupOf(const Request& request) {
  const auto group = groups.find(request.client());
  return group == groups.end() ? nullptr : &group->second;
}

void RouterCore::Parts::EndClient(Request& request, absl::Status status) {
  if (AnswerGroup* group = GroupOf(request)) {
    if (group->ended) return;
    if (status.ok() && ++group->done < group->answers) return;
    group->ended = true;
    group->status = status;
    if (!status.ok()) failed_groups.push_back(request.client());
  }
  ServedOf(request).Ended(status);
  actions.push_back(FinishClient{request.client(), std::move(status)});
}

void RouterCore::Parts::AbortClientOf(const Request& request) {
  if (AnswerGroup* group = GroupOf(request)) {
    if (!group->ended || std::exchange(group->aborted, true)) return;
  }
  actions.push_back(AbortClient{request.client()});
}

// Not where the first failure is found: who found it may be walking through the queue.
void RouterCore::Parts::EndGroups(absl::Time now) {
  for (const RequestKey client : std::exchange(failed_groups, {})) {
    const auto group = groups.find(client);
    if (group == groups.end()) continue;
    const absl::StatusCode code = group->second.status.code();
    for (Request* request : RequestsOf(client)) {
      if (request->stage == Request::Stage::kFinished) continue;
      FinishError(*request, absl::Status(code, "another answer to the same client failed"), now);
    }
  }
}

}  // namespace baton
