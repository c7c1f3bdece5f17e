// Greedy answers of workers on a device, end to end, held against the CPU backend in this process:
// token for token wherever the CPU's best two tokens are further apart than --gap, and at a near
// tie on with the CPU's choice, so that all of every answer is compared. Exits 1 where they differ.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "common/base/program.h"
#include "tests/cluster/cluster.h"
#include "tests/cluster/truth.h"

ABSL_FLAG(std::string, programs, "", "folder of baton-router, baton-prefill and baton-decode");
ABSL_FLAG(std::string, model, "", "folder with golden.json, whose prompts are asked");
ABSL_FLAG(std::string, backend, "cuda", "of the workers");
ABSL_FLAG(int, prompts, 12, "how many of them, at most");
ABSL_FLAG(int, tokens, 24, "of each answer");
ABSL_FLAG(double, gap, 0.3,
          "nats: where the CPU's best two are further apart, both choose the same; logprobs may be "
          "half of it apart");
ABSL_FLAG(std::string, json, "", "file that a line of JSON for each mode is added to");

namespace baton {
namespace {

using Prompt = std::vector<TokenId>;

struct Comparison {
  int tokens = 0;    // of the CPU's answers
  int compared = 0;  // those with a gap
  int different = 0;
  double furthest = 0;  // logprobs of one token, nats
  std::string link;
};

std::vector<Prompt> ReadPrompts(const std::string& folder) {
  std::ifstream file(folder + "/golden.json");
  const auto golden = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  std::vector<Prompt> prompts;
  if (golden.is_object() && golden.contains("cases")) {
    for (const auto& one : golden["cases"]) prompts.push_back(one.at("ids").get<Prompt>());
  }
  if (prompts.empty()) RefuseToStart(absl::StrCat(folder, "/golden.json has no prompts"));
  if (prompts.size() > static_cast<size_t>(absl::GetFlag(FLAGS_prompts))) {
    prompts.resize(absl::GetFlag(FLAGS_prompts));
  }
  return prompts;
}

// Adds one answer to `result`. An error is that of a request.
absl::Status Compare(Cluster& cluster, Truth& truth, v1::ServingMode mode, const Prompt& prompt,
                     Comparison* result) {
  const double gap = absl::GetFlag(FLAGS_gap);
  SamplingOptions greedy;
  greedy.max_tokens = absl::GetFlag(FLAGS_tokens);
  greedy.logprobs = 2;
  const auto answer = truth.FullAnswer(prompt, greedy);
  if (!answer.ok()) return answer.status();
  const std::vector<SampledToken>& expected = answer->tokens;
  for (size_t at = 0; at < expected.size();) {
    Prompt tokens = prompt;
    for (size_t i = 0; i < at; ++i) tokens.push_back(expected[i].id);
    v1::GenerateRequest request = TokenRequest(tokens, static_cast<int>(expected.size() - at));
    request.mutable_sampling()->set_logprobs(2);
    request.set_mode(mode);
    const Answer got = Generate(cluster.stub(), request);
    if (!got.status.ok()) return got.status;
    if (got.tokens.size() != expected.size() - at) {
      return absl::InternalError(absl::StrCat(got.tokens.size(), " tokens came, ",
                                              expected.size() - at, " were asked for"));
    }
    result->link = got.summary.link();
    for (const v1::Token& token : got.tokens) {
      const SampledToken& cpu = expected[at++];
      const bool clear = cpu.top[0].logprob - cpu.top[1].logprob >= gap;
      const bool same = token.token_id() == cpu.id;
      ++result->tokens;
      result->compared += clear;
      result->different += clear && !same;
      for (const v1::TopLogprob& a : token.top()) {
        for (const TokenLogprob& b : cpu.top) {
          if (a.token_id() != b.id) continue;
          result->furthest = std::max(result->furthest, std::fabs(double{a.logprob()} - b.logprob));
        }
      }
      if (!same) break;  // what follows it answers another text
    }
  }
  return absl::OkStatus();
}

// Whether the mode's answers are right.
bool Say(const std::string& mode, const Comparison& c) {
  const bool right =
      c.different == 0 && c.compared >= c.tokens / 4 && c.furthest <= absl::GetFlag(FLAGS_gap) / 2;
  std::printf("%s: %d of %d tokens compared, %d different, logprobs at most %.4f apart%s%s: %s\n",
              mode.c_str(), c.compared, c.tokens, c.different, c.furthest,
              c.link.empty() ? "" : ", link ", c.link.c_str(), right ? "right" : "WRONG");
  std::fflush(stdout);
  if (const std::string path = absl::GetFlag(FLAGS_json); !path.empty()) {
    std::ofstream file(path, std::ios::app);
    file << nlohmann::json{{"answers", mode},
                           {"backend", absl::GetFlag(FLAGS_backend)},
                           {"tokens", c.tokens},
                           {"compared", c.compared},
                           {"different", c.different},
                           {"furthest_logprob", c.furthest},
                           {"gap", absl::GetFlag(FLAGS_gap)},
                           {"link", c.link},
                           {"right", right}}
                .dump()
         << std::endl;
    if (!file) RefuseToStart(absl::StrCat("can't write ", path));
  }
  return right;
}

int Main() {
  const std::string model = absl::GetFlag(FLAGS_model);
  if (absl::GetFlag(FLAGS_tokens) < 1 || absl::GetFlag(FLAGS_prompts) < 1) {
    RefuseToStart("--tokens and --prompts are at least 1");
  }
  const std::vector<Prompt> prompts = ReadPrompts(model);
  const auto truth = Truth::Load(model);
  if (!truth.ok()) RefuseToStart(truth.status().message());
  const std::vector<std::string> flags = {absl::StrCat("--backend=", absl::GetFlag(FLAGS_backend)),
                                          "--kv-bytes=33554432", "--context=256"};
  const auto cluster = Cluster::Start({.model = model,
                                       .programs = absl::GetFlag(FLAGS_programs),
                                       .prefill_flags = flags,
                                       .decode_flags = flags});
  if (!cluster.ok()) {
    std::fprintf(stderr, "device_answers: %s\n", cluster.status().ToString().c_str());
    return 1;
  }
  bool right = true;
  for (const auto mode : {v1::SERVING_MODE_DISAGGREGATED, v1::SERVING_MODE_COLOCATED}) {
    const std::string name = mode == v1::SERVING_MODE_DISAGGREGATED ? "disaggregated" : "colocated";
    Comparison comparison;
    for (size_t i = 0; i < prompts.size(); ++i) {
      const absl::Status status = Compare(**cluster, **truth, mode, prompts[i], &comparison);
      if (!status.ok()) {
        std::fprintf(stderr, "device_answers: %s, prompt %zu: %s\n", name.c_str(), i,
                     status.ToString().c_str());
        return 1;
      }
    }
    if (!Say(name, comparison)) right = false;
  }
  return right ? 0 : 1;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  const auto extra = baton::StartProgram(
      argc, argv,
      "device_answers: answers of workers on a device against the CPU backend's\n"
      "  device_answers --programs bin --model share/baton/models/demo --backend cuda");
  if (!extra.empty()) baton::RefuseToStart(absl::StrCat("'", extra.front(), "' is not expected"));
  return baton::Main();
}
