#include <grpcpp/grpcpp.h>

#include "common/rpc/dial.h"
#include "common/rpc/rpc_server.h"
#include "common/rpc/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

TEST(HostPortTest, TakesNamesAndBothAddressFamilies) {
  for (const char* good : {"127.0.0.1:0", "localhost:50051", "[::1]:1", "router-0.routers:65535"}) {
    EXPECT_TRUE(IsHostPort(good)) << good;
  }
  for (const char* bad :
       {"", ":1", "host", "host:", "host:65536", "host:-1", "::1:80", "http://x:1", "a b:1"}) {
    EXPECT_FALSE(IsHostPort(bad)) << bad;
  }
}

TEST(RpcServerTest, ABadListenAddressIsNamed) {
  EXPECT_THAT(RpcServer::Start({.listen = "nowhere"}).status().message(), HasSubstr("'nowhere'"));
}

TEST(RpcServerTest, AnAddressInUseIsUnavailable) {
  const auto first = RpcServer::Start({.listen = "127.0.0.1:0"});
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = RpcServer::Start({.listen = (*first)->address()});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(second.status().message(), HasSubstr((*first)->address()));
}

TEST(StatusTest, CodeAndMessageSurviveTheWayThereAndBack) {
  const absl::Status status = absl::ResourceExhaustedError("queue of 8 is full");
  EXPECT_EQ(FromGrpcStatus(ToGrpcStatus(status)), status);
  EXPECT_TRUE(FromGrpcStatus(ToGrpcStatus(absl::OkStatus())).ok());
}

}  // namespace
}  // namespace baton
