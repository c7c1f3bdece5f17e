#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/scratch_folder.h"
#include "tests/goodput/load/prometheus_text.h"
#include "tests/goodput/results/expect_file.h"
#include "tests/goodput/results/slo_file.h"
#include "tests/goodput/traces/prompt_file.h"
#include "tests/goodput/traces/trace.h"

namespace baton {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

std::string Why(const absl::Status& status) { return std::string(status.message()); }

TEST(TraceTest, BrokenLinesAreNamed) {
  const ScratchFolder folder;
  const auto why = [&](const std::string& text) {
    return Why(ReadTrace(folder.Write("t", text)).status());
  };
  const std::string azure = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.97,4,1\n";
  const std::string mooncake =
      R"({"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]})"
      "\n";
  EXPECT_EQ(why(azure), "");
  EXPECT_EQ(why(azure + "2023-11-16 18:17:03.98,4,1\r\n\n"), "");
  EXPECT_EQ(why(mooncake), "");
  EXPECT_THAT(why(""), HasSubstr("no requests"));
  EXPECT_THAT(why("a,b\n"), HasSubstr("t:1: neither a Mooncake trace"));
  EXPECT_THAT(why(azure + "yesterday,4,1\n"), HasSubstr("t:3: 'yesterday' is not a time"));
  EXPECT_THAT(why(azure + "2023-11-16 18:17:04,4\n"), HasSubstr("t:3: 2 columns instead of the 3"));
  EXPECT_THAT(why(azure + "2023-11-16 18:17:04,4.5,1\n"), HasSubstr("t:3: ContextTokens '4.5'"));
  EXPECT_THAT(why(azure + "2023-11-16 18:17:04,4,-1\n"), HasSubstr("t:3: GeneratedTokens '-1'"));
  EXPECT_THAT(why(azure + "2023-11-16 18:17:04,0,1\n"), HasSubstr("t:3: ContextTokens is 0"));
  EXPECT_THAT(why(azure + "2023-11-16 18:17:02,4,1\n"), HasSubstr("t:3: earlier than"));
  EXPECT_THAT(why(mooncake + "{\"timestamp\": 1\n"),
              HasSubstr("t:2: the line is not a JSON object"));
  EXPECT_THAT(why(mooncake + R"({"timestamp": 1, "input_length": 5})"),
              HasSubstr("t:2: output_length: missing"));
  EXPECT_THAT(why(mooncake +
                  R"({"timestamp": 1, "input_length": 600, "output_length": 5, "hash_ids": [0]})"),
              HasSubstr("t:2: hash_ids: 1 ids for 600 tokens, which are 2 blocks of 512"));
  EXPECT_THAT(why(mooncake +
                  R"({"timestamp": 1, "input_length": 9, "output_length": 5, "hash_ids": [-1]})"),
              HasSubstr("t:2: hash_ids"));
  EXPECT_EQ(ReadTrace(folder.File("none")).status().code(), absl::StatusCode::kNotFound);
}

TEST(PromptFileTest, TakesConversationsInShareGptsForm) {
  const ScratchFolder folder;
  const auto prompts = ReadPromptFile(folder.Write("a", R"( [
  {"conversations": [{"from": "human", "value": "What is rain?"},
                     {"from": "gpt", "value": "Water from clouds."},
                     {"from": "human", "value": "And snow?"}]},
  {"conversations": [{"from": "gpt", "value": "Hello."}, {"from": "human", "value": "Hi."}]},
  {"conversations": []},
  {"conversations": [{"from": "system", "value": "x"}, {"from": "human", "value": "Why?"},
                     {"from": "gpt", "value": "Yes"}]}])"));
  EXPECT_EQ(prompts.status().code(), absl::StatusCode::kOk) << prompts.status();
  ASSERT_EQ(prompts->size(), 2u);
  EXPECT_EQ((*prompts)[0].text, "What is rain?");
  EXPECT_EQ((*prompts)[0].answer, "Water from clouds.");
  EXPECT_EQ((*prompts)[0].output_tokens, 4u);  // A quarter of 18 bytes.
  EXPECT_EQ((*prompts)[1].text, "Why?");
  EXPECT_EQ((*prompts)[1].output_tokens, 1u);
  const auto why = [&](const std::string& text) {
    return Why(ReadPromptFile(folder.Write("b", text)).status());
  };
  EXPECT_THAT(why("[{]"), HasSubstr("b: it begins with [, but is no JSON list: "));
  EXPECT_THAT(why("[]"), HasSubstr("b: none of its 0 conversations"));
  EXPECT_THAT(why(R"([{"conversations": []}, 5])"),
              HasSubstr("b: conversation 1: 5 is not an object"));
  EXPECT_THAT(why(R"([{"conversation": []}])"), HasSubstr("b: conversation 0: it has no list"));
  EXPECT_THAT(why(R"([{"conversations": [{"from": "human"}]}])"),
              HasSubstr("b: conversation 0: turn 0 has no texts `from` and `value`"));
  EXPECT_EQ(ReadPromptFile(folder.Write("c", "[INST] a text\n[1]\n")).value().size(), 2u);
}

TEST(PromptFileTest, TakesTextsAndObjects) {
  const ScratchFolder folder;
  const auto lines = ReadPromptFile(folder.Write("a", "What is rain?\n\nAnd snow?\n")).value();
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1].text, "And snow?");
  const auto objects =
      ReadPromptFile(
          folder.Write("b", "{\"text\": \"a\", \"output_tokens\": 5}\n{\"text\": \"b\"}"))
          .value();
  EXPECT_EQ(objects[0].output_tokens, 5u);
  EXPECT_EQ(objects[1].output_tokens, 0u);
  const auto why = [&](const char* text) {
    return Why(ReadPromptFile(folder.Write("c", text)).status());
  };
  EXPECT_THAT(why(""), HasSubstr("no prompts"));
  EXPECT_THAT(why("a\n\xff\n"), HasSubstr("c:2: the text is not UTF-8"));
  EXPECT_THAT(why("{\"text\": \"a\"}\n{\"txt\": \"b\"}\n"), HasSubstr("c:2: txt: no such key"));
  EXPECT_THAT(why("{\"text\": \"\"}\n"), HasSubstr("c:1: the text is empty"));
}

TEST(SloFileTest, TellsTimesAndMultiples) {
  const SloFile slo =
      ParseSlo("f", R"({"name": "chat", "sources": ["a", "b"], "ttft": "10x", "tpot": "1.5 s"})")
          .value();
  EXPECT_TRUE(slo.IsRelative());
  const SloTargets targets = slo.Resolve(UnloadedLatency{.ttft_s = 0.02, .tpot_s = 0.001}).value();
  EXPECT_EQ(targets.name, "chat");
  EXPECT_EQ(targets.source, "a; b");
  EXPECT_DOUBLE_EQ(*targets.ttft_s, 0.2);
  EXPECT_DOUBLE_EQ(*targets.tpot_s, 1.5);
  EXPECT_FALSE(targets.e2e_s.has_value());
  EXPECT_FALSE(ParseSlo("f", R"({"ttft": "250ms"})")->IsRelative());
  EXPECT_DOUBLE_EQ(*ParseSlo("f", R"({"ttft": "250ms"})")->Resolve({})->ttft_s, 0.25);
}

TEST(SloFileTest, MultiplesOfEndToEndAreOfTheWorkloadsAnswers) {
  const SloFile slo = ParseSlo("f", R"({"name": "chat", "e2e": "2x"})").value();
  UnloadedLatency unloaded{
      .ttft_s = 0.1, .tpot_s = 0.01, .output_tokens = 64, .answer_tokens = 256, .probes = 5};
  EXPECT_DOUBLE_EQ(*slo.Resolve(unloaded)->e2e_s, 2 * (0.1 + 255 * 0.01));
  unloaded.answer_tokens = 2;
  EXPECT_DOUBLE_EQ(*slo.Resolve(unloaded)->e2e_s, 2 * (0.1 + 0.01));
  // 0 means that the median answer length of the workload is unknown. Then the answer length of the
  // probes is used, which is 64 here.
  unloaded.answer_tokens = 0;
  EXPECT_DOUBLE_EQ(*slo.Resolve(unloaded)->e2e_s, 2 * (0.1 + 63 * 0.01));
}

TEST(SloFileTest, AMultipleOfNoPaceIsRefused) {
  const UnloadedLatency unloaded{.ttft_s = 0.1, .output_tokens = 8, .answer_tokens = 8};
  for (const char* text : {R"({"name": "chat", "tpot": "2x"})", R"({"name": "chat", "e2e": "2x"})"})
    EXPECT_THAT(Why(ParseSlo("f", text)->Resolve(unloaded).status()),
                HasSubstr("chat: a multiple of the unloaded TPOT, which is not known"));
  EXPECT_TRUE(ParseSlo("f", R"({"ttft": "2x", "tpot": "9ms"})")->Resolve(unloaded).ok());
}

TEST(SloFileTest, TyposAreNamedWithTheirLine) {
  const auto why = [](const char* text) { return Why(ParseSlo("f.json", text).status()); };
  EXPECT_THAT(why("{\n  \"ttft\": \"1s\",\n  \"tptt\": \"1s\"\n}"),
              HasSubstr("f.json:3: tptt: no such key; the keys are name, about, sources, ttft"));
  EXPECT_THAT(why("{\n  \"ttft\": \"250\"\n}"), HasSubstr("f.json:2: ttft: '250' has no unit"));
  EXPECT_THAT(why("{\"ttft\": \"250us\"}"), HasSubstr("f.json:1: ttft: '250us' has unit 'us'"));
  EXPECT_THAT(why("{\"ttft\": \"-1s\"}"), HasSubstr("ttft: '-1s' is not above 0"));
  EXPECT_THAT(why("{\"ttft\": \"0x\"}"), HasSubstr("ttft: '0x' is not above 0"));
  EXPECT_THAT(why("{\"ttft\": \"nan s\"}"), HasSubstr("'nan s' is not a target"));
  EXPECT_THAT(why("{\"ttft\": 250}"), HasSubstr("ttft: it is 250; write it with its unit"));
  EXPECT_THAT(why("{\"sources\": \"x\", \"ttft\": \"1s\"}"), HasSubstr("array of strings"));
  EXPECT_THAT(why("{\"name\": \"x\"}"), HasSubstr("none of ttft, tpot and e2e"));
  EXPECT_THAT(why("{\n\"ttft\": \"1s\"\n\"tpot\"}"), HasSubstr("f.json:3: not a JSON object"));
}

TEST(SloFileTest, ThoseOfTheRepositoryCanBeReadAndTellTheirSources) {
  int files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(BATON_SOURCE_DIR "/tests/goodput/slo")) {
    const absl::StatusOr<SloFile> slo = ReadSloFile(entry.path());
    ASSERT_TRUE(slo.ok()) << slo.status();
    EXPECT_EQ(slo->name, entry.path().stem());
    EXPECT_FALSE(slo->source.empty());
    EXPECT_TRUE(slo->ttft.has_value() && slo->tpot.has_value());
    ++files;
  }
  EXPECT_GE(files, 3);
}

RequestRecord Answer(uint32_t index, std::vector<int32_t> tokens,
                     Outcome outcome = Outcome::kCompleted) {
  return {.index = index, .outcome = outcome, .token_ids = std::move(tokens)};
}

TEST(ExpectFileTest, FindsTheFirstTokenThatDiffers) {
  const ScratchFolder folder;
  const std::string path = folder.File("tokens");
  const std::vector<uint64_t> hashes = {11, 12, 13, 14};
  ASSERT_TRUE(ExpectFile::Of({Answer(0, {1, 2, 3}), Answer(1, {4, 5, 6}), Answer(2, {7, 8, 9}),
                              Answer(3, {1}, Outcome::kFailed)},
                             hashes)
                  .Write(path)
                  .ok());
  const ExpectFile expect = ExpectFile::Read(path).value();
  EXPECT_EQ(expect.size(), 3u);  // The failed request is not kept as a reference.
  ExpectResult result = expect.Compare(
      {Answer(0, {1, 2, 3}), Answer(1, {4, 5, 6}), Answer(2, {7, 8, 9})}, {11, 12, 13});
  EXPECT_EQ(result.equal, 3u);
  EXPECT_EQ(result.different + result.failed + result.unknown, 0u);
  result = expect.Compare({Answer(0, {1, 2, 4}), Answer(1, {4, 5}), Answer(2, {7, 8, 9, 9})},
                          {11, 12, 13});
  EXPECT_EQ(result.different, 3u);
  EXPECT_THAT(result.differences, ElementsAre("request 0, token 2: expected 3, found 4",
                                              "request 1, token 2: expected 3 tokens, found 2",
                                              "request 2, token 3: expected 3 tokens, found 4"));
  // A failed request counts as failed. The tokens that it received before the failure are still
  // compared.
  result = expect.Compare({Answer(0, {1, 2}, Outcome::kFailed), Answer(1, {9}, Outcome::kTimedOut),
                           Answer(2, {7, 8, 9}), Answer(5, {1})},
                          {11, 12, 99, 11});
  EXPECT_EQ(result.failed, 2u);
  // Two requests are not in the file. Request 2 has another prompt than in the file: its hash is
  // 99, not 13. The file has no request 5.
  EXPECT_EQ(result.unknown, 2u);
  EXPECT_EQ(result.compared, 2u);
  EXPECT_EQ(result.equal, 0u);
  EXPECT_THAT(result.differences, ElementsAre("request 1, token 0: expected 4, found 9"));
}

TEST(ExpectFileTest, BrokenLinesAreNamed) {
  const ScratchFolder folder;
  const auto why = [&](const std::string& text) {
    return Why(ExpectFile::Read(folder.Write("e", text)).status());
  };
  const std::string head = "{\"baton_goodput_expect\": 1}\n";
  const std::string line = R"({"index": 0, "request": "000000000000000b", "tokens": [1]})"
                           "\n";
  EXPECT_EQ(why(head + line), "");
  EXPECT_THAT(why("{}\n"), HasSubstr("e:1: baton_goodput_expect: missing"));
  EXPECT_THAT(why("{\"baton_goodput_expect\": 2}\n"), HasSubstr("this tool reads 1"));
  EXPECT_THAT(why(head), HasSubstr("no expected tokens"));
  EXPECT_THAT(why(head + line + line), HasSubstr("e:3: request 0 occurs twice"));
  EXPECT_THAT(why(head + "[]\n"), HasSubstr("e:2: the line is not a JSON object"));
  EXPECT_THAT(why(head + R"({"index": 0, "request": "xyz", "tokens": [1]})"),
              HasSubstr("e:2: request: 'xyz' is not a hash"));
  EXPECT_THAT(Why(ExpectFile::Read(folder.File("none")).status()), HasSubstr("--expect-write"));
}

TEST(PrometheusTextTest, TakesGaugesOfOurs) {
  const char kText[] = R"(# HELP baton_kv_blocks Blocks.
# TYPE baton_kv_blocks gauge
baton_kv_blocks{state="free",note="a } \" b"} 12 1700000000000
baton_kv_blocks{state="used"}	3.5e1
# TYPE baton_requests_total counter
baton_requests_total 7
# TYPE go_threads gauge
go_threads 9
# TYPE baton_batch_size gauge
baton_batch_size NaN
baton_batch_size{x="
baton_batch_size twelve
)";
  const auto gauges = GaugesIn(kText, "baton_");
  ASSERT_EQ(gauges.size(), 3u);
  EXPECT_THAT(gauges[0], Pair(R"(baton_kv_blocks{state="free",note="a } \" b"})", 12));
  EXPECT_THAT(gauges[1], Pair(R"(baton_kv_blocks{state="used"})", 35));
  EXPECT_EQ(gauges[2].first, "baton_batch_size");
}

}  // namespace
}  // namespace baton
