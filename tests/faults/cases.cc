#include "tests/faults/cases.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace baton {
namespace {

constexpr int kTurns = 4;
constexpr int kDocuments = 3;

int Between(std::mt19937& random, int low, int high) {
  return std::uniform_int_distribution<int>(low, high)(random);
}

void AppendRandom(std::mt19937& random, int vocab, int count, std::vector<TokenId>* tokens) {
  for (int i = 0; i < count; ++i) tokens->push_back(Between(random, 0, vocab - 1));
}

// Makes the cases of one model.
class CaseMaker {
 public:
  CaseMaker(Truth& truth, const Workers& workers, int longest, std::mt19937& random)
      : truth_(truth),
        workers_(workers),
        longest_(longest),
        random_(random),
        documents_(kDocuments) {
    for (std::vector<TokenId>& document : documents_) {
      AppendRandom(random_, vocab(), std::min(longest_ / 3, 300), &document);
    }
  }

  Case Alone(int i) {
    const int length = Between(random_, 1, i % 3 == 0 ? longest_ : std::min(longest_ / 2, 400));
    std::vector<TokenId> prompt;
    if (i % 3 == 1) prompt = PartOfDocument(i / 3);
    AppendRandom(random_, vocab(), length, &prompt);
    SamplingOptions sampling = Sampling(i, device() ? 40 : 160);
    if (i % 5 == 0) sampling.prompt_logprobs = 1;
    const int answers = i % 11 == 6 ? Between(random_, 2, 3) : 1;
    Case c = MakeCase(truth_, std::move(prompt), std::move(sampling), answers);
    c.judge = workers_.judge;
    if (i % 8 == 3) c.mode = v1::SERVING_MODE_COLOCATED;
    if (i % 8 == 6) c.mode = v1::SERVING_MODE_AUTO;
    if (i % 7 == 2) c.cache_salt = i % 2 == 0 ? "even" : "odd";
    c.prefix_cache = i % 9 != 4;
    return c;
  }

  Conversation Talk(int i) {
    Conversation conversation;
    std::vector<TokenId> text;
    if (i % 3 == 1) text = PartOfDocument(i / 3);
    for (int turn = 0; turn < kTurns; ++turn) {
      AppendRandom(random_, vocab(),
                   turn == 0 ? Between(random_, longest_ / 8, longest_ / 4)
                             : Between(random_, 1, longest_ / 10),
                   &text);
      Case c = MakeCase(truth_, text, Sampling(i, device() ? 32 : 80));
      c.judge = workers_.judge;
      if (i % 4 == 1) c.mode = v1::SERVING_MODE_COLOCATED;
      if (i % 4 == 2) c.mode = v1::SERVING_MODE_AUTO;
      c.prefix_cache = i % 5 != 3 || turn != 1;
      conversation.push_back(std::move(c));
      const std::vector<TokenId>& answer = conversation.back().expected[0];
      text.insert(text.end(), answer.begin(), answer.end());
    }
    return conversation;
  }

 private:
  bool device() const { return workers_.backend != "cpu"; }
  int vocab() const { return truth_.config().vocab; }

  // Returns the beginning of a document, at least half of it.
  std::vector<TokenId> PartOfDocument(int number) {
    const std::vector<TokenId>& document = documents_[number % kDocuments];
    const int size = static_cast<int>(document.size());
    return {document.begin(), document.begin() + Between(random_, size / 2, size)};
  }

  SamplingOptions Sampling(int i, int max_tokens) {
    SamplingOptions sampling;
    sampling.max_tokens = Between(random_, 8, max_tokens);
    if (i % 2 != 0) {
      sampling.temperature = workers_.judge != nullptr ? workers_.judge->temperature() : 1;
      sampling.seed = random_();
    }
    // Half of the cases use sampling options that depend on earlier tokens.
    if (i % 4 >= 2 && workers_.judge == nullptr) {
      sampling.repetition_penalty = 1.2f;
      sampling.frequency_penalty = 0.3f;
      // Only gRPC has ids of banned words.
      if (i % 8 < 4) sampling.bad_words = {{5}, {11, 12}};
    }
    return sampling;
  }

  Truth& truth_;
  const Workers& workers_;
  const int longest_;
  std::mt19937& random_;
  std::vector<std::vector<TokenId>> documents_;
};

}  // namespace

v1::GenerateRequest Case::Request() const {
  v1::GenerateRequest request = TokenRequest(prompt, sampling.max_tokens);
  *request.mutable_sampling() = SamplingToProto(sampling);
  request.mutable_sampling()->set_ignore_eos(true);
  request.mutable_sampling()->set_n(static_cast<uint32_t>(expected.size()));
  request.set_mode(mode);
  request.set_cache_salt(cache_salt);
  if (!prefix_cache) request.set_prefix_cache(false);
  return request;
}

bool Case::TokensBegin(const std::vector<TokenId>& ids, size_t index) const {
  if (ids.size() > expected[index].size()) return false;
  if (judge != nullptr) {
    SamplingOptions of_answer = sampling;
    of_answer.answer_index = static_cast<uint32_t>(index);
    return judge->Chose(prompt, ids, of_answer);
  }
  return std::equal(ids.begin(), ids.end(), expected[index].begin());
}

bool Case::Begins(const Answer& answer) const {
  if (answer.prompt.size() > scores.size()) return false;
  for (size_t i = 0; i < answer.prompt.size(); ++i) {
    const v1::Token& token = answer.prompt[i];
    if (token.token_id() != prompt[i] || token.has_logprob() != (i > 0) ||
        !(std::abs(token.logprob() - scores[i].logprob.value_or(0)) <=
          (judge != nullptr ? judge->max_apart() : 0))) {
      return false;
    }
  }
  if (answer.others.size() + 1 != expected.size() || !TokensBegin(answer.ids(), 0)) return false;
  for (size_t i = 0; i < answer.others.size(); ++i) {
    if (!TokensBegin(answer.others[i].ids(), i + 1)) return false;
  }
  return true;
}

bool Case::Is(const Answer& answer) const {
  if (!Begins(answer) || answer.tokens.size() != expected[0].size() ||
      answer.prompt.size() != scores.size()) {
    return false;
  }
  for (size_t i = 0; i < answer.others.size(); ++i) {
    if (answer.others[i].tokens.size() != expected[i + 1].size()) return false;
  }
  return true;
}

std::string Case::WrongAboutCache(const Answer& answer, bool may_have_migrated) const {
  for (size_t i = 0; i <= answer.others.size(); ++i) {
    const v1::Summary& summary = i == 0 ? answer.summary : answer.others[i - 1].summary;
    const uint32_t cached = summary.usage().cached_tokens();
    const uint32_t at_decode = summary.decode_cached_tokens();
    const std::string found = absl::StrCat("answer ", i, " found KV of ", cached,
                                           " tokens, and of ", at_decode, " at the decode worker");
    // The last token of a prompt is always computed.
    if (cached >= prompt.size()) return absl::StrCat(found, "; the prompt has no more");
    if (!prefix_cache && cached + at_decode > 0) return absl::StrCat(found, " without the cache");
    if (may_have_migrated || summary.migrations() > 0) continue;
    if (first_of_its_salt && cached + at_decode > 0) {
      return absl::StrCat(found, ", though it is the first of its salt");
    }
    if (i == 0 && sampling.prompt_logprobs.has_value() && cached > 0) {
      return absl::StrCat(found, ", though all tokens of its prompt must be computed");
    }
  }
  return "";
}

Case MakeCase(Truth& truth, std::vector<TokenId> prompt, SamplingOptions sampling, int answers) {
  Case c;
  c.prompt = std::move(prompt);
  c.sampling = std::move(sampling);
  BATON_CHECK(static_cast<int>(c.prompt.size()) + c.sampling.max_tokens <= truth.config().context)
      << "a prompt of " << c.prompt.size() << " tokens is too long";
  for (int i = 0; i < answers; ++i) {
    SamplingOptions of_answer = c.sampling;
    of_answer.answer_index = static_cast<uint32_t>(i);
    if (i > 0) of_answer.prompt_logprobs.reset();
    auto answer = truth.FullAnswer(c.prompt, of_answer);
    BATON_CHECK(answer.ok()) << answer.status();
    std::vector<TokenId>& ids = c.expected.emplace_back();
    for (const SampledToken& token : answer->tokens) ids.push_back(token.id);
    if (i == 0) c.scores = std::move(answer->prompt);
  }
  return c;
}

Case MakeCase(Truth& truth, std::mt19937& random, int prompt_tokens, SamplingOptions sampling) {
  std::vector<TokenId> prompt;
  AppendRandom(random, truth.config().vocab, prompt_tokens, &prompt);
  return MakeCase(truth, std::move(prompt), std::move(sampling));
}

Cases MakeCases(const std::string& model, const Workers& workers, int longest, int conversations,
                std::mt19937& random) {
  const bool device = workers.backend != "cpu";
  const auto truth =
      device && workers.judge == nullptr ? Truth::LoadOnEmulatedDevice(model) : Truth::Load(model);
  BATON_CHECK(truth.ok()) << truth.status();
  CaseMaker maker(**truth, workers, longest, random);
  Cases cases;
  for (int i = 0; i < 4 * conversations; ++i) cases.alone.push_back(maker.Alone(i));
  for (int i = 0; i < conversations; ++i) cases.conversations.push_back(maker.Talk(i));
  return cases;
}

}  // namespace baton
