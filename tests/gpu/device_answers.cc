// Compares answers of workers on a device, end to end, with those of the CPU backend in this
// process: token for token wherever the CPU's choice is clear (common/engine/answer_bounds.h). If
// the device chose another token, the comparison continues after the CPU's token, so that every
// answer is compared to its end. Exits with 1 if any answers are wrong.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/json.h"
#include "common/base/program.h"
#include "common/base/status_macros.h"
#include "common/engine/answer_bounds.h"
#include "tests/cluster/cluster.h"
#include "tests/cluster/truth.h"
#include "tests/e2e/served_folder.h"

ABSL_FLAG(std::string, programs, "", "folder of baton-router, baton-prefill and baton-decode");
ABSL_FLAG(std::vector<std::string>, models, {},
          "folders with golden.json, separated by commas, whose prompts are asked one after the "
          "other; if tokenizer.json is missing, it is made");
ABSL_FLAG(std::string, backend, "cuda", "backend of the workers");
ABSL_FLAG(bool, seeded, false, "compares samples with seeds too, not only greedy answers");
ABSL_FLAG(int, prompts, 12, "max prompts of each model");
ABSL_FLAG(int, tokens, 24, "max tokens of each answer");
ABSL_FLAG(std::string, json, "",
          "file to append one line of JSON per model and mode to; default: none");

namespace baton {
namespace {

using Prompt = std::vector<TokenId>;

// Number of answers that are sampled, not greedy. Their prompts are the beginnings of the model's
// prompts.
constexpr int kSamples = 3;

struct Comparison {
  int tokens = 0;    // tokens of the CPU's answers
  int compared = 0;  // tokens whose choice is clear
  int different = 0;
  int unlikely = 0;     // compared tokens that are not the likeliest
  double furthest = 0;  // max difference between logprobs of one token, in nats
  std::string link;
};

std::vector<Prompt> ReadPrompts(const std::string& folder) {
  std::ifstream file(folder + "/golden.json");
  const auto golden = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  std::vector<Prompt> prompts;
  if (golden.is_object() && golden.contains("cases")) {
    for (const auto& one : golden["cases"]) prompts.push_back(one.at("ids").get<Prompt>());
  } else if (golden.is_object() && golden.contains("prompt")) {
    prompts.push_back(golden["prompt"].get<Prompt>());
  }
  if (prompts.empty()) RefuseToStart(absl::StrCat(folder, "/golden.json has no prompts"));
  if (prompts.size() > static_cast<size_t>(absl::GetFlag(FLAGS_prompts))) {
    prompts.resize(absl::GetFlag(FLAGS_prompts));
  }
  return prompts;
}

// Returns the first two tokens. After a longer prompt, a trained model may be so sure that every
// sample is the likeliest token.
Prompt Beginning(const Prompt& prompt) {
  return {prompt.begin(), prompt.begin() + std::min<size_t>(prompt.size(), 2)};
}

SamplingOptions Greedy() {
  SamplingOptions options;
  options.max_tokens = absl::GetFlag(FLAGS_tokens);
  return options;
}
SamplingOptions Sampled(const AnswerBounds& bounds, int i) {
  SamplingOptions options = Greedy();
  options.temperature = bounds.temperature;
  options.top_p = i == 0 ? 1 : 0.9f;
  options.seed = 20261122 + i;
  return options;
}

// Adds the comparison of one answer to `result`. Returns an error only if a request fails.
absl::Status Compare(Cluster& cluster, Truth& truth, v1::ServingMode mode, const Prompt& prompt,
                     SamplingOptions sampling, const AnswerBounds& bounds, Comparison* result) {
  Prompt text = prompt;
  while (sampling.max_tokens > 0) {
    SamplingOptions with_alternatives = sampling;
    with_alternatives.logprobs = sampling.temperature == 0 ? 2 : truth.config().vocab;
    ASSIGN_OR_RETURN(const auto answer, truth.FullAnswer(text, with_alternatives));
    v1::GenerateRequest request = TokenRequest(text, sampling.max_tokens);
    *request.mutable_sampling() = SamplingToProto(sampling);
    request.mutable_sampling()->set_ignore_eos(true);
    request.mutable_sampling()->set_logprobs(2);
    request.set_mode(mode);
    const Answer got = Generate(cluster.stub(), request);
    RETURN_IF_ERROR(got.status);
    if (got.tokens.size() != answer.tokens.size()) {
      return absl::InternalError(absl::StrCat(got.tokens.size(), " tokens came, ",
                                              answer.tokens.size(), " were asked for"));
    }
    if (!got.summary.link().empty()) result->link = got.summary.link();
    for (size_t i = 0; i < got.tokens.size(); ++i) {
      const SampledToken& cpu = answer.tokens[i];
      const v1::Token& token = got.tokens[i];
      const auto clear = ClearChoice(cpu.top, cpu.position, sampling, bounds);
      ++result->tokens;
      if (clear) {
        ++result->compared;
        result->different += token.token_id() != *clear || cpu.id != *clear;
        result->unlikely += *clear != cpu.top[0].id;
      }
      for (const v1::TopLogprob& a : token.top()) {
        for (const TokenLogprob& b : cpu.top) {
          if (a.token_id() != b.id) continue;
          result->furthest = std::max(result->furthest, std::fabs(double{a.logprob()} - b.logprob));
        }
      }
      text.push_back(cpu.id);
      --sampling.max_tokens;
      if (token.token_id() != cpu.id) break;  // the tokens after this one answer another text
    }
  }
  return absl::OkStatus();
}

// Prints a comparison, and adds it to the file of --json. Returns true if the answers are right.
bool Say(const std::string& model, const std::string& mode, bool sampled,
         const AnswerBounds& bounds, const Comparison& c) {
  const bool right = c.different == 0 && c.compared >= c.tokens / (sampled ? 6 : 4) &&
                     (sampled ? c.unlikely > 0 : c.furthest <= bounds.gap / 2);
  std::printf(
      "%s, %s%s: %d of %d tokens compared, %d different, logprobs at most %.4f apart%s%s: %s\n",
      model.c_str(), mode.c_str(), sampled ? ", seeded" : "", c.compared, c.tokens, c.different,
      c.furthest, c.link.empty() ? "" : ", link ", c.link.c_str(), right ? "right" : "WRONG");
  std::fflush(stdout);
  if (const std::string path = absl::GetFlag(FLAGS_json); !path.empty()) {
    std::ofstream file(path, std::ios::app);
    file << nlohmann::json{{"answers", mode},
                           {"model", model},
                           {"seeded", sampled},
                           {"backend", absl::GetFlag(FLAGS_backend)},
                           {"tokens", c.tokens},
                           {"compared", c.compared},
                           {"different", c.different},
                           {"unlikely", c.unlikely},
                           {"furthest_logprob", c.furthest},
                           {"gap", bounds.gap},
                           {"epsilon", bounds.epsilon},
                           {"link", c.link},
                           {"right", right}}
                .dump()
         << std::endl;
    if (!file) RefuseToStart(absl::StrCat("can't write ", path));
  }
  return right;
}

// Compares one model's answers in the modes disaggregated and colocated. Returns false if some were
// wrong, or if a request failed.
bool TryModel(const std::string& folder) {
  const std::vector<Prompt> prompts = ReadPrompts(folder);
  const std::string model = std::filesystem::path(folder).filename();
  const AnswerBounds bounds = AnswerBoundsOf(model);
  const auto truth = Truth::Load(folder);
  if (!truth.ok()) RefuseToStart(truth.status().message());
  std::optional<ServedFolder> served;
  if (!std::filesystem::exists(folder + "/tokenizer.json")) served.emplace(folder);
  const std::vector<std::string> flags = {
      absl::StrCat("--backend=", absl::GetFlag(FLAGS_backend)), "--kv-bytes=33554432",
      absl::StrCat("--context=", std::min(256, (*truth)->config().context))};
  const auto cluster = Cluster::Start({.model = served ? served->path() : folder,
                                       .programs = absl::GetFlag(FLAGS_programs),
                                       .test_workers = absl::GetFlag(FLAGS_backend) != "cuda",
                                       .prefill_flags = flags,
                                       .decode_flags = flags});
  const auto failed = [&](absl::string_view what, const absl::Status& status) {
    std::fprintf(stderr, "device_answers: %s\n",
                 absl::StrCat(model, what, ": ", status.ToString()).c_str());
    return false;
  };
  if (!cluster.ok()) return failed("", cluster.status());
  bool right = true;
  for (const auto mode : {v1::SERVING_MODE_DISAGGREGATED, v1::SERVING_MODE_COLOCATED}) {
    const std::string name = mode == v1::SERVING_MODE_DISAGGREGATED ? "disaggregated" : "colocated";
    Comparison greedy, sampled;
    for (size_t i = 0; i < prompts.size(); ++i) {
      const absl::Status status =
          Compare(**cluster, **truth, mode, prompts[i], Greedy(), bounds, &greedy);
      if (!status.ok()) return failed(absl::StrCat(", ", name, ", prompt ", i), status);
    }
    if (!Say(model, name, /*sampled=*/false, bounds, greedy)) right = false;
    if (!absl::GetFlag(FLAGS_seeded)) continue;
    for (int i = 0; i < kSamples; ++i) {
      const absl::Status status =
          Compare(**cluster, **truth, mode, Beginning(prompts[i % prompts.size()]),
                  Sampled(bounds, i), bounds, &sampled);
      if (!status.ok()) return failed(absl::StrCat(", ", name, ", sample ", i), status);
    }
    if (!Say(model, name, /*sampled=*/true, bounds, sampled)) right = false;
  }
  return right;
}

int Main() {
  std::vector<std::string> models = absl::GetFlag(FLAGS_models);
  if (models.empty()) RefuseToStart("--models names no folder");
  if (absl::GetFlag(FLAGS_tokens) < 1 || absl::GetFlag(FLAGS_prompts) < 1) {
    RefuseToStart("--tokens and --prompts are at least 1");
  }
  for (std::string& folder : models) {
    folder = std::filesystem::absolute(folder);
    while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
    ReadPrompts(folder);  // refuses a folder without prompts before any work begins
  }
  std::vector<std::string> wrong;
  for (const std::string& folder : models) {
    if (!TryModel(folder)) wrong.push_back(std::filesystem::path(folder).filename());
  }
  // The table of tests/gpu/run shows this last line.
  std::printf("%zu of %zu models right, disaggregated and colocated%s%s%s\n",
              models.size() - wrong.size(), models.size(),
              absl::GetFlag(FLAGS_seeded) ? ", greedy and seeded" : "",
              wrong.empty() ? "" : "; WRONG: ", absl::StrJoin(wrong, ", ").c_str());
  return wrong.empty() ? 0 : 1;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  const auto extra = baton::StartProgram(
      argc, argv,
      "device_answers: compares the answers of workers on a device with those of the CPU backend\n"
      "  device_answers --programs bin --models share/baton/models/demo --backend cuda");
  if (!extra.empty()) baton::RefuseToStart(absl::StrCat("'", extra.front(), "' is not expected"));
  return baton::Main();
}
