#include "common/up/process_log.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/log.h"
#include "common/base/scratch_folder.h"

namespace baton {
namespace {

class ProcessLogTest : public testing::Test {
 protected:
  void Append(const std::string& text) {
    std::ofstream(folder_.File("log"), std::ios::app) << text;
    log_.ReadNew();
  }

  const ScratchFolder folder_;
  ProcessLog log_{folder_.File("log")};
};

TEST_F(ProcessLogTest, TheAddressIsThatOfTheRunThatIsOn) {
  log_.ReadNew();  // the file does not exist yet
  Append("listening on 127.0.0.1:4");
  EXPECT_FALSE(log_.address().has_value()) << "the line may go on";
  Append("2\n");
  EXPECT_EQ(log_.address(), "127.0.0.1:42");
  log_.BeginRun();
  Append("metrics on 127.0.0.1:9\n");
  EXPECT_FALSE(log_.address().has_value());
  Append("listening on 127.0.0.1:43\n");
  EXPECT_EQ(log_.address(), "127.0.0.1:43");
  log_.BeginRun();
  Append("listening on 0.0.0.0:44 (advertised as 10.0.0.3:44)\n");
  EXPECT_EQ(log_.address(), "0.0.0.0:44");
}

TEST_F(ProcessLogTest, TheAddressForHttpIsAnotherOne) {
  Append("listening on 127.0.0.1:42\n");
  EXPECT_FALSE(log_.http_address().has_value());
  Append("listening for HTTP on 127.0.0.1:8000\n");
  EXPECT_EQ(log_.address(), "127.0.0.1:42");
  EXPECT_EQ(log_.http_address(), "127.0.0.1:8000");
  log_.BeginRun();
  EXPECT_FALSE(log_.http_address().has_value());
  Append(LogLine(LogFormat::kJson, "2026-11-23T06:13:02.123456Z", Severity::kInfo, "baton-router",
                 "listening_http", {{"address", "127.0.0.1:8001"}}));
  EXPECT_EQ(log_.http_address(), "127.0.0.1:8001");
  EXPECT_FALSE(log_.address().has_value());
}

TEST_F(ProcessLogTest, ProgressIsTheLastLineInAFewWords) {
  for (const LogFormat format : {LogFormat::kText, LogFormat::kJson}) {
    const auto append = [&](const char* event, std::initializer_list<LogField> fields) {
      Append(LogLine(format, "2026-11-23T06:13:02.123456Z", Severity::kInfo, "baton-decode", event,
                     fields));
    };
    append("memory_plan", {{"usable_bytes", 5}, {"weights_bytes", 4}});
    EXPECT_EQ(log_.progress(), "loading the model");
    append("kv_plane", {{"transport", "ucx auto"}});
    EXPECT_EQ(log_.progress(), "kv plane");
    append("loading", {{"what", "weights"}, {"done_bytes", 3}, {"progress", "3.1 of 16.0 GB"}});
    EXPECT_EQ(log_.progress(), "loading weights, 3.1 of 16.0 GB");
    append("loading", {{"what", "kv_pool"}, {"progress", "1.0 of 2.0 GB"}});
    EXPECT_EQ(log_.progress(), "taking KV memory, 1.0 of 2.0 GB");
    append("not_serving", {{"decode_workers", 0}, {"why", "no \"decode\" worker is attached"}});
    EXPECT_EQ(log_.progress(), "no \"decode\" worker is attached");
  }
  Append("plain words\n");
  EXPECT_EQ(log_.progress(), "plain words");
}

TEST_F(ProcessLogTest, ReadsBothLogFormats) {
  const auto line = [](LogFormat format, const char* event, LogField field) {
    return LogLine(format, "2026-11-23T06:13:02.123456Z", Severity::kInfo, "baton-decode", event,
                   {field});
  };
  Append(line(LogFormat::kText, "loading_model", {"folder", "/m"}));
  EXPECT_EQ(log_.last_line(), "loading_model folder=/m");
  Append(line(LogFormat::kJson, "listening", {"address", "127.0.0.1:7"}));
  EXPECT_EQ(log_.address(), "127.0.0.1:7");
  Append(line(LogFormat::kJson, "refused_to_start",
              {"because", "--kv-bytes is '4\\' \"event\":\"x\"\n"}));
  EXPECT_EQ(log_.reason(), "--kv-bytes is '4\\' \"event\":\"x\" ");
  EXPECT_EQ(log_.last_line(), "refused_to_start");
}

TEST_F(ProcessLogTest, TheReasonOfARefusalWinsOverWhatOtherLibrariesSay) {
  Append("2026-11-23T06:13:02.123456Z W baton-router grpc says=x at=y.cc:1\n");
  Append("baton-router: --listen: can't listen on h:1\n[warn] something else\n");
  EXPECT_EQ(log_.reason(), "--listen: can't listen on h:1");
  EXPECT_EQ(log_.last_line(), "[warn] something else");
  log_.BeginRun();
  EXPECT_EQ(log_.reason(), "");
}

// The warning says why a router can't pair workers. The lines that follow in the log do not repeat
// the reason. So last_warning() must still return the warning after these lines were read.
TEST_F(ProcessLogTest, AWarningStaysKnown) {
  for (const LogFormat format : {LogFormat::kText, LogFormat::kJson}) {
    log_.BeginRun();
    EXPECT_EQ(log_.last_warning(), "");
    const auto append = [&](Severity severity, const char* event) {
      Append(LogLine(format, "2026-11-23T06:13:02.123456Z", severity, "baton-router", event,
                     {{"why", "numerics"}}));
    };
    append(Severity::kWarning, "worker_without_partner");
    append(Severity::kInfo, "not_serving");
    EXPECT_THAT(log_.last_warning(), testing::StartsWith("worker_without_partner "));
    EXPECT_THAT(log_.last_line(), testing::StartsWith("not_serving"));
  }
}

TEST_F(ProcessLogTest, TheLastStateOfAProgressBarIsTheLastLine) {
  Append("\rloading 1 %\rloading 2 %\n\n   \n");
  EXPECT_EQ(log_.last_line(), "loading 2 %");
}

TEST_F(ProcessLogTest, ALineThatOnlyLooksLikeJsonIsText) {
  Append("{not json\n");
  EXPECT_EQ(log_.last_line(), "{not json");
  Append("[1]\n7\n{\"event\": 7}\n");
  EXPECT_FALSE(log_.address().has_value());
}

}  // namespace
}  // namespace baton
