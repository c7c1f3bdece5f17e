#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/time/time.h"

namespace baton {

// A fake server with OpenAI's API for tests of the load generator. Its answers come as the test
// says, in parts that are split at random places. Each connection has a thread. Set the public
// members only while no request is open.
class OpenAiServer {
 public:
  struct Request {
    std::string method, target;
    std::map<std::string, std::string> fields;  // Names in lower case.
    nlohmann::json body;                        // Null if there was none.
  };
  // Writes one answer. The functions return false if the client or the test has ended.
  class Writer {
   public:
    virtual ~Writer() = default;
    // Writes a whole answer of JSON. `fields` are further lines of its head, each with its line
    // end.
    virtual bool Reply(int status, const nlohmann::json& body, const std::string& fields = "") = 0;
    // Writes a whole answer of text.
    virtual bool ReplyText(int status, const std::string& text) = 0;
    // Begins a stream of events.
    virtual bool Begin() = 0;
    // Writes an event, whose data is in one line.
    virtual bool Event(const std::string& data) = 0;
    // Writes any bytes as the next part of the body.
    virtual bool Bytes(const std::string& bytes) = 0;
    // Writes the last event, [DONE], and the end of the HTTP message.
    virtual bool Finish() = 0;
    // Writes the end of the HTTP message alone.
    virtual bool EndMessage() = 0;
    // Writes bytes as they are, without the form of HTTP.
    virtual bool Raw(const std::string& bytes) = 0;
    // Waits. The time 'infinite' ends with the client or the test.
    virtual bool Wait(absl::Duration time) = 0;
    // Closes the connection.
    virtual void Close() = 0;
  };

  explicit OpenAiServer(uint64_t seed = 1);
  ~OpenAiServer();

  // HOST:PORT.
  const std::string& address() const { return address_; }
  std::string url() const { return "http://" + address_; }
  // Number of connections that clients have opened.
  int connections() const;

  std::string model = "served";
  uint32_t context_tokens = 2048;  // 0: the list of models does not tell.
  int32_t vocabulary = 5000;       // Higher ids are refused; 0: all are taken.
  std::string key;                 // Needed if it is not empty.
  bool lists_models = true;
  bool takes_ids = true;         // Takes prompts of token ids.
  bool gives_ids = true;         // Understands return_token_ids.
  bool refuses_unknown = false;  // Refuses return_token_ids if it does not understand it.
  bool tokenizes = true;         // Has /tokenize; each byte of a text is a token.
  bool gives_usage = true;
  uint32_t tokens_per_event = 1;
  std::string line_end = "\n";
  bool comments = false;  // Writes a comment before each event.
  absl::Duration ttft = absl::ZeroDuration();
  absl::Duration gap = absl::ZeroDuration();  // Wait before each event but the first.
  // If set, is called for streamed completions instead of Answer(). Runs on the connection's
  // thread.
  std::function<void(const Request&, Writer*)> on_stream;

  // Answers with `tokens` tokens. Their ids are those of TimedRouter.
  bool Answer(const Request& request, Writer* writer, uint32_t tokens);
  // Writes the event of tokens from `first` to `first + count - 1`.
  bool WriteTokens(const Request& request, Writer* writer, uint32_t first, uint32_t count);
  static nlohmann::json UsageEvent(const Request& request, uint32_t tokens);
  // Returns the body of an error in OpenAI's shape.
  static nlohmann::json Error(const std::string& message);

 private:
  class Connection;
  struct Parts;
  void Serve(const Request& request, Writer* writer);
  void Complete(const Request& request, Writer* writer);

  std::unique_ptr<Parts> parts_;
  std::string address_;
};

}  // namespace baton
