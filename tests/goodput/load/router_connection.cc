#include "tests/goodput/load/router_connection.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/api_key.h"
#include "common/base/program.h"
#include "common/base/status_macros.h"
#include "tests/goodput/load/generate_stream.h"

namespace baton {
namespace {

using SystemClock = std::chrono::system_clock;

constexpr int32_t kIdsPerCall = 4096;
constexpr int kMaxCalls = 20'000;
constexpr auto kCallLimit = std::chrono::seconds(30);

std::shared_ptr<grpc::Channel> Dial(const std::string& endpoint) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(64 << 20);
  // Sets no retry policy, and accepts none from the name service. gRPC still repeats a call in one
  // case: if the connection closed before a server began the call, the call moves to another
  // connection.
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // Each channel has its own connection.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, 1000);
  // Keepalive detects a router that vanished without closing its connections. The open requests
  // then fail.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetLoadBalancingPolicyName("round_robin");
  return grpc::CreateCustomChannel(endpoint, grpc::InsecureChannelCredentials(), arguments);
}

// The codes of gRPC and Abseil have the same numbers and meanings.
absl::Status FromGrpc(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

}  // namespace

absl::StatusOr<std::unique_ptr<RouterConnection>> RouterConnection::Open(const Options& options,
                                                                         StopFlag* stop) {
  std::unique_ptr<RouterConnection> connection(new RouterConnection);
  ASSIGN_OR_RETURN(connection->api_key_, ApiKeyFromEnvironment(kApiKeyVariable));
  RETURN_IF_ERROR(connection->Connect(options, stop));
  RETURN_IF_ERROR(connection->AskForModel(options));
  return connection;
}

absl::Status RouterConnection::Connect(const Options& options, StopFlag* stop) {
  const auto deadline = SystemClock::now() + absl::ToChronoNanoseconds(options.connect_timeout);
  for (int i = 0; i < options.channels; ++i) {
    channels_.push_back(Dial(options.endpoint));
    stubs_.push_back(v1::Inference::NewStub(channels_.back()));
    channels_.back()->GetState(/*try_to_connect=*/true);
  }
  for (const auto& channel : channels_) {
    // Waits for a short time in each iteration, so that Ctrl-C has an effect.
    while (!channel->WaitForConnected(std::min<SystemClock::time_point>(
        deadline, SystemClock::now() + std::chrono::milliseconds(50)))) {
      if (stop->stopped()) return absl::CancelledError("stopped before the router was reached");
      if (SystemClock::now() < deadline) continue;
      // Makes a call that fails immediately, to learn why the router can't be reached.
      grpc::ClientContext context;
      context.set_deadline(SystemClock::now() + std::chrono::milliseconds(200));
      v1::ListModelsResponse response;
      const grpc::Status status = stubs_[0]->ListModels(&context, {}, &response);
      return absl::UnavailableError(
          absl::StrCat("can't reach the router at ", options.endpoint, " within ",
                       absl::FormatDuration(options.connect_timeout), ": ",
                       status.ok() ? "it answers only now" : status.error_message(),
                       "; start one (", RouterCommand(), "), or name another with --endpoint"));
    }
  }
  return absl::OkStatus();
}

absl::Status RouterConnection::AskForModel(const Options& options) {
  grpc::ClientContext context;
  context.set_deadline(SystemClock::now() + kCallLimit);
  AddApiKey(api_key_, &context);
  v1::ListModelsResponse response;
  const grpc::Status status = stubs_[0]->ListModels(&context, {}, &response);
  if (status.error_code() == grpc::StatusCode::UNAUTHENTICATED) {
    return absl::UnauthenticatedError(absl::StrCat(
        "the router at ", options.endpoint, " takes no request ",
        api_key_.empty() ? "without a key; set $BATON_API_KEY" : "with the key in $BATON_API_KEY",
        ": ", status.error_message()));
  }
  if (!status.ok()) {
    return absl::UnavailableError(
        absl::StrCat("the router at ", options.endpoint,
                     " does not say which models it serves: ", status.error_message()));
  }
  const auto name = [](std::string* out, const v1::Model& model) { out->append(model.name()); };
  const std::string names = absl::StrJoin(response.models(), ", ", name);
  if (options.model.empty() && response.models_size() != 1) {
    return absl::InvalidArgumentError(absl::StrCat("the router at ", options.endpoint, " serves ",
                                                   response.models_size(), " models (", names,
                                                   "); name one with --model"));
  }
  for (const v1::Model& model : response.models()) {
    if (!options.model.empty() && model.name() != options.model) continue;
    server_ = {.endpoint = options.endpoint,
               .model = model.name(),
               .architecture = model.architecture(),
               .fingerprint = model.fingerprint(),
               .context_tokens = model.context_tokens(),
               .vocab_size = model.vocab_size(),
               .prefill_workers = model.prefill_workers(),
               .decode_workers = model.decode_workers()};
    return absl::OkStatus();
  }
  return absl::NotFoundError(absl::StrCat("the router at ", options.endpoint, " serves no model '",
                                          options.model, "'; it serves ", names));
}

absl::StatusOr<std::vector<int32_t>> RouterConnection::OrdinaryTokens() {
  std::vector<int32_t> ordinary;
  int calls = 0;
  const auto vocabulary = static_cast<int32_t>(std::min<uint32_t>(server_.vocab_size, 1 << 24));
  for (int32_t begin = 0; begin < vocabulary; begin += kIdsPerCall) {
    RETURN_IF_ERROR(
        AddOrdinary(begin, std::min(begin + kIdsPerCall, vocabulary), &calls, &ordinary));
  }
  if (ordinary.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the vocabulary of ", server_.model, " has ", server_.vocab_size,
                     " tokens, and all of them are special ones; give --prompts"));
  }
  return ordinary;
}

absl::StatusOr<std::vector<int32_t>> RouterConnection::Tokenize(const std::string& text,
                                                                StopFlag* stop) {
  if (stop->stopped()) return absl::CancelledError("stopped while the prompts were counted");
  grpc::ClientContext context;
  context.set_deadline(SystemClock::now() + kCallLimit);
  AddApiKey(api_key_, &context);
  v1::TokenizeRequest request;
  request.set_model(server_.model);
  request.set_text(text);
  v1::TokenizeResponse response;
  const grpc::Status status = stubs_[0]->Tokenize(&context, request, &response);
  if (!status.ok()) return FromGrpc(status);
  return std::vector<int32_t>(response.token_ids().begin(), response.token_ids().end());
}

std::unique_ptr<RequestStream> RouterConnection::NewStream(RequestRecord record,
                                                           RequestStream::Clock::time_point start,
                                                           bool keep_token_ids,
                                                           RequestStream::OnEnded on_ended) {
  v1::Inference::Stub* const stub = stubs_[record.index % stubs_.size()].get();
  return std::make_unique<GenerateStream>(stub, api_key_, std::move(record), start, keep_token_ids,
                                          std::move(on_ended));
}

absl::Status RouterConnection::AddOrdinary(int32_t begin, int32_t end, int* calls,
                                           std::vector<int32_t>* ordinary) {
  std::string texts[2];
  grpc::Status status;
  for (const bool skip : {false, true}) {
    v1::DetokenizeRequest request;
    request.set_model(server_.model);
    request.set_skip_special(skip);
    for (int32_t id = begin; id < end; ++id) request.add_token_ids(id);
    grpc::ClientContext context;
    context.set_deadline(SystemClock::now() + kCallLimit);
    AddApiKey(api_key_, &context);
    v1::DetokenizeResponse response;
    status = stubs_[0]->Detokenize(&context, request, &response);
    if (!status.ok()) break;
    texts[skip] = response.text();
  }
  // The tokeniser may not know an id, because vocabulary sizes are rounded up.
  const bool unknown = status.error_code() == grpc::StatusCode::INVALID_ARGUMENT;
  if (!status.ok() && !unknown) return FromGrpc(status);
  if (status.ok() && texts[0] == texts[1]) {
    for (int32_t id = begin; id < end; ++id) ordinary->push_back(id);
    return absl::OkStatus();
  }
  if (end - begin == 1) return absl::OkStatus();
  if (++*calls > kMaxCalls)
    return absl::FailedPreconditionError(
        "the vocabulary has too many special tokens; give --prompts");
  const int32_t middle = begin + (end - begin) / 2;
  RETURN_IF_ERROR(AddOrdinary(begin, middle, calls, ordinary));
  return AddOrdinary(middle, end, calls, ordinary);
}

}  // namespace baton
