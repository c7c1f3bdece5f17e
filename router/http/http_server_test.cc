#include "router/http/http_server.h"

#include <thread>

#include "router/http/http_server_fixture.h"

namespace baton {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST_F(HttpServerTest, AnswersWithAllThatTheServerAdds) {
  Serve();
  RawHttpClient client(server_->address());
  client.Send(
      "POST /wait/%20a?b=c&d HTTP/1.1\r\nHost: x:80\r\nX-Odd:  a, \"b\" \r\nx-odd: 2\r\n"
      "Content-Length: 5\r\n\r\nhello");
  const auto exchange = NextExchange();
  EXPECT_EQ(server_->exchanges(), 1);
  EXPECT_EQ(server_->connections(), 1);
  EXPECT_EQ(exchange->head().method, "POST");
  EXPECT_EQ(exchange->head().path, "/wait/%20a");
  EXPECT_EQ(exchange->head().query, "b=c&d");
  EXPECT_EQ(exchange->head().Get("x-ODD"), "a, \"b\"");
  EXPECT_EQ(exchange->head().fields[2], std::make_pair(std::string("x-odd"), std::string("2")));
  EXPECT_TRUE(exchange->head().Has("host"));
  EXPECT_FALSE(exchange->head().Has("hosts"));
  EXPECT_EQ(exchange->head().peer, "ipv4:127.0.0.1");
  EXPECT_GT(exchange->head().peer_port, 0);
  EXPECT_EQ(exchange->body(), "hello");
  exchange->Respond({.status = 201, .fields = {{"X-Id", "a\r\nEvil: 1"}}, .body = "{}"});
  exchange->Respond({.status = 500});  // The first answer counts.
  const auto answer = client.HearAnswer();
  EXPECT_THAT(answer.head, StartsWith("HTTP/1.1 201 Created\r\nDate: "));
  EXPECT_THAT(answer.head, HasSubstr(" GMT\r\nX-Id: a  Evil: 1\r\nContent-Length: 2\r\n\r\n"));
  EXPECT_EQ(answer.body, "{}");
  client.Send(kGetCheck);
  EXPECT_EQ(client.HearAnswer().body, "checked");
  EXPECT_EQ(server_->exchanges(), 0);
}

TEST_F(HttpServerTest, HeadGetsTheHeadOfGetAlone) {
  Serve();
  RawHttpClient client(server_->address());
  client.Send("HEAD /check HTTP/1.1\r\nHost: x\r\n\r\nHEAD /wait HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(client.HearAnswer(true).head, HasSubstr("Content-Length: 7\r\n"));
  NextExchange()->Respond({.body = "four"});
  EXPECT_THAT(client.HearAnswer(true).head, HasSubstr("Content-Length: 4\r\n"));
  client.Send("HEAD /wait HTTP/1.1\r\nHost: x\r\n\r\n");
  NextExchange()->RespondWith({}, std::make_shared<TestHttpStream>());
  EXPECT_THAT(client.HearAnswer(true).head, HasSubstr("Transfer-Encoding: chunked\r\n"));
  client.Send(kGetCheck);
  EXPECT_EQ(client.HearAnswer().status, 200);
}

TEST_F(HttpServerTest, AnAnswerWithoutBodyHasNoLength) {
  Serve();
  RawHttpClient client(server_->address());
  client.Send(absl::StrCat(kGetWait, kGetCheck));
  NextExchange()->Respond({.status = 204});
  EXPECT_THAT(client.HearUntil("\r\n\r\n"), Not(HasSubstr("Content-Length")));
  EXPECT_EQ(client.HearAnswer().body, "checked");
}

TEST_F(HttpServerTest, Http10EndsWithTheConnection) {
  Serve();
  const std::string answer = Ask("GET /check HTTP/1.0\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("Content-Length: 7\r\nConnection: close\r\n"));
  RawHttpClient kept(server_->address());
  kept.Send("GET /check HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_THAT(kept.HearAnswer().head, HasSubstr("Connection: keep-alive\r\n"));
  kept.Send("GET /wait HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  const auto exchange = NextExchange();
  const auto stream = std::make_shared<TestHttpStream>();
  exchange->RespondWith({}, stream);
  stream->Give("ab");
  exchange->Wake();
  EXPECT_THAT(kept.HearUntil("ab"), Not(HasSubstr("Transfer-Encoding")));
  stream->Give("", true);
  exchange->Wake();
  EXPECT_EQ(kept.HearAll(), "");
  EXPECT_FALSE(kept.was_reset());
}

TEST_F(HttpServerTest, AnEmptyStreamOfHttp10IsComplete) {
  Serve();
  RawHttpClient client(server_->address());
  client.Send("GET /wait HTTP/1.0\r\n\r\n");
  const auto stream = std::make_shared<TestHttpStream>();
  stream->Give("", true);
  NextExchange()->RespondWith({}, stream);
  EXPECT_THAT(client.HearAll(), EndsWith("Connection: close\r\n\r\n"));
}

TEST_F(HttpServerTest, ConnectionCloseIsObeyed) {
  Serve();
  EXPECT_THAT(Ask("GET /check HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
              HasSubstr("Connection: close\r\n\r\nchecked"));
  WaitUntil([&] { return server_->connections() == 0 && counts_.counters().open == 0; });
}

TEST_F(HttpServerTest, ChunkedBodiesComeWhole) {
  Serve();
  RawHttpClient client(server_->address());
  client.Send(
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
      "5\r\nhello\r\n1;name=\"v\"\r\n \r\n00B\r\nworld\r\nwide\r\n0\r\nX-Trailer: 1\r\n\r\n");
  EXPECT_EQ(client.HearAnswer().body, "POST /echo? hello world\r\nwide");
  client.Send("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: Chunked\r\n\r\n0\r\n\r\n");
  EXPECT_EQ(client.HearAnswer().body, "POST /echo? ");
}

TEST_F(HttpServerTest, LongBodiesComeWhole) {
  Serve();
  std::string body(9 << 20, 'x');
  for (size_t i = 0; i < body.size(); i += 4096) body[i] = static_cast<char>('a' + i / 4096 % 26);
  RawHttpClient client(server_->address());
  client.Send(absl::StrCat("POST /wait HTTP/1.1\r\nHost: x\r\nContent-Length: ", body.size(),
                           "\r\n\r\n", body, kGetCheck));
  auto exchange = NextExchange();
  EXPECT_TRUE(exchange->body() == body);
  exchange->Respond({.body = std::move(exchange->body())});
  EXPECT_TRUE(client.HearAnswer().body == body);
  EXPECT_EQ(client.HearAnswer().body, "checked");
}

TEST_F(HttpServerTest, ContinueIsSaidOnlyToRequestsThatAreTaken) {
  Serve({.max_body_bytes = 100});
  RawHttpClient client(server_->address());
  client.Send(
      "POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-Continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ(client.HearUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.Send("ab");
  EXPECT_EQ(client.HearAnswer().body, "POST /echo? ab");
  EXPECT_THAT(Ask("POST /no HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
                  "Content-Length: 2\r\n\r\n"),
              StartsWith("HTTP/1.1 404 Not Found\r\n"));
  EXPECT_THAT(Ask("POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
                  "Content-Length: 101\r\n\r\n"),
              EndsWith("\r\n\r\nthe body has 101 bytes; the limit is 100"));
  // HTTP/1.0 has no such thing. A request without body needs none.
  client.Send("GET /check HTTP/1.0\r\nExpect: 100-continue\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_EQ(client.HearAnswer().body, "checked");
  client.Send("GET /check HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.HearAnswer().body, "checked");
  EXPECT_THAT(Ask("POST /echo HTTP/1.1\r\nHost: x\r\nExpect: a pony\r\n\r\n"),
              StartsWith("HTTP/1.1 417 Expectation Failed\r\n"));
}

TEST_F(HttpServerTest, ARefusedRequestWithAShortBodyKeepsTheConnection) {
  Serve();
  RawHttpClient client(server_->address());
  client.Send("POST /no HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n");
  client.Send(absl::StrCat("ab", kGetCheck));
  EXPECT_EQ(client.HearAnswer().status, 404);
  EXPECT_EQ(client.HearAnswer().status, 200);
  // A long body is not waited for.
  client.Send("POST /no HTTP/1.1\r\nHost: x\r\nContent-Length: 20000\r\n\r\n");
  EXPECT_THAT(client.HearAll(), HasSubstr("Connection: close\r\n"));
}

TEST_F(HttpServerTest, PipelinedRequestsAreAnsweredInOrder) {
  Serve();
  RawHttpClient client(server_->address());
  client.Send(
      "GET /wait?1 HTTP/1.1\r\nHost: x\r\n\r\nGET /wait?2 HTTP/1.1\r\nHost: x\r\n\r\n"
      "\r\nGET /check HTTP/1.1\r\nHost: x\r\n\r\n");
  const auto first = NextExchange();
  EXPECT_EQ(first->head().query, "1");
  EXPECT_EQ(server_->exchanges(), 1);  // The second request waits.
  first->Respond({.body = "one"});
  EXPECT_EQ(client.HearAnswer().body, "one");
  NextExchange()->Respond({.body = "two"});
  EXPECT_EQ(client.HearAnswer().body, "two");
  EXPECT_EQ(client.HearAnswer().body, "checked");
}

TEST_F(HttpServerTest, TwoThousandPipelinedRequests) {
  Serve();
  RawHttpClient client(server_->address());
  std::thread sender([&] {
    for (int i = 0; i < 2000; ++i) {
      const bool posts = i % 3 == 0;
      EXPECT_TRUE(client.Send(posts ? absl::StrCat("POST /echo?", i, " HTTP/1.1\r\nHost: x\r\n",
                                                   "Content-Length: 3\r\n\r\nabc")
                                    : std::string(kGetCheck)));
    }
  });
  for (int i = 0; i < 2000; ++i) {
    const std::string body = client.HearAnswer().body;
    ASSERT_EQ(body, i % 3 == 0 ? absl::StrCat("POST /echo?", i, " abc") : "checked");
  }
  sender.join();
}

TEST_F(HttpServerTest, StreamsAreWrittenPieceByPiece) {
  Serve();
  RawHttpClient client(server_->address());
  client.Send(absl::StrCat(kGetWait, kGetCheck));
  const auto exchange = NextExchange();
  const auto stream = std::make_shared<TestHttpStream>();
  const auto memory = std::make_shared<int>();
  exchange->RespondWith({.fields = {{"Content-Type", "text/event-stream"}}, .memory = memory},
                        stream);
  exchange->Wake();  // There is nothing yet, so no head is sent.
  stream->Give("data: 1\n\n");
  exchange->Wake();
  const std::string head = client.HearUntil("\r\n\r\n");
  EXPECT_THAT(head, HasSubstr("Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"));
  EXPECT_THAT(head, Not(HasSubstr("Connection")));
  EXPECT_EQ(client.HearUntil("\n\n\r\n"), "9\r\ndata: 1\n\n\r\n");
  stream->WaitUntilDrained(9);
  EXPECT_EQ(memory.use_count(), 2);
  stream->Give(std::string(40000, 'x'));
  stream->Give("data: 2\n\n", true);
  exchange->Wake();
  std::string body;
  for (std::string size; (size = client.HearUntil("\r\n")) != "0\r\n";) {
    body += client.Hear(std::stoul(size, nullptr, 16));
    EXPECT_EQ(client.Hear(2), "\r\n");
  }
  EXPECT_EQ(client.Hear(2), "\r\n");
  EXPECT_EQ(body, absl::StrCat(std::string(40000, 'x'), "data: 2\n\n"));
  EXPECT_EQ(stream->largest(), 16u << 10);
  EXPECT_EQ(client.HearAnswer().body, "checked");
  EXPECT_EQ(memory.use_count(), 1);
  EXPECT_EQ(stream.use_count(), 1);
  exchange->Wake();
  exchange->Cut();  // Too late: the answer is complete.
  client.Send(kGetCheck);
  EXPECT_EQ(client.HearAnswer().status, 200);
}

TEST_F(HttpServerTest, ManyStreamsFromManyThreads) {
  Serve();
  constexpr int kStreams = 40, kPieces = 50;
  std::vector<std::unique_ptr<RawHttpClient>> clients;
  std::vector<std::thread> threads;
  for (int i = 0; i < kStreams; ++i) {
    clients.push_back(std::make_unique<RawHttpClient>(server_->address()));
    clients.back()->Send(kGetWait);
    threads.emplace_back([exchange = NextExchange(), i] {
      const auto stream = std::make_shared<TestHttpStream>();
      exchange->RespondWith({}, stream);
      for (int piece = 0; piece < kPieces; ++piece) {
        stream->Give(absl::StrCat(i, ".", piece, ";"), piece == kPieces - 1);
        exchange->Wake();
      }
    });
  }
  for (int i = 0; i < kStreams; ++i) {
    const std::string body = clients[static_cast<size_t>(i)]->HearAnswer().body;
    std::string expected;
    for (int piece = 0; piece < kPieces; ++piece) absl::StrAppend(&expected, i, ".", piece, ";");
    EXPECT_EQ(body, expected);
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(HttpServerTest, MemoryOfAnAnswerIsDroppedWhenItIsWritten) {
  Serve();
  RawHttpClient client(server_->address());
  client.Send(kGetWait);
  const auto exchange = NextExchange();
  HttpTestEvent dropped;
  exchange->Respond({.body = std::string(1000, 'x'),
                     .memory = std::shared_ptr<void>(nullptr, [&](void*) { dropped.Happen(); })});
  EXPECT_EQ(client.HearAnswer().body.size(), 1000u);
  dropped.Wait();
  // A late answer keeps nothing.
  exchange->Respond({.memory = std::shared_ptr<void>(nullptr, [&](void*) { dropped.Happen(); })});
  dropped.Wait(2);
}

TEST_F(HttpServerTest, CallbacksForALeavingClientAreDroppedWithTheAnswer) {
  Serve();
  RawHttpClient client(server_->address());
  client.Send(kGetWait);
  const auto exchange = NextExchange();
  const auto held = std::make_shared<int>();
  HttpTestEvent gone;
  exchange->WhenGone([held, &gone] { gone.Happen(); });
  EXPECT_EQ(held.use_count(), 2);
  exchange->Respond({});
  EXPECT_EQ(client.HearAnswer().status, 200);
  WaitUntil([&] { return held.use_count() == 1; });
  exchange->WhenGone([held, &gone] { gone.Happen(); });
  EXPECT_EQ(held.use_count(), 1);
  client.Close();
  WaitUntil([&] { return server_->connections() == 0; });
  EXPECT_EQ(gone.times(), 0);
}

TEST_F(HttpServerTest, OldConnectionsAreToldToEnd) {
  Serve({.max_age = absl::ZeroDuration()});
  RawHttpClient client(server_->address());
  client.Send(kGetCheck);
  EXPECT_THAT(client.HearAll(), HasSubstr("Connection: close\r\n\r\nchecked"));
}

TEST_F(HttpServerTest, ShutdownWaitsForAnswersAndClosesIdleConnections) {
  Serve();
  RawHttpClient idle(server_->address()), silent(server_->address()), busy(server_->address()),
      coming(server_->address());
  idle.Send(kGetCheck);
  EXPECT_EQ(idle.HearAnswer().status, 200);
  coming.Send(
      "POST /wait HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_THAT(coming.HearUntil("\r\n\r\n"), StartsWith("HTTP/1.1 100"));
  busy.Send(kGetWait);
  const auto exchange = NextExchange();
  std::thread shutdown([&] { server_->Shutdown(kHttpHang); });
  EXPECT_EQ(idle.HearAll(), "");
  EXPECT_EQ(silent.HearAll(), "");
  coming.Send("ab");
  NextExchange()->Respond({.body = "late"});
  EXPECT_THAT(coming.HearAll(), HasSubstr("Connection: close\r\n\r\nlate"));
  EXPECT_EQ(server_->exchanges(), 1);
  exchange->Respond({.body = "done"});
  EXPECT_THAT(busy.HearAll(), HasSubstr("Connection: close\r\n\r\ndone"));
  shutdown.join();
  EXPECT_EQ(server_->connections(), 0);
  EXPECT_EQ(counts_.counters().open, 0);
}

TEST_F(HttpServerTest, ShutdownCutsWhatOutlivesTheGrace) {
  Serve();
  RawHttpClient client(server_->address());
  client.Send(kGetWait);
  const auto exchange = NextExchange();
  HttpTestEvent gone;
  exchange->WhenGone([&] { gone.Happen(); });
  server_->Shutdown(absl::Milliseconds(1));
  EXPECT_EQ(gone.times(), 1);
  EXPECT_EQ(client.HearAll(), "");
  server_.reset();
  // An exchange may outlive the server.
  exchange->Respond({.body = "late"});
  exchange->Wake();
  exchange->WhenGone([&] { gone.Happen(); });
  exchange->Cut();
}

TEST_F(HttpServerTest, RefusesAddressesThatCantBeHad) {
  Serve();
  const auto listen = [&](const std::string& address) {
    return HttpServer::Listen({.listen = address,
                               .counts = &counts_,
                               .check = [](const HttpHead&) { return std::nullopt; },
                               .handle = [](std::shared_ptr<HttpExchange>) {},
                               .error = [](int, absl::string_view) { return HttpResponse(); }})
        .status();
  };
  EXPECT_EQ(listen("nonsense").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(listen(server_->address()).code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(listen(server_->address()).message()),
              HasSubstr("is taken by another program"));
}

}  // namespace
}  // namespace baton
