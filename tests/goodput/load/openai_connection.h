#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "tests/goodput/http/http_caller.h"
#include "tests/goodput/load/http_get.h"
#include "tests/goodput/load/openai_request.h"
#include "tests/goodput/load/openai_stream.h"
#include "tests/goodput/load/server_connection.h"

namespace baton {

// Parses the URL of a server with OpenAI's API: http://HOST[:PORT][/PATH], with /v1 as its path if
// it has none. The message of an InvalidArgument contains the URL, and says so if it is an https
// one.
absl::StatusOr<HttpUrl> ParseOpenAiUrl(absl::string_view url);

// Connections of a load to a server with OpenAI's API: Baton's own HTTP door, vLLM, llama-server
// and others. It asks /v1/completions, or /v1/chat/completions.
class OpenAiConnection final : public ServerConnection {
 public:
  struct Options {
    std::string url;    // See ParseOpenAiUrl.
    std::string model;  // Model to ask for; empty: the first one of /v1/models.
    // Sends prompts as the message of a user to /v1/chat/completions. They are texts then.
    bool chat = false;
    // HOST:PORT of a router that names the ordinary tokens and the model's context; empty: none.
    std::string vocabulary_router;
    bool token_ids_in_answers = false;  // Ask for the token ids of answers, if the server can.
    absl::Duration connect_timeout;     // Limit for reaching the server.
  };
  // Asks for the models, and finds out by requests of one token whether the server takes token ids.
  // Sends the key in $OPENAI_API_KEY, if it is set, with every request.
  //
  // Returns Unavailable, with the URL and the reason, if the server does not answer these requests
  // in time; NotFound if it does not have the model; InvalidArgument if the URL or the key can't be
  // used; the code of the HTTP status if it refuses a request of one token; Cancelled if `stop` is
  // set meanwhile.
  static absl::StatusOr<std::unique_ptr<OpenAiConnection>> Open(const Options& options,
                                                                StopFlag* stop);

  const ServerInfo& server() const override { return server_; }
  const OpenAiFeatures& features() const { return features_; }
  // Returns the vocabulary's middle: special tokens are at its beginning or at its end. If a router
  // was named, returns its ordinary tokens. If the server takes no token ids, returns as many
  // numbers as there are words.
  absl::StatusOr<std::vector<int32_t>> OrdinaryTokens() override;
  absl::StatusOr<std::vector<int32_t>> Tokenize(const std::string& text, StopFlag* stop) override;
  bool GivesTokenIds() const override { return features_.answer_ids; }
  OutgoingRequest Prepare(v1::GenerateRequest request) const override;
  std::unique_ptr<RequestStream> NewStream(RequestRecord record,
                                           RequestStream::Clock::time_point start,
                                           bool keep_token_ids,
                                           RequestStream::OnEnded on_ended) override;
  void Remark(std::vector<std::string>* remarks) const override;

 private:
  OpenAiConnection(Options options, HttpUrl url, StopFlag* stop)
      : options_(std::move(options)), url_(std::move(url)), stop_(stop) {}
  HttpCall Call(absl::string_view method, std::string target) const;
  // Sends a request, and again while the server can't be reached or has no room, until
  // options_.connect_timeout has passed. Returns any other answer, whatever its HTTP status is.
  absl::StatusOr<CallerAnswer> AskUntilAnswered(const HttpCall& call) const;
  // Returns the path of requests.
  std::string Target() const;
  // Sends a request of one token. Returns the answer of the server.
  absl::StatusOr<CallerAnswer> AskForToken(bool prompt_is_ids, int32_t id, bool answer_ids) const;
  absl::Status AskForModel();
  absl::Status FindFeatures();
  // Finds the number of tokens in the vocabulary, if the server refuses ids beyond it.
  absl::StatusOr<int32_t> FindVocabulary() const;

  const Options options_;
  const HttpUrl url_;
  StopFlag* const stop_;
  std::string key_;  // Bearer token; empty: none. Never written to a log or a result.
  std::unique_ptr<HttpCaller> caller_;
  std::unique_ptr<ServerConnection> vocabulary_router_;
  ServerInfo server_;
  OpenAiFeatures features_;
  mutable OpenAiCounts counts_;
};

}  // namespace baton
