#include "tests/goodput/testing/openai_server.h"

#include <algorithm>
#include <list>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <sys/socket.h>

#include "absl/base/thread_annotations.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/base/mutex.h"

namespace baton {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;

constexpr uint32_t kMaxPart = 40;  // Max bytes that are written at once.

uint32_t PromptTokens(const nlohmann::json& prompt) {
  return static_cast<uint32_t>(prompt.is_array() ? prompt.size()
                                                 : prompt.get<std::string>().size());
}

}  // namespace

struct OpenAiServer::Parts {
  asio::io_context io;
  tcp::acceptor acceptor{io, tcp::endpoint(asio::ip::address_v4::loopback(), 0)};
  std::thread accepting;
  Mutex mutex;
  CondVar changed;
  bool ended ABSL_GUARDED_BY(mutex) = false;
  std::list<std::unique_ptr<Connection>> connections ABSL_GUARDED_BY(mutex);
};

class OpenAiServer::Connection final : public Writer {
 public:
  Connection(OpenAiServer* server, tcp::socket socket, uint64_t seed)
      : server_(server), socket_(std::move(socket)), random_(seed) {
    beast::error_code ignored;
    socket_.set_option(tcp::no_delay(true), ignored);
    thread_ = std::thread([this] { Run(); });
  }
  // Wakes the thread's reads and writes.
  void Stop() { ::shutdown(socket_.native_handle(), SHUT_RDWR); }
  void Join() { thread_.join(); }

  bool Reply(int status, const nlohmann::json& body, const std::string& fields) override {
    return Whole(status, "application/json", body.dump(), fields);
  }
  bool ReplyText(int status, const std::string& text) override {
    return Whole(status, "text/plain", text, "");
  }
  bool Begin() override {
    return Raw(
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
  }
  bool Event(const std::string& data) override {
    const std::string& end = server_->line_end;
    return Bytes(
        absl::StrCat(server_->comments ? ": a comment" + end + end : "", "data: ", data, end, end));
  }
  bool Bytes(const std::string& bytes) override {
    return Raw(absl::StrFormat("%x\r\n%s\r\n", bytes.size(), bytes));
  }
  bool Finish() override { return Event("[DONE]") && EndMessage(); }
  bool EndMessage() override { return Raw("0\r\n\r\n"); }
  bool Raw(const std::string& bytes) override {
    for (size_t begin = 0; begin < bytes.size() && open_;) {
      const size_t part = std::min<size_t>(1 + random_() % kMaxPart, bytes.size() - begin);
      beast::error_code error;
      asio::write(socket_, asio::buffer(bytes.data() + begin, part), error);
      open_ = !error;
      begin += part;
    }
    return open_;
  }
  bool Wait(absl::Duration time) override {
    const absl::Time until = absl::Now() + time;
    MutexLock lock(&server_->parts_->mutex);
    while (open_ && !server_->parts_->ended && absl::Now() < until) {
      server_->parts_->changed.WaitFor(&server_->parts_->mutex,
                                       std::min(until - absl::Now(), absl::Milliseconds(20)));
      open_ = open_ && !ClientHasGone();
    }
    return open_ && !server_->parts_->ended;
  }
  void Close() override {
    open_ = false;
    Stop();
  }

 private:
  bool ClientHasGone() {
    char byte;
    return ::recv(socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
  }
  bool Whole(int status, const std::string& type, const std::string& body,
             const std::string& fields) {
    return Raw(absl::StrCat("HTTP/1.1 ", status, " Said\r\nContent-Type: ", type,
                            "\r\nContent-Length: ", body.size(), "\r\n", fields, "\r\n", body));
  }
  void Run() {
    beast::flat_buffer buffer;
    while (open_) {
      http::request<http::string_body> read;
      beast::error_code error;
      http::read(socket_, buffer, read, error);
      if (error) break;
      Request request{.method = std::string(read.method_string()),
                      .target = std::string(read.target())};
      for (const auto& field : read) {
        request.fields[absl::AsciiStrToLower(std::string(field.name_string()))] =
            std::string(field.value());
      }
      if (!read.body().empty()) request.body = nlohmann::json::parse(read.body());
      server_->Serve(request, this);
    }
    Stop();
  }

  OpenAiServer* const server_;
  tcp::socket socket_;
  std::mt19937 random_;
  bool open_ = true;
  std::thread thread_;
};

OpenAiServer::OpenAiServer(uint64_t seed) : parts_(std::make_unique<Parts>()) {
  address_ = absl::StrCat("127.0.0.1:", parts_->acceptor.local_endpoint().port());
  parts_->accepting = std::thread([this, seed] {
    for (uint64_t i = 0;; ++i) {
      beast::error_code error;
      tcp::socket socket(parts_->io);
      parts_->acceptor.accept(socket, error);
      MutexLock lock(&parts_->mutex);
      if (parts_->ended) return;
      if (error) continue;
      parts_->connections.push_back(
          std::make_unique<Connection>(this, std::move(socket), seed * 1000 + i));
    }
  });
}

OpenAiServer::~OpenAiServer() {
  {
    MutexLock lock(&parts_->mutex);
    parts_->ended = true;
    parts_->changed.SignalAll();
  }
  ::shutdown(parts_->acceptor.native_handle(), SHUT_RDWR);
  parts_->accepting.join();
  std::list<std::unique_ptr<Connection>> connections;
  {
    MutexLock lock(&parts_->mutex);
    connections.swap(parts_->connections);
  }
  for (const auto& one : connections) one->Stop();
  for (const auto& one : connections) one->Join();
}

int OpenAiServer::connections() const {
  MutexLock lock(&parts_->mutex);
  return static_cast<int>(parts_->connections.size());
}

nlohmann::json OpenAiServer::Error(const std::string& message) {
  return {{"error",
           {{"message", message}, {"type", "some_error"}, {"param", nullptr}, {"code", nullptr}}}};
}

void OpenAiServer::Serve(const Request& request, Writer* writer) {
  const auto authorization = request.fields.find("authorization");
  if (!key.empty() &&
      (authorization == request.fields.end() || authorization->second != "Bearer " + key)) {
    writer->Reply(401, Error("no such key"));
  } else if (request.target == "/v1/models" && lists_models) {
    nlohmann::json one = {{"id", model}, {"object", "model"}};
    if (context_tokens > 0) one["max_model_len"] = context_tokens;
    writer->Reply(200, {{"object", "list"}, {"data", {one, {{"id", "second"}}}}});
  } else if (request.target == "/tokenize" && tokenizes) {
    nlohmann::json tokens = nlohmann::json::array();
    for (const char c : request.body["prompt"].get<std::string>()) tokens.push_back(c & 0x7f);
    writer->Reply(200, {{"count", tokens.size()}, {"tokens", tokens}});
  } else if (request.target == "/v1/completions") {
    Complete(request, writer);
  } else if (request.target == "/v1/chat/completions") {
    Request completion = request;
    completion.body["prompt"] = request.body["messages"][0]["content"];
    Complete(completion, writer);
  } else {
    writer->Reply(404, Error("no such path: " + request.target));
  }
}

void OpenAiServer::Complete(const Request& request, Writer* writer) {
  const nlohmann::json& prompt = request.body["prompt"];
  const bool asks_for_ids = request.body.value("return_token_ids", false);
  if (prompt.is_array() && !takes_ids) {
    writer->Reply(400, Error("the prompt is not a text"));
    return;
  }
  for (size_t i = 0; prompt.is_array() && vocabulary > 0 && i < prompt.size(); ++i) {
    if (prompt[i] < vocabulary) continue;
    writer->Reply(400, Error("token id out of the vocabulary"));
    return;
  }
  if (asks_for_ids && !gives_ids && refuses_unknown) {
    writer->Reply(400, Error("unknown field return_token_ids"));
    return;
  }
  if (request.body.value("stream", false)) {
    // The copy lets the test change the member when the client has the whole answer, although this
    // thread may not have returned.
    if (const auto answer = on_stream) {
      answer(request, writer);
    } else {
      Answer(request, writer, request.body["max_tokens"]);
    }
    return;
  }
  nlohmann::json choice = {{"index", 0}, {"text", "x"}, {"finish_reason", "length"}};
  if (asks_for_ids && gives_ids) choice["token_ids"] = {7};
  writer->Reply(200, {{"object", "text_completion"}, {"choices", {choice}}});
}

bool OpenAiServer::WriteTokens(const Request& request, Writer* writer, uint32_t first,
                               uint32_t count) {
  const auto seed = static_cast<uint64_t>(request.body["seed"].get<int64_t>());
  std::string text;
  nlohmann::json ids = nlohmann::json::array();
  for (uint32_t i = first; i < first + count; ++i) {
    absl::StrAppend(&text, " t", i);
    ids.push_back((seed + i) % 1000);
  }
  nlohmann::json choice = {{"index", 0}, {"finish_reason", nullptr}};
  if (request.body.contains("messages")) {
    choice["delta"] = {{"content", text}};
  } else {
    choice["text"] = text;
  }
  if (request.body.value("return_token_ids", false) && gives_ids) choice["token_ids"] = ids;
  return writer->Event(
      nlohmann::json({{"object", "text_completion"}, {"choices", {choice}}, {"usage", nullptr}})
          .dump());
}

nlohmann::json OpenAiServer::UsageEvent(const Request& request, uint32_t tokens) {
  const uint32_t prompt = PromptTokens(request.body["prompt"]);
  nlohmann::json event = {{"choices", nlohmann::json::array()},
                          {"usage",
                           {{"prompt_tokens", prompt},
                            {"completion_tokens", tokens},
                            {"total_tokens", prompt + tokens},
                            {"prompt_tokens_details", {{"cached_tokens", 3}}}}}};
  const auto timing = request.fields.find("x-baton-timing");
  if (timing != request.fields.end() && timing->second == "1") {
    event["timing"] = {
        {"queue_ms", 0.5}, {"prefill_ms", 1.234}, {"handover_ms", 2}, {"decode_ms", 4.25}};
  }
  return event;
}

bool OpenAiServer::Answer(const Request& request, Writer* writer, uint32_t tokens) {
  if (!writer->Wait(ttft) || !writer->Begin()) return false;
  for (uint32_t i = 0; i < tokens; i += tokens_per_event) {
    if (i > 0 && !writer->Wait(gap)) return false;
    if (!WriteTokens(request, writer, i, std::min(tokens_per_event, tokens - i))) return false;
  }
  const nlohmann::json end = {{"index", 0}, {"text", ""}, {"finish_reason", "length"}};
  writer->Event(nlohmann::json({{"choices", {end}}}).dump());
  if (gives_usage) writer->Event(UsageEvent(request, tokens).dump());
  return writer->Finish();
}

}  // namespace baton
