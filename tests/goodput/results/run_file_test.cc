#include "tests/goodput/results/run_file.h"

#include <cmath>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/scratch_folder.h"

namespace baton {
namespace {

using json = nlohmann::ordered_json;
using testing::HasSubstr;

RunResult SomeRun() {
  RunResult run;
  run.tool_version = "0.1.0";
  run.started_at = "2026-11-21T12:00:00Z";
  run.spec = {{"rate", "20"}};
  run.rate = 20;
  run.mode = "auto";
  run.seed = 18446744073709551615u;
  run.server = {.endpoint = "127.0.0.1:1", .model = "demo", .context_tokens = 4096};
  run.targets = {.name = "chat", .source = "here", .ttft_s = 0.25, .tpot_s = 0.1};
  run.unloaded = UnloadedLatency{.ttft_s = 0.02, .tpot_s = 0.001, .answer_tokens = 77, .probes = 5};
  run.window_begin_s = 3;
  run.window_end_s = 63;
  run.remarks = {"a remark"};
  run.timeline = {{.source = "h:1", .name = "baton_x{a=\"b\"}", .points = {{1, 2}, {2, NAN}}}};
  run.expect = ExpectResult{.file = "f", .compared = 2, .equal = 1, .differences = {"0 at 3"}};
  RequestRecord record;
  record.index = 7;
  record.mode = "auto";
  record.measured = true;
  record.scheduled_s = 3.000001;
  record.sent_s = 3.00002;
  record.ended_s = 4.5;
  record.token_s = {3.2, 3.3, 4.499999};
  record.prompt_tokens = 128;
  record.wanted_tokens = 3;
  record.outcome = Outcome::kCompleted;
  record.status = "OK";
  record.finish_reason = "length";
  record.has_phases = true;
  record.phases.prefill_s = 0.000123;
  record.link = "shm";
  record.lost_to = "queue";
  run.records = {record, {.index = 8, .outcome = Outcome::kRejected, .message = "no\xff room"}};
  return run;
}

class RunFileTest : public testing::Test {
 protected:
  const ScratchFolder folder_;
};

TEST_F(RunFileTest, ReadsBackWhatItWrote) {
  const std::string path = folder_.File("run.json");
  const RunResult run = SomeRun();
  ASSERT_TRUE(WriteRunFile(path, run).ok());
  const RunResult back = ReadRunFile(path).value();
  // Everything is read back as it was, except that U+FFFD replaces a byte that is not UTF-8.
  RunResult expected = run;
  expected.records[1].message = "no\xef\xbf\xbd room";
  EXPECT_EQ(RunToJson(back), RunToJson(expected));
  EXPECT_EQ(back.records[0].token_s, run.records[0].token_s);
  EXPECT_EQ(back.records[0].scheduled_s, run.records[0].scheduled_s);
  EXPECT_EQ(back.seed, run.seed);
  EXPECT_EQ(back.records[0].lost_to, "queue");
  EXPECT_EQ(back.records[1].sent_s, -1);
  EXPECT_FALSE(back.targets.e2e_s.has_value());
  EXPECT_TRUE(std::isnan(back.timeline[0].points[1].second));
  EXPECT_EQ(back.expect->differences, run.expect->differences);
}

TEST_F(RunFileTest, NamesWhatIsWrong) {
  const auto message_of = [](const std::function<void(json*)>& spoil) {
    json all = RunToJson(SomeRun());
    spoil(&all);
    return std::string(RunFromJson(all).status().message());
  };
  EXPECT_EQ(message_of([](json*) {}), "");
  EXPECT_EQ(message_of([](json* all) { (*all)["baton_goodput_run"] = 2; }),
            "baton_goodput_run is 2; this tool reads 1");
  EXPECT_EQ(message_of([](json* all) { all->erase("seed"); }), "seed: missing");
  EXPECT_EQ(message_of([](json* all) { (*all)["requests"][1]["outcome"] = "lost"; }),
            "requests[1].outcome: 'lost' is not an outcome");
  EXPECT_EQ(message_of([](json* all) { (*all)["requests"][0]["token_us"][1] = "x"; }),
            "requests[0].token_us: holds string, not numbers");
  EXPECT_EQ(message_of([](json* all) { (*all)["requests"][0]["token_us"][1] = nullptr; }),
            "requests[0].token_us: holds null, not numbers");
  EXPECT_EQ(message_of([](json* all) { (*all)["requests"][0]["index"] = -1; }),
            "requests[0].index: is number, not a whole number from 0");
  EXPECT_EQ(message_of([](json* all) { (*all)["targets"]["ttft_ms"] = "1"; }),
            "targets.ttft_ms: is string, not a number");
  EXPECT_EQ(message_of([](json* all) { *all = json::array(); }),
            "the file is array, not an object");
}

TEST_F(RunFileTest, FilesThatCanNotBeReadOrWrittenAreNamed) {
  EXPECT_EQ(ReadRunFile(folder_.File("none.json")).status().code(), absl::StatusCode::kNotFound);
  const std::string path = folder_.Write("bad.json", "{");
  EXPECT_THAT(std::string(ReadRunFile(path).status().message()), HasSubstr(path + ": not JSON"));
  const std::string nowhere = folder_.File("none/run.json");
  EXPECT_THAT(std::string(CheckWritable(nowhere).message()), HasSubstr(nowhere));
  EXPECT_THAT(std::string(WriteRunFile(nowhere, SomeRun()).message()), HasSubstr(nowhere));
}

TEST_F(RunFileTest, CheckingLeavesNoFileBehindAndKeepsWhatIsThere) {
  const std::string path = folder_.File("out.json");
  ASSERT_TRUE(CheckWritable(path).ok());
  EXPECT_FALSE(std::filesystem::exists(path));
  folder_.Write("out.json", "old");
  ASSERT_TRUE(CheckWritable(path).ok());
  EXPECT_EQ(std::filesystem::file_size(path), 3u);
}

}  // namespace
}  // namespace baton
