#include "common/rpc/attach_client.h"

#include <atomic>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "baton/v1/membership.grpc.pb.h"
#include "common/base/mutex.h"
#include "common/base/steady_time.h"
#include "common/rpc/dial.h"
#include "common/rpc/rpc_server.h"
#include "common/rpc/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// A fake router's side of Attach. It counts the workers' reports and answers each registration with
// one peer. Every second refusal ends with CANCELLED, as gRPC sometimes reports it.
class FakeMembership : public v1::Membership::Service {
 public:
  explicit FakeMembership(uint64_t peer, std::string token = "")
      : peer_(peer), token_(std::move(token)) {}

  grpc::Status Attach(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::RouterCommand, v1::WorkerReport>* stream) override {
    if (absl::Status status = CheckToken(*context, token_); !status.ok()) {
      return Count(&refused_) % 2 == 0 ? grpc::Status::CANCELLED : ToGrpcStatus(status);
    }
    v1::WorkerReport report;
    while (stream->Read(&report)) {
      if (report.has_registration()) {
        v1::RouterCommand command;
        command.mutable_peers()->add_peers()->set_epoch(peer_);
        stream->Write(command);
        MutexLock lock(&mutex_);
        epochs_.push_back(report.registration().epoch());
        changed_.SignalAll();
      } else if (report.has_cache()) {
        MutexLock lock(&mutex_);
        cache_changes_.push_back(report.cache().last());
        changed_.SignalAll();
      } else {
        Count(&loads_);
      }
    }
    return grpc::Status::OK;
  }

  void AwaitLoads(int n) { Await(&loads_, n); }
  void AwaitRefused(int n) { Await(&refused_, n); }
  // Waits until as many messages on the prefix cache have come, and returns the number of the last
  // change of each.
  std::vector<uint64_t> AwaitCacheChanges(size_t n) {
    MutexLock lock(&mutex_);
    while (cache_changes_.size() < n) changed_.Wait(&mutex_);
    return cache_changes_;
  }
  std::vector<uint64_t> epochs() {
    MutexLock lock(&mutex_);
    return epochs_;
  }

 private:
  int Count(int* counter) {
    MutexLock lock(&mutex_);
    changed_.SignalAll();
    return ++*counter;
  }
  void Await(const int* counter, int n) {
    MutexLock lock(&mutex_);
    while (*counter < n) changed_.Wait(&mutex_);
  }

  const uint64_t peer_;
  const std::string token_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<uint64_t> epochs_, cache_changes_;
  int loads_ = 0, refused_ = 0;
};

// Stores the peers that the client reported last, and lets a test wait for given peers.
class HeardPeers {
 public:
  void Set(const v1::Peers& peers) {
    MutexLock lock(&mutex_);
    epochs_.clear();
    for (const v1::Peer& peer : peers.peers()) epochs_.push_back(peer.epoch());
    changed_.SignalAll();
  }
  void Await(const std::vector<uint64_t>& epochs) {
    MutexLock lock(&mutex_);
    while (epochs_ != epochs) changed_.Wait(&mutex_);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<uint64_t> epochs_;
};

AttachClient::Options OptionsFor(const std::vector<std::string>& routers) {
  AttachClient::Options options;
  options.routers = routers;
  options.registration.set_epoch(7);
  options.report_interval = absl::Milliseconds(1);
  return options;
}

TEST(AttachClientTest, RegistersReportsAndHearsThePeersOfEveryRouter) {
  FakeMembership first(11), second(12);
  const auto server1 = *RpcServer::Start({.listen = "127.0.0.1:0", .services = {&first}});
  const auto server2 = *RpcServer::Start({.listen = "127.0.0.1:0", .services = {&second}});
  HeardPeers heard;
  AttachClient client(
      OptionsFor({server1->address(), server2->address()}), [] { return v1::LoadReport(); },
      [&](const v1::Peers& peers) { heard.Set(peers); });
  first.AwaitLoads(3);
  second.AwaitLoads(3);
  EXPECT_THAT(first.epochs(), testing::ElementsAre(7u));
  heard.Await({11, 12});
}

TEST(AttachClientTest, ComesBackToARouterThatRestarted) {
  auto before = std::make_unique<FakeMembership>(11);
  auto server = *RpcServer::Start({.listen = "127.0.0.1:0", .services = {before.get()}});
  const std::string address = server->address();
  HeardPeers heard;
  AttachClient client(
      OptionsFor({address}), [] { return v1::LoadReport(); },
      [&](const v1::Peers& peers) { heard.Set(peers); });
  before->AwaitLoads(1);
  server = nullptr;
  FakeMembership after(13);
  const auto restarted = RpcServer::Start({.listen = address, .services = {&after}});
  ASSERT_TRUE(restarted.ok()) << restarted.status();
  after.AwaitLoads(1);
  heard.Await({13});
  EXPECT_THAT(after.epochs(), testing::ElementsAre(7u));
}

TEST(AttachClientTest, EveryRouterIsToldTheCacheFromTheBeginningAndThenItsChanges) {
  FakeMembership first(11), second(12);
  const auto server1 = *RpcServer::Start({.listen = "127.0.0.1:0", .services = {&first}});
  auto server2 = *RpcServer::Start({.listen = "127.0.0.1:0", .services = {&second}});
  AttachClient::Options options = OptionsFor({server1->address(), server2->address()});
  options.cache_interval = absl::ZeroDuration();
  std::atomic<uint64_t> last = 3;
  options.new_cache_reader = [&last]() -> AttachClient::CacheReader {
    return [&last, told = uint64_t{0}]() mutable -> std::optional<AttachClient::CacheMessage> {
      if (told == last) return std::nullopt;
      AttachClient::CacheMessage message;
      message.changes.set_after(told);
      message.changes.set_last(++told);
      message.more = told < last;
      return message;
    };
  };
  AttachClient client(
      options, [] { return v1::LoadReport(); }, [](const v1::Peers&) {});
  EXPECT_THAT(first.AwaitCacheChanges(3), testing::ElementsAre(1, 2, 3));
  EXPECT_THAT(second.AwaitCacheChanges(3), testing::ElementsAre(1, 2, 3));
  last = 4;
  client.CacheChanged();
  EXPECT_THAT(first.AwaitCacheChanges(4), testing::ElementsAre(1, 2, 3, 4));
  second.AwaitCacheChanges(4);
  // A router that comes back knows nothing.
  const std::string address = server2->address();
  server2->Shutdown(absl::ZeroDuration());
  server2 = nullptr;
  FakeMembership third(13);
  const auto server3 = *RpcServer::Start({.listen = address, .services = {&third}});
  EXPECT_THAT(third.AwaitCacheChanges(4), testing::ElementsAre(1, 2, 3, 4));
}

TEST(AttachClientTest, AWrongTokenIsRefusedAndTriedAgain) {
  FakeMembership membership(11, "right");
  const auto server = *RpcServer::Start({.listen = "127.0.0.1:0", .services = {&membership}});
  AttachClient::Options options = OptionsFor({server->address()});
  options.token = "wrong";
  AttachClient client(
      options, [] { return v1::LoadReport(); }, [](const v1::Peers&) {});
  membership.AwaitRefused(2);
  EXPECT_TRUE(membership.epochs().empty());
}

// Captures the lines that are written to standard error while this object lives.
class CapturedLog {
 public:
  CapturedLog() {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    reader_ = fdopen(ends[0], "r");
    saved_ = dup(STDERR_FILENO);
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
  }
  ~CapturedLog() {
    dup2(saved_, STDERR_FILENO);
    close(saved_);
    fclose(reader_);
  }
  // Waits for the next line that contains `part`, and returns it. lines() counts every line read.
  std::string Await(absl::string_view part) {
    char line[4096];
    while (fgets(line, sizeof(line), reader_) != nullptr) {
      ++lines_;
      if (absl::StrContains(line, part)) return line;
    }
    return "";
  }
  int lines() const { return lines_; }

 private:
  FILE* reader_;
  int saved_;
  int lines_ = 0;
};

// A rollout to another protocol version must not stop the old workers while an old router, which
// refuses the new workers, still needs them. So the standing says whether some router refuses.
TEST(AttachClientTest, TellsWhetherARouterRefusesUntilThatRouterIsGone) {
  FakeMembership takes(1), refuses(2, "secret");
  const auto first = RpcServer::Start({.listen = "127.0.0.1:0", .services = {&takes}}).value();
  const auto second = RpcServer::Start({.listen = "127.0.0.1:0", .services = {&refuses}}).value();
  Mutex mutex;
  CondVar changed;
  std::vector<AttachClient::Standing> told;
  AttachClient::Options options = OptionsFor({first->address(), second->address()});
  options.longest_pause = absl::Milliseconds(5);
  options.on_standing = [&](const AttachClient::Standing& standing) {
    MutexLock lock(&mutex);
    told.push_back(standing);
    changed.SignalAll();
  };
  const AttachClient client(
      std::move(options), [] { return v1::LoadReport(); }, [](const v1::Peers&) {});
  takes.AwaitLoads(1);
  refuses.AwaitRefused(3);
  {
    MutexLock lock(&mutex);
    for (const AttachClient::Standing& standing : told) EXPECT_FALSE(standing.undisputed);
    while (told.empty() || told.back().attached != 1) changed.Wait(&mutex);
    EXPECT_FALSE(told.back().undisputed);
  }
  second->Shutdown(absl::ZeroDuration());
  MutexLock lock(&mutex);
  while (!told.back().undisputed) changed.Wait(&mutex);
  EXPECT_EQ(told.back().attached, 1);
}

TEST(AttachClientTest, ARouterThatCannotBeReachedIsWarnedOfAtOnceAndThenRarely) {
  AttachClient::Options options = OptionsFor({"127.0.0.1:1"});  // nothing listens on this port
  options.longest_pause = absl::Milliseconds(1);
  options.warning_interval = absl::Milliseconds(400);
  CapturedLog log;
  const absl::Time begin = SteadyNow();
  AttachClient client(
      std::move(options), [] { return v1::LoadReport(); }, [](const v1::Peers&) {});
  const std::string first = log.Await("router_unreachable");
  EXPECT_THAT(first,
              AllOf(HasSubstr("127.0.0.1:1"), HasSubstr("code=UNAVAILABLE"),
                    HasSubstr("that the router runs, that this machine can reach the address")));
  log.Await("router_unreachable");
  EXPECT_GE(SteadyNow() - begin, absl::Milliseconds(400)) << "tries are much more frequent";
  EXPECT_EQ(log.lines(), 2);
}

TEST(AttachClientTest, ANameThatIsUnknownIsWarnedOf) {
  AttachClient::Options options = OptionsFor({"no-such-router.invalid:50051"});
  CapturedLog log;
  AttachClient client(
      std::move(options), [] { return v1::LoadReport(); }, [](const v1::Peers&) {});
  EXPECT_THAT(log.Await("router_unknown"),
              AllOf(HasSubstr("no-such-router.invalid:50051"), HasSubstr("--routers")));
}

TEST(AttachClientTest, AWrongTokenIsNamedWithItsFlag) {
  FakeMembership membership(11, "secret");
  const auto server = *RpcServer::Start({.listen = "127.0.0.1:0", .services = {&membership}});
  AttachClient::Options options = OptionsFor({server->address()});
  options.token = "wrong";
  CapturedLog log;
  AttachClient client(
      std::move(options), [] { return v1::LoadReport(); }, [](const v1::Peers&) {});
  EXPECT_THAT(log.Await("attach_refused"),
              AllOf(HasSubstr("code=UNAUTHENTICATED"), HasSubstr("--attach-token")));
}

TEST(AttachClientTest, AnotherReasonIsWarnedOfAtOnce) {
  FakeMembership membership(11, "secret");
  auto server = *RpcServer::Start({.listen = "127.0.0.1:0", .services = {&membership}});
  AttachClient::Options options = OptionsFor({server->address()});
  options.token = "wrong";
  options.longest_pause = absl::Milliseconds(1);
  options.warning_interval = absl::Hours(1);
  CapturedLog log;
  AttachClient client(
      std::move(options), [] { return v1::LoadReport(); }, [](const v1::Peers&) {});
  EXPECT_THAT(log.Await("attach_refused"), HasSubstr("code=UNAUTHENTICATED"));
  server->Shutdown(absl::ZeroDuration());
  server = nullptr;
  EXPECT_THAT(log.Await("router_unreachable"), HasSubstr("code=UNAVAILABLE"));
}

// The router ends streams at random points of a client's report. If the client destroyed an object
// of a stream too early, a sanitized build would report it.
TEST(AttachClientTest, StreamsEndWhileItReports) {
  FakeMembership membership(11, "right");
  const auto server = *RpcServer::Start({.listen = "127.0.0.1:0", .services = {&membership}});
  AttachClient::Options options = OptionsFor({server->address()});
  options.token = "wrong";
  options.longest_pause = absl::ZeroDuration();
  options.report_interval = absl::ZeroDuration();
  AttachClient client(
      options, [] { return v1::LoadReport(); }, [](const v1::Peers&) {});
  for (int refused = 1; refused <= 150; ++refused) {
    client.ReportNow();
    membership.AwaitRefused(refused);
  }
}

TEST(ParseRoutersTest, NamesThePartThatIsNoAddress) {
  EXPECT_THAT(*ParseRouters("a:1,b:2"), testing::ElementsAre("a:1", "b:2"));
  EXPECT_THAT(ParseRouters("a:1,b").status().message(), testing::HasSubstr("'b'"));
  EXPECT_FALSE(ParseRouters("").ok());
}

}  // namespace
}  // namespace baton
