#include <cerrno>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <fcntl.h>
#include <malloc.h>
#include <sys/resource.h>

#include "router/http/http_server_fixture.h"

// Clients that break the rules, stall, or leave in the middle.
namespace baton {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr char kPost[] = "POST /wait HTTP/1.1\r\nHost: x\r\n";
constexpr size_t kMuch = 16 << 20;  // More than the buffers of two sockets hold.

class HttpRudeClientsTest : public HttpServerTest {
 protected:
  // Makes an answer that no client takes at once, and tells when it is dropped.
  HttpResponse LongAnswer(HttpTestEvent* dropped) {
    return {.body = std::string(kMuch, 'x'),
            .memory = std::shared_ptr<void>(nullptr, [dropped](void*) { dropped->Happen(); })};
  }
  void ExpectServes() {
    RawHttpClient client(server_->address());
    client.Send(kGetCheck);
    EXPECT_EQ(client.HearAnswer().body, "checked");
  }
};

TEST_F(HttpRudeClientsTest, MalformedRequestsAreRefusedWithAReason) {
  Serve({.max_head_bytes = 1000, .max_body_bytes = 100});
  const std::string many(1000, 'a');
  std::string fields;
  for (int i = 0; i < 200; ++i) absl::StrAppend(&fields, "a:\r\n");
  const std::vector<std::tuple<std::string, int, std::string>> cases = {
      {"\x16\x03\x01\x02", 400, "TLS"},
      {"\x80\x81", 400, "it begins with '\\x80'"},
      {" GET / HTTP/1.1\r\n", 400, "it begins with ' '"},
      {"hello\r\n\r\n", 400, "the first line is 'hello'"},
      {"GET /\r\n\r\n", 400, "the first line is 'GET /'"},
      {"GET / HTTP/1.1\n", 400, "'GET / HTTP/1.1' does not end with CR and LF"},
      {"GET / HTTP/1.1\r\nHost: x\n\n", 400, "does not end with CR and LF"},
      {"GET / HTTP/1.1\r\nHost: x\r\n\n", 400, "does not end with CR and LF"},
      {"GET / HTTP/1.1\r\nHost: x\rA: b\r\n\r\n", 400, "has a CR in it"},
      {"G(T / HTTP/1.1\r\nHost: x\r\n\r\n", 400, "the method is 'G(T'"},
      {"GET / a HTTP/1.1\r\nHost: x\r\n\r\n", 400, "percent-encoded"},
      {"GET /\x01 HTTP/1.1\r\nHost: x\r\n\r\n", 400, "percent-encoded"},
      {"GET v1 HTTP/1.1\r\nHost: x\r\n\r\n", 400, "the target is 'v1'"},
      {"CONNECT a:1 HTTP/1.1\r\nHost: x\r\n\r\n", 400, "the target is 'a:1'"},
      {"GET http://a/b HTTP/1.1\r\nHost: x\r\n\r\n", 400, "names the host 'a'"},
      {"GET / http/1.1\r\nHost: x\r\n\r\n", 400, "the version is 'http/1.1'"},
      {"GET / HTTP/1.12\r\nHost: x\r\n\r\n", 400, "the version is 'HTTP/1.12'"},
      {"GET / HTTP/2.0\r\nHost: x\r\n\r\n", 505, "the version of HTTP is 2.0"},
      {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "the version of HTTP is 2.0"},
      {"GET / HTTP/0.9\r\nHost: x\r\n\r\n", 505, "the version of HTTP is 0.9"},
      {"GET / HTTP/1.1\r\n\r\n", 400, "no field Host"},
      {"GET / HTTP/1.1\r\nHost: x\r\nhost: x\r\n\r\n", 400, "two fields Host"},
      {"GET / HTTP/1.1\r\nHost: x\r\n more\r\n\r\n", 400, "begins with a blank"},
      {"GET / HTTP/1.1\r\n Host: x\r\n\r\n", 400, "begins with a blank"},
      {"GET / HTTP/1.1\r\nHost : x\r\n\r\n", 400, "the name of a field is 'Host '"},
      {"GET / HTTP/1.1\r\nHost: x\r\n: y\r\n\r\n", 400, "the name of a field is ''"},
      {"GET / HTTP/1.1\r\nHost: x\r\nfield\r\n\r\n", 400, "'field' has no colon"},
      {"GET / HTTP/1.1\r\nHost: x\r\nA: b\x02\r\n\r\n", 400, "a control character"},
      {std::string("GET / HTTP/1.1\r\nHost: x\r\nA: \0\r\n\r\n", 34), 400, "a control character"},
      {"GET / HTTP/1.1\r\nHost: x\r\nConnection: a b\r\n\r\n", 400, "malformed request"},
      {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", 400,
       "two fields Content-Length"},
      {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1, 1\r\n\r\n", 400, "is '1, 1'"},
      {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +1\r\n\r\n", 400, "is '+1'"},
      {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400, "is '-1'"},
      {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0x1\r\n\r\n", 400, "is '0x1'"},
      {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length:\r\n\r\n", 400, "Content-Length is empty"},
      {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 101\r\n\r\n", 413,
       "the body has 101 bytes; the limit is 100"},
      {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n", 413,
       "'99999999999999999999' bytes"},
      {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400,
       "both Content-Length and Transfer-Encoding"},
      {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: a\r\n\r\n",
       400, "two fields Transfer-Encoding"},
      {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "HTTP/1.0 has no"},
      {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501,
       "Transfer-Encoding is 'gzip, chunked'"},
      {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, gzip\r\n\r\n", 501, "gzip"},
      {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: \x0b"
       "chunked\r\n\r\n",
       400, "a control character"},
      {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n", 400,
       "chunked body"},
      {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", 400,
       "the size of a chunk is 'x'"},
      {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n", 400,
       "CR and LF must follow a chunk, and not 'c\\r'"},
      {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n", 400, "chunked"},
      {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n", 400,
       "chunked"},
      {absl::StrCat("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n32\r\n",
                    std::string(50, 'a'), "\r\n33\r\n"),
       413, "at least 101 bytes; the limit is 100"},
      {absl::StrCat("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1;",
                    std::string(40000, 'a')),
       400, "a line has more than 4096 bytes"},
      {absl::StrCat("GET /", many), 431, "more than 1000 bytes"},
      {absl::StrCat("GET / HTTP/1.1\r\nHost: x\r\nA: ", many, "\r\n\r\n"), 431, "1000"},
      {absl::StrCat("GET / HTTP/1.1\r\nHost: x\r\n", fields, fields, "\r\n"), 431, "1000"},
  };
  for (const auto& [request, status, reason] : cases) {
    const std::string answer = Ask(request);
    EXPECT_THAT(answer, StartsWith(absl::StrCat("HTTP/1.1 ", status, " "))) << request;
    EXPECT_THAT(answer, HasSubstr(reason)) << request;
    EXPECT_THAT(answer, HasSubstr("Content-Type: text/x-error\r\n"));
    EXPECT_THAT(answer, HasSubstr("Connection: close\r\n"));
  }
  EXPECT_EQ(server_->exchanges(), 0);
  ExpectServes();
}

TEST_F(HttpRudeClientsTest, TooManyFieldsAreRefused) {
  Serve();
  std::string fields;
  for (int i = 0; i < 256; ++i) absl::StrAppend(&fields, "a:\r\n");
  EXPECT_THAT(Ask(absl::StrCat("GET / HTTP/1.1\r\nHost: x\r\n", fields, "\r\n")),
              StartsWith("HTTP/1.1 431 "));
}

TEST_F(HttpRudeClientsTest, NothingAfterAMalformedRequestIsHandled) {
  Serve();
  const std::string answer =
      Ask(absl::StrCat("GET /check HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\n\r\n", kGetWait));
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("checkedHTTP/1.1 400 Bad Request\r\n"));
  EXPECT_EQ(server_->exchanges(), 0);
}

TEST_F(HttpRudeClientsTest, RequestsThatComeByteByByte) {
  Serve();
  RawHttpClient client(server_->address());
  const std::string request =
      absl::StrCat("POST /echo?a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc\r\n",
                   "POST /echo?b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
                   "1\r\nx\r\n2;a=b\r\nyz\r\n0\r\nA: b\r\n\r\n", kGetCheck);
  for (const char byte : request) {
    ASSERT_TRUE(client.Send(absl::string_view(&byte, 1)));
  }
  EXPECT_EQ(client.HearAnswer().body, "POST /echo?a abc");
  EXPECT_EQ(client.HearAnswer().body, "POST /echo?b xyz");
  EXPECT_EQ(client.HearAnswer().body, "checked");
}

TEST_F(HttpRudeClientsTest, SlowRequestsGet408) {
  Serve({.request_time = absl::Milliseconds(50), .linger_time = absl::Milliseconds(50)});
  RawHttpClient waits(server_->address());
  waits.Send(kGetWait);
  const auto exchange = NextExchange();
  EXPECT_THAT(Ask("GET / HTTP/1.1\r\nHost:"), StartsWith("HTTP/1.1 408 Request Timeout\r\n"));
  EXPECT_THAT(Ask(absl::StrCat(kPost, "Content-Length: 3\r\n\r\nab")),
              HasSubstr("did not come as a whole within 50ms"));
  EXPECT_THAT(Ask(absl::StrCat(kPost, "Transfer-Encoding: chunked\r\n\r\n3\r\nab")),
              HasSubstr("408"));
  EXPECT_THAT(Ask("POST /no HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nab"), HasSubstr("408"));
  // Each byte comes soon after the one before, but the request never ends.
  RawHttpClient loris(server_->address());
  loris.Send("GET / HTTP/1.1\r\nX: ");
  while (loris.Send("x")) poll(nullptr, 0, 1);
  EXPECT_THAT(loris.HearAll(), testing::AnyOf("", HasSubstr("408")));
  // The answer to a request that came in time may take longer.
  exchange->Respond({.body = "late"});
  EXPECT_EQ(waits.HearAnswer().body, "late");
}

TEST_F(HttpRudeClientsTest, SilentConnectionsAreClosedWithoutAWord) {
  Serve({.idle_time = absl::Milliseconds(50)});
  EXPECT_EQ(Ask(""), "");
  // On a busy machine, a connection may be closed before its first request is sent.
  std::string heard;
  while (heard.empty()) heard = Ask(kGetCheck);
  EXPECT_THAT(heard, testing::EndsWith("\r\n\r\nchecked"));
}

TEST_F(HttpRudeClientsTest, AClientGetsTheRefusalThoughItStillSends) {
  Serve({.max_body_bytes = 1000, .linger_time = kHttpHang});
  RawHttpClient client(server_->address());
  std::thread sender([&] {
    client.Send(absl::StrCat(kPost, "Content-Length: 9000000\r\n\r\n"));
    EXPECT_TRUE(client.Send(std::string(9000000, 'x')));
  });
  const RawHttpClient::Answer answer = client.HearAnswer();
  EXPECT_EQ(answer.status, 413);
  EXPECT_EQ(answer.body, "the body has 9000000 bytes; the limit is 1000");
  sender.join();
  EXPECT_EQ(client.HearAll(), "");
  EXPECT_FALSE(client.was_reset());
}

TEST_F(HttpRudeClientsTest, WhatIsStillReadAfterARefusalIsBounded) {
  Serve({.max_body_bytes = 1000, .linger_time = absl::InfiniteDuration(), .linger_bytes = 1 << 20});
  RawHttpClient client(server_->address());
  client.Send(absl::StrCat(kPost, "Content-Length: 9000000\r\n\r\n"));
  const std::string more(1 << 20, 'x');
  while (client.Send(more)) {
  }
  WaitUntil([&] { return server_->connections() == 0; });
}

TEST_F(HttpRudeClientsTest, AClientThatStaysAfterTheLastAnswerIsClosed) {
  Serve({.linger_time = absl::Milliseconds(20)});
  RawHttpClient client(server_->address());
  client.Send("GET /check HTTP/1.0\r\n\r\n");
  EXPECT_THAT(client.HearAll(), HasSubstr("checked"));
  WaitUntil([&] { return server_->connections() == 0; });
}

TEST_F(HttpRudeClientsTest, BodiesThatAreTooShortReachNoHandler) {
  Serve();
  for (const bool reset : {false, true}) {
    for (const char* request :
         {"", "G", "GET /wait HTTP/1.1\r\nHost: x\r\n",
          "POST /wait HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nab",
          "POST /wait HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"}) {
      RawHttpClient client(server_->address());
      client.Send(request);
      WaitUntil([&] { return server_->connections() == 1; });
      if (reset) {
        client.Reset();
      } else {
        client.ShutDownSending();
        EXPECT_EQ(client.HearAll(), "");
      }
      WaitUntil([&] { return server_->connections() == 0; });
    }
  }
  MutexLock lock(&mutex_);
  EXPECT_TRUE(exchanges_.empty());
}

// All ways in which a client leaves, in each phase of an answer.
TEST_F(HttpRudeClientsTest, LeavingIsSeenInEveryPhase) {
  Serve();
  const std::vector<void (*)(RawHttpClient*)> ways = {
      [](RawHttpClient* client) { client->Reset(); },
      [](RawHttpClient* client) { client->Close(); },
      [](RawHttpClient* client) { client->ShutDownSending(); },
      // The end comes behind requests that wait, for which there is room or not.
      [](RawHttpClient* client) {
        client->Send(absl::StrCat(kGetCheck, kGetCheck));
        client->ShutDownSending();
      },
      [](RawHttpClient* client) {
        for (int i = 0; i < 1000; ++i) client->Send(kGetCheck);
        client->ShutDownSending();
      },
      [](RawHttpClient* client) {
        for (int i = 0; i < 1000; ++i) client->Send(kGetCheck);
        client->Reset();
      }};
  for (size_t way = 0; way < ways.size(); ++way) {
    for (const char* phase : {"queued", "late", "whole", "stream", "full stream"}) {
      SCOPED_TRACE(absl::StrCat(way, " ", phase));
      RawHttpClient client(server_->address());
      client.Send(kGetWait);
      auto exchange = NextExchange();
      HttpTestEvent gone, dropped;
      const std::string name = phase;
      if (name != "late") exchange->WhenGone([&] { gone.Happen(); });
      const auto stream = std::make_shared<TestHttpStream>();
      if (name == "whole") {
        exchange->Respond(LongAnswer(&dropped));
        EXPECT_NE(client.Hear(1), "");
      } else if (name == "stream") {
        stream->Give("ab");
        exchange->RespondWith({}, stream);
        EXPECT_THAT(client.HearUntil("ab"), HasSubstr("200 OK"));
      } else if (name == "full stream") {
        stream->Give(std::string(kMuch, 'x'));
        exchange->RespondWith({}, stream);
        EXPECT_NE(client.Hear(1), "");
      }
      ways[way](&client);
      if (name == "late") {
        WaitUntil([&] { return server_->exchanges() == 0; });
        exchange->WhenGone([&] { gone.Happen(); });
      }
      gone.Wait();
      if (name == "whole") dropped.Wait();
      EXPECT_EQ(gone.times(), 1);
      EXPECT_EQ(server_->exchanges(), 0);
      exchange->Respond({});  // Nothing happens.
      exchange->Wake();
      exchange->Cut();
      WaitUntil([&] { return server_->connections() == 0 && stream.use_count() == 1; });
    }
  }
  ExpectServes();
}

TEST_F(HttpRudeClientsTest, AReaderThatTakesNothingOfAWholeAnswerIsCut) {
  Serve({.take_time = absl::Milliseconds(50)});
  RawHttpClient client(server_->address(), 4096);
  client.Send(kGetWait);
  const auto exchange = NextExchange();
  HttpTestEvent gone, dropped;
  exchange->WhenGone([&] { gone.Happen(); });
  exchange->Respond(LongAnswer(&dropped));
  gone.Wait();
  dropped.Wait();
  ExpectServes();
}

TEST_F(HttpRudeClientsTest, AStreamWhoseClientTakesNothingWaitsUntilItIsCut) {
  Serve({.take_time = absl::Milliseconds(1)});
  RawHttpClient client(server_->address(), 4096);
  client.Send(kGetWait);
  const auto exchange = NextExchange();
  const auto stream = std::make_shared<TestHttpStream>();
  HttpTestEvent gone;
  exchange->WhenGone([&] { gone.Happen(); });
  stream->Give(std::string(kMuch, 'x'));
  exchange->RespondWith({}, stream);
  size_t filled = 0;
  WaitUntil([&] { return filled == std::exchange(filled, stream->filled()) && filled > 0; });
  ExpectServes();
  EXPECT_LT(stream->filled(), kMuch);
  EXPECT_EQ(gone.times(), 0);
  exchange->Cut();
  gone.Wait();
  client.HearAll();
  EXPECT_TRUE(client.was_reset());
}

TEST_F(HttpRudeClientsTest, ASlowReaderGetsTheWholeAnswer) {
  Serve();
  RawHttpClient client(server_->address(), 4096);
  client.Send(absl::StrCat(kGetWait, kGetCheck));
  NextExchange()->Respond({.body = std::string(8 << 20, 'x')});
  EXPECT_EQ(client.HearAnswer().body, std::string(8 << 20, 'x'));
  EXPECT_EQ(client.HearAnswer().body, "checked");
}

TEST_F(HttpRudeClientsTest, TheLongestBodyIsRefusedIfAllTogetherAreTooLong) {
  Serve({.max_body_bytes = 1000, .max_coming_bytes = 1500});
  RawHttpClient longer(server_->address()), shorter(server_->address());
  longer.Send(absl::StrCat(kPost, "Expect: 100-continue\r\nContent-Length: 1000\r\n\r\n"));
  EXPECT_THAT(longer.HearUntil("\r\n\r\n"), StartsWith("HTTP/1.1 100"));
  longer.Send(std::string(900, 'x'));
  shorter.Send(absl::StrCat(kPost, "Content-Length: 800\r\n\r\n", std::string(799, 'x')));
  EXPECT_THAT(longer.HearAll(), HasSubstr("more than 1500 bytes together"));
  shorter.Send("x");
  NextExchange()->Respond({.body = "fine"});
  EXPECT_EQ(shorter.HearAnswer().body, "fine");
}

TEST_F(HttpRudeClientsTest, RandomGarbageHarmsNobodyElse) {
  const uint32_t seed = 20261129;
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  Serve({.request_time = absl::Milliseconds(20), .linger_time = absl::Milliseconds(20)});
  const auto below = [&](size_t n) {
    return std::uniform_int_distribution<size_t>(0, n - 1)(random);
  };
  for (int round = 0; round < 200; ++round) {
    std::string bytes = absl::StrCat(
        kGetCheck, "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
        "5\r\nhello\r\n0\r\n\r\n", "HEAD /check HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
        "POST /no HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello", kGetCheck);
    for (size_t i = below(6); i > 0; --i)
      bytes[below(bytes.size())] = static_cast<char>(below(256));
    for (size_t i = below(3); i > 0; --i) bytes.erase(below(bytes.size()), below(30));
    RawHttpClient client(server_->address());
    for (size_t at = 0; at < bytes.size();) {
      const size_t size = 1 + below(bytes.size());
      client.Send(absl::string_view(bytes).substr(at, size));
      at += size;
    }
    switch (below(3)) {
      case 0:
        client.Reset();
        break;
      case 1:
        client.ShutDownSending();
        client.HearAll();
        break;
      default:
        break;  // It just goes.
    }
  }
  ExpectServes();
  WaitUntil([&] { return server_->connections() == 0 && counts_.counters().open == 0; });
  EXPECT_EQ(server_->exchanges(), 0);
}

TEST_F(HttpRudeClientsTest, TooManyConnectionsGet503) {
  Serve();
  ConnectionCounts two(2, 0);
  server_.reset();
  auto server =
      HttpServer::Listen({.listen = "127.0.0.1:0",
                          .counts = &two,
                          .check = [](const HttpHead&) { return HttpResponse{.body = "checked"}; },
                          .handle = [](std::shared_ptr<HttpExchange>) {},
                          .error =
                              [](int status, absl::string_view why) {
                                return HttpResponse{status, {}, std::string(why)};
                              }});
  ASSERT_TRUE(server.ok());
  (*server)->Serve();
  EXPECT_EQ(two.Enter("ipv4:10.0.0.1"), ConnectionCounts::Verdict::kTaken);  // Another server's.
  RawHttpClient taken((*server)->address());
  taken.Send(kGetCheck);
  EXPECT_EQ(taken.HearAnswer().status, 200);
  RawHttpClient refused((*server)->address());
  EXPECT_THAT(refused.HearAll(), testing::AllOf(StartsWith("HTTP/1.1 503 "),
                                                HasSubstr("too many connections are open")));
  EXPECT_EQ(two.counters().too_many, 1u);
  taken.Close();
  WaitUntil([&] { return two.counters().open == 1; });
  RawHttpClient next((*server)->address());
  next.Send(kGetCheck);
  EXPECT_EQ(next.HearAnswer().status, 200);
}

TEST_F(HttpRudeClientsTest, ConnectionsAreAcceptedAgainAfterDescriptorsRanOut) {
  Serve();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int held = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  rlimit few = before;
  few.rlim_cur = 256;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<int> taken;
  for (int fd = dup(0); fd >= 0; fd = dup(0)) taken.push_back(fd);
  EXPECT_EQ(errno, EMFILE);
  close(held);  // For the client's own socket.
  {
    RawHttpClient refused(server_->address());
    EXPECT_EQ(refused.HearAll(), "");
  }
  EXPECT_GE(counts_.counters().no_descriptor, 1u);
  for (const int fd : taken) close(fd);
  setrlimit(RLIMIT_NOFILE, &before);
  ExpectServes();
}

TEST_F(HttpRudeClientsTest, AThousandConnectionsTakeLittleMemory) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers count memory in their own way";
#else
  constexpr int kConnections = 1000;
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  if (before.rlim_max < 2 * kConnections + 200) GTEST_SKIP() << "too few descriptors";
  rlimit enough = before;
  enough.rlim_cur = enough.rlim_max;
  setrlimit(RLIMIT_NOFILE, &enough);
  Serve();
  const auto used = [] {
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
  };
  std::vector<std::unique_ptr<RawHttpClient>> clients;
  const size_t at_first = used();
  for (int i = 0; i < kConnections; ++i) {
    clients.push_back(std::make_unique<RawHttpClient>(server_->address(), 4096));
    clients.back()->Send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n0123456789");
    EXPECT_EQ(clients.back()->HearAnswer().status, 200);
  }
  EXPECT_LT(used() - at_first, kConnections * (4u << 10));
  RecordProperty("bytes_of_an_idle_connection",
                 static_cast<int>((used() - at_first) / kConnections));
  // Now all read nothing of a stream, and have sent requests that wait.
  std::vector<std::shared_ptr<TestHttpStream>> streams;
  const size_t before_streams = used();
  for (const auto& client : clients) {
    std::string requests = kGetWait;
    for (int i = 0; i < 2000; ++i) absl::StrAppend(&requests, kGetCheck);
    client->SendSome(requests);
    class Endless : public TestHttpStream {
      bool Fill(size_t bytes, std::string* out) override {
        out->append(bytes, 'x');
        return true;
      }
    };
    const auto exchange = NextExchange();
    exchange->RespondWith({}, std::make_shared<Endless>());
  }
  size_t seen = 0;
  WaitUntil([&] { return seen == std::exchange(seen, used()); });
  EXPECT_LT(used() - before_streams, kConnections * (64u << 10));
  RecordProperty("bytes_of_a_slow_reader",
                 static_cast<int>((used() - before_streams) / kConnections));
  ExpectServes();
  clients.clear();
  WaitUntil([&] { return server_->connections() == 0; });
  setrlimit(RLIMIT_NOFILE, &before);
#endif
}

}  // namespace
}  // namespace baton
