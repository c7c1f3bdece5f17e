#include "common/fetch/fetch.h"

#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/base/json.h"
#include "common/base/scratch_folder.h"
#include "common/fetch/hub_for_tests.h"

namespace baton {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr char kCommit[] = "1234567890abcdef1234567890abcdef12345678";

std::string Hash(const EVP_MD* kind, const std::string& bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_Digest(bytes.data(), bytes.size(), digest, &size, kind, nullptr);
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<char*>(digest), size));
}

bool IsLarge(absl::string_view path) {
  return absl::EndsWith(path, ".safetensors") || absl::EndsWith(path, ".gguf");
}

// Returns the target of a request without its percent-encoding.
std::string Decoded(absl::string_view target) {
  std::string text(target);
  for (size_t at = 0; (at = text.find('%', at)) != text.npos; ++at)
    text.replace(at, 3, absl::HexStringToBytes(text.substr(at + 1, 2)));
  return text;
}

// A hub with one model. As at Hugging Face, the weights are on another server.
class FetchTest : public testing::Test {
 protected:
  FetchTest() {
    for (int i = 0; i < 300000; ++i) weights_ += static_cast<char>(i * 7 + i / 251);
    files_ = {{"config.json", "{\"a\": 1}"},   {"tokenizer.json", "{}"},
              {"model.safetensors", weights_}, {"consolidated.safetensors", "again"},
              {"pytorch_model.bin", "old"},    {"onnx/config.json", "{}"},
              {"README.md", "words"}};
    hub_ = std::make_unique<HubForTests>([this](const HubRequest& request) {
      if (refusal_.status != 200) return refusal_;
      if (busy_ > 0 && busy_-- > 0) return HubAnswer{.status = 503};
      absl::string_view target = request.target;
      if (target == absl::StrCat("/api/models/org/model/revision/", revision_, "?blobs=true"))
        return HubAnswer{.body = list_.empty() ? Listed().dump() : list_};
      if (!absl::ConsumePrefix(&target, absl::StrCat("/org/model/resolve/", kCommit, "/")))
        return HubAnswer{.status = 404, .headers = {{"X-Error-Code", "RepoNotFound"}}};
      if (IsLarge(target)) {
        return HubAnswer{.status = 302,
                         .headers = {{"Location", absl::StrCat(cdn_->address(), "/", target)},
                                     {"X-Linked-Etag", Hash(EVP_sha256(), weights_)}}};
      }
      return HubAnswer{.body = files_.at(Decoded(target))};
    });
    cdn_ = std::make_unique<HubForTests>([this](const HubRequest& request) {
      HubAnswer answer{.body = files_.at(Decoded(request.target.substr(1)))};
      if (wrong_ > 0 && wrong_-- > 0) answer.body[1000] ^= 1;
      absl::string_view range = request.range;
      int64_t from = 0;
      if (ranges_ && absl::ConsumePrefix(&range, "bytes=") && absl::ConsumeSuffix(&range, "-") &&
          absl::SimpleAtoi(range, &from)) {
        answer.status = 206;
        answer.headers["Content-Range"] =
            absl::StrCat("bytes ", from, "-", answer.body.size() - 1, "/", answer.body.size());
        answer.body.erase(0, from);
      }
      if (cuts_ > 0 && cuts_-- > 0) answer.cut_after = 70000;
      return answer;
    });
    options_ = {.name = "org/model",
                .folder = folder_.File("model"),
                .endpoint = hub_->address(),
                .token = "hf_secret",
                .first_pause = absl::ZeroDuration(),
                .say = [this](absl::string_view line) { absl::StrAppend(&said_, line, "\n"); }};
  }

  json Listed() const {
    json listed = {{"sha", kCommit}, {"siblings", json::array()}};
    for (const auto& [path, bytes] : files_) {
      json file = {{"rfilename", path},
                   {"size", bytes.size()},
                   {"blobId", Hash(EVP_sha1(), absl::StrCat("blob ", bytes.size(),
                                                            std::string(1, '\0'), bytes))}};
      if (IsLarge(path))
        file["lfs"] = {{"sha256", Hash(EVP_sha256(), bytes)}, {"size", bytes.size()}};
      listed["siblings"].push_back(file);
    }
    return listed;
  }

  std::string There() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(options_.folder)) {
      if (entry.is_regular_file())
        names.push_back(fs::relative(entry.path(), options_.folder).string());
    }
    std::sort(names.begin(), names.end());
    return absl::StrJoin(names, " ");
  }
  bool Whole() const {
    return folder_.Read("model/model.safetensors") == weights_ &&
           There() ==
               ".baton-fetch.json .baton-fetch.lock config.json model.safetensors "
               "tokenizer.json";
  }
  std::vector<std::string> RangesAsked() const {
    std::vector<std::string> ranges;
    for (const HubRequest& request : cdn_->requests()) ranges.push_back(request.range);
    return ranges;
  }

  ScratchFolder folder_;
  std::string weights_;
  std::map<std::string, std::string> files_;
  std::string revision_ = "main";
  std::string list_;   // if not empty, replaces the list of files
  HubAnswer refusal_;  // answer to every request, if its status is not 200
  // Counts of coming answers that will be a refusal ("busy"), have wrong bytes, or be cut off. Each
  // such answer lowers its count by one.
  int busy_ = 0, wrong_ = 0, cuts_ = 0;
  bool ranges_ = true;
  std::unique_ptr<HubForTests> hub_, cdn_;
  FetchOptions options_;
  std::string said_;
};

TEST_F(FetchTest, BringsWhatBatonReadsAndAsksOnce) {
  ASSERT_TRUE(Fetch(options_).ok());
  EXPECT_TRUE(Whole()) << There();
  const size_t asked = hub_->requests().size();
  EXPECT_EQ(asked, 4u);  // one request for the list, and one for each of the three files
  for (const HubRequest& request : hub_->requests())
    EXPECT_EQ(request.authorization, "Bearer hf_secret") << request.target;
  ASSERT_EQ(cdn_->requests().size(), 1u);
  EXPECT_EQ(cdn_->requests()[0].authorization, "") << "the token is the hub's alone";
  ASSERT_TRUE(Fetch(options_).ok());
  EXPECT_EQ(hub_->requests().size(), asked);
  EXPECT_THAT(said_, HasSubstr(absl::StrCat("has 'org/model' at commit ", kCommit, " already")));
  // A file that is deleted afterwards is fetched again. The other files are not.
  fs::remove(folder_.File("model/config.json"));
  ASSERT_TRUE(Fetch(options_).ok());
  EXPECT_TRUE(Whole());
  EXPECT_EQ(cdn_->requests().size(), 1u);
}

TEST_F(FetchTest, GoesOnWhereItWasCut) {
  cuts_ = 2;
  const absl::Status status = Fetch(options_);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(Whole());
  EXPECT_THAT(RangesAsked(), ElementsAre("", "bytes=70000-", "bytes=140000-"));
}

TEST_F(FetchTest, GoesOnWhereAnEarlierProcessWasCut) {
  cuts_ = 1;
  options_.attempts = 1;
  const absl::Status cut = Fetch(options_);
  EXPECT_EQ(cut.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(cut.message(), AllOf(HasSubstr("can't fetch model.safetensors from "),
                                   HasSubstr("the next run continues from there")));
  EXPECT_THAT(There(), HasSubstr("model.safetensors.part"));
  EXPECT_THAT(There(), AllOf(Not(HasSubstr("model.safetensors ")), Not(HasSubstr("fetch.json"))));
  ASSERT_TRUE(Fetch(options_).ok());
  EXPECT_TRUE(Whole());
  EXPECT_THAT(RangesAsked(), ElementsAre("", "bytes=70000-"));
  EXPECT_THAT(said_, HasSubstr("model.safetensors: continues after 0.1 MB"));
}

TEST_F(FetchTest, BeginsAnewWhereTheServerKnowsNoRanges) {
  cuts_ = 1;
  ranges_ = false;
  ASSERT_TRUE(Fetch(options_).ok());
  EXPECT_TRUE(Whole());
}

TEST_F(FetchTest, WrongBytesNeverGetTheirName) {
  wrong_ = 2;
  const absl::Status status = Fetch(options_);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("model.safetensors arrived twice with a wrong hash"),
                    HasSubstr(Hash(EVP_sha256(), weights_))));
  EXPECT_THAT(There(), Not(HasSubstr("safetensors")));
  // A file with wrong bytes is fetched a second time, also if an earlier process left it.
  wrong_ = 1;
  ASSERT_TRUE(Fetch(options_).ok());
  EXPECT_TRUE(Whole());
  fs::remove_all(options_.folder);
  folder_.Write("model/model.safetensors.part", std::string(5000, 'x'));
  folder_.Write("model/config.json", "{\"a\": 2}");  // has the right size but other bytes
  ASSERT_TRUE(Fetch(options_).ok());
  EXPECT_TRUE(Whole());
  EXPECT_EQ(folder_.Read("model/config.json"), "{\"a\": 1}");
}

TEST_F(FetchTest, WaitsForABusyHubAndNamesOneThatIsNotThere) {
  busy_ = 3;
  ASSERT_TRUE(Fetch(options_).ok());
  EXPECT_THAT(said_, HasSubstr("the list of files: the hub answered 503; next attempt in 0"));
  options_.folder = folder_.File("other");
  options_.endpoint = "http://127.0.0.1:1";
  options_.attempts = 3;
  const absl::Status status = Fetch(options_);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("can't fetch the list of files from "
                                                "http://127.0.0.1:1: "),
                                      HasSubstr("(3 attempts in a row); check the address")));
}

TEST_F(FetchTest, SaysWhatTheHubsRefusalsMean) {
  const auto refused = [&](const HubAnswer& answer) {
    refusal_ = answer;
    return Fetch(options_);
  };
  EXPECT_THAT(refused({.status = 401}).message(),
              HasSubstr("the token is not valid for 'org/model' at http://127.0.0.1"));
  EXPECT_THAT(refused({.status = 403, .headers = {{"X-Error-Message", "gated."}}}).message(),
              AllOf(HasSubstr("accept the conditions at " + hub_->address() + "/org/model"),
                    HasSubstr("(the hub answered 403: gated.)")));
  EXPECT_THAT(refused({.status = 404, .headers = {{"X-Error-Code", "RevisionNotFound"}}}).message(),
              HasSubstr("'org/model' at " + hub_->address() + " has no revision 'main'"));
  EXPECT_THAT(refused({.status = 404}).message(), HasSubstr("there is no 'org/model' at"));
  options_.token = "";
  const absl::Status anonymous = refused({.status = 401});
  EXPECT_EQ(anonymous.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_THAT(anonymous.message(),
              HasSubstr("give a token that may read it (--token-file or $HF_"));
  EXPECT_EQ(hub_->requests().back().authorization, "");
}

TEST_F(FetchTest, RefusesModelsThatBatonCannotRead) {
  files_.erase("tokenizer.json");
  EXPECT_THAT(Fetch(options_).message(),
              HasSubstr("'org/model' at revision 'main' has no tokenizer.json"));
  files_.erase("model.safetensors");
  files_.erase("consolidated.safetensors");
  EXPECT_THAT(Fetch(options_).message(), HasSubstr("has no weights as .safetensors or .gguf"));
  options_.include = {"*.gguf"};
  EXPECT_THAT(Fetch(options_).message(), HasSubstr("has no file that matches *.gguf"));
  options_.include = {"README.md", "onnx/*"};
  ASSERT_TRUE(Fetch(options_).ok());
  EXPECT_THAT(There(), HasSubstr("README.md onnx/config.json"));
}

TEST_F(FetchTest, BringsOneGgufFileAndSaysHowToServeIt) {
  files_ = {{"README.md", "words"},
            {"config.json", "{}"},
            {"model-Q8_0.gguf", weights_},
            {"BF16/model-BF16-00001-of-00002.gguf", "first"},
            {"BF16/model-BF16-00002-of-00002.gguf", "second"}};
  EXPECT_THAT(
      Fetch(options_).message(),
      HasSubstr(
          "'org/model' at revision 'main' has 2 GGUF files to choose from; give the name of one "
          "behind the model's: BF16/model-BF16-00001-of-00002.gguf, model-Q8_0"));
  options_.gguf = "Q8";
  EXPECT_THAT(Fetch(options_).message(), HasSubstr("'main' has no GGUF file 'Q8'; give one"));
  options_.gguf = "model-Q8_0.gguf";
  cuts_ = 1;
  ASSERT_TRUE(Fetch(options_).ok());
  EXPECT_EQ(There(), ".baton-fetch.json .baton-fetch.lock model-Q8_0.gguf");
  EXPECT_EQ(folder_.Read("model/model-Q8_0.gguf"), weights_);
  EXPECT_THAT(RangesAsked(), ElementsAre("", "bytes=70000-"));
  const std::string serve =
      absl::StrCat("\nserve it with --model ", options_.folder, "/model-Q8_0.gguf\n");
  EXPECT_TRUE(absl::EndsWith(said_, "/model is complete" + serve)) << said_;
  const size_t asked = hub_->requests().size();
  for (const char* again : {"model-Q8_0.gguf", ""}) {
    options_.gguf = again;
    ASSERT_TRUE(Fetch(options_).ok());
    EXPECT_EQ(hub_->requests().size(), asked);
    EXPECT_TRUE(absl::EndsWith(said_, " already" + serve)) << said_;
  }
  options_.gguf = "q8_0";  // only the hub knows all names that end so
  revision_ = kCommit;
  ASSERT_TRUE(Fetch(options_).ok());
  EXPECT_EQ(hub_->requests().size(), asked + 1);
}

// Without a name, a repository's only GGUF file is its model; if it has safetensors, they are.
TEST_F(FetchTest, AGgufFileNeedsNoNameIfThereIsNothingElse) {
  files_["model-Q8_0.gguf"] = "eight";
  ASSERT_TRUE(Fetch(options_).ok());
  EXPECT_TRUE(Whole()) << There();
  fs::remove_all(options_.folder);
  for (const char* name : {"model.safetensors", "consolidated.safetensors"}) files_.erase(name);
  ASSERT_TRUE(Fetch(options_).ok());
  EXPECT_EQ(There(), ".baton-fetch.json .baton-fetch.lock model-Q8_0.gguf");
}

TEST_F(FetchTest, AFolderOfBothKindsIsServedAsAFolderUnlessAGgufFileIsNamed) {
  files_["a.gguf"] = "eight";
  const std::string folder = absl::StrCat("\nserve it with --model ", options_.folder);
  ASSERT_TRUE(Fetch(options_).ok());
  EXPECT_TRUE(absl::EndsWith(said_, folder + "\n")) << said_;
  revision_ = kCommit;
  options_.gguf = "a.gguf";
  ASSERT_TRUE(Fetch(options_).ok());
  EXPECT_TRUE(absl::EndsWith(said_, folder + "/a.gguf\n")) << said_;
  options_.gguf = "";
  ASSERT_TRUE(Fetch(options_).ok());
  EXPECT_TRUE(absl::EndsWith(said_, " already" + folder + "\n")) << said_;
}

TEST_F(FetchTest, NamesOfFilesMayHaveAnyCharacter) {
  for (const char* name : {"sub dir/m Q8_0.gguf", "a#b?c=d&e.gguf", "100%.gguf", "a%2Fb.gguf",
                           "gr\u00fc\u00df+~.gguf"}) {
    files_[name] = name;
    options_.gguf = name;
    options_.attempts = 1;
    fs::remove_all(options_.folder);
    const absl::Status status = Fetch(options_);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(folder_.Read(absl::StrCat("model/", name)), name);
    files_.erase(name);
  }
  EXPECT_EQ(cdn_->requests()[0].target, "/sub%20dir/m%20Q8_0.gguf");
}

// While a second file arrives, the folder stays complete for those that read the first one.
TEST_F(FetchTest, AFurtherGgufFileIsOfTheSameCommit) {
  files_ = {{"model-Q8_0.gguf", "eight"},
            {"model-BF16-00001-of-00002.gguf", "first"},
            {"model-BF16-00002-of-00002.gguf", weights_}};
  options_.gguf = "Q8_0";
  ASSERT_TRUE(Fetch(options_).ok());
  revision_ = kCommit;  // the hub answers only when it is asked for the commit
  options_.gguf = "model-BF16-00001-of-00002.gguf";
  options_.attempts = 1;
  cuts_ = 2;
  EXPECT_EQ(Fetch(options_).code(), absl::StatusCode::kUnavailable);
  const auto recorded = [&] { return json::parse(folder_.Read("model/.baton-fetch.json")); };
  EXPECT_EQ(recorded()["files"], json({{"model-Q8_0.gguf", 5}}));
  cuts_ = 0;
  ASSERT_TRUE(Fetch(options_).ok());
  EXPECT_EQ(folder_.Read("model/model-BF16-00002-of-00002.gguf"), weights_);
  EXPECT_EQ(recorded(), json({{"name", "org/model"},
                              {"revision", "main"},
                              {"commit", kCommit},
                              {"files",
                               {{"model-Q8_0.gguf", 5},
                                {"model-BF16-00001-of-00002.gguf", 5},
                                {"model-BF16-00002-of-00002.gguf", weights_.size()}}}}));
  EXPECT_TRUE(absl::EndsWith(said_, "/model-BF16-00001-of-00002.gguf\n")) << said_;
  // A part that is deleted afterwards is fetched again. The other ones are not.
  fs::remove(folder_.File("model/model-BF16-00001-of-00002.gguf"));
  const size_t asked = cdn_->requests().size();
  ASSERT_TRUE(Fetch(options_).ok());
  EXPECT_EQ(cdn_->requests().size(), asked + 1);
  // A branch that was rewritten no longer has the commit.
  options_.gguf = "Q8_0";
  refusal_ = {.status = 404, .headers = {{"X-Error-Code", "RevisionNotFound"}}};
  EXPECT_EQ(Fetch(options_).message(),
            absl::StrCat(options_.folder, " holds files of commit ", kCommit,
                         ", which 'org/model' at ", hub_->address(),
                         " no longer has: take another folder, or empty this one (the hub answered "
                         "404)"));
  refusal_ = {.status = 404};
  EXPECT_THAT(Fetch(options_).message(), HasSubstr("there is no 'org/model' at"));
}

TEST_F(FetchTest, RefusesWhatIsNoListOfFiles) {
  list_ = "<html>hello</html>";
  EXPECT_THAT(Fetch(options_).message(),
              HasSubstr("check that --endpoint is a hub. It says: <html>"));
  list_ = R"({"sha": "1", "siblings": [{"rfilename": "../a.json", "size": 1, "blobId": "0"}]})";
  options_.include = {"../*"};
  EXPECT_THAT(Fetch(options_).message(),
              HasSubstr("a file that can't be stored safely: '../a.json'"));
  options_.include.clear();
  list_ = R"({"sha": "1", "siblings": [{"rfilename": "a.gguf", "blobId": "0"}]})";
  EXPECT_THAT(Fetch(options_).message(), HasSubstr("a file that can't be stored safely: 'a.gguf'"));
  list_ = absl::StrCat(
      R"({"sha": "1", "siblings": [)", R"({"rfilename": "config.json", "size": 1, "blobId": "0"},)",
      R"({"rfilename": "tokenizer.json", "size": 1, "blobId": "0"},)",
      R"({"rfilename": "a.safetensors", "size": 4000000000000000000,)", R"( "blobId": "0"}]})");
  EXPECT_EQ(Fetch(options_).code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(FetchTest, LeavesAnotherModelAndAnotherProcessAlone) {
  ASSERT_TRUE(Fetch(options_).ok());
  options_.revision = "v2";
  const absl::Status other = Fetch(options_);
  EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(other.message(), HasSubstr("holds 'org/model' at revision 'main', and 'org/model' at "
                                         "revision 'v2' was asked for"));
  options_.revision = kCommit;
  EXPECT_TRUE(Fetch(options_).ok()) << "the same by another name";
  const int lock = open(folder_.File("model/.baton-fetch.lock").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(flock(lock, LOCK_EX), 0);
  EXPECT_THAT(Fetch(options_).message(), HasSubstr("another baton-fetch is filling "));
  close(lock);
}

TEST_F(FetchTest, TheProgramTakesItsFlagsAndEndsByTheOutcome) {
  const auto run = [&](const std::string& arguments) {
    FILE* pipe = popen(absl::StrCat("HF_TOKEN=' hf_secret\n' HF_ENDPOINT=", hub_->address(), "/ ",
                                    BATON_BINARY_DIR "/baton-fetch ", arguments, " 2>&1")
                           .c_str(),
                       "r");
    std::string output;
    char bytes[4096];
    while (const size_t got = fread(bytes, 1, sizeof bytes, pipe)) output.append(bytes, got);
    return absl::StrCat(WEXITSTATUS(pclose(pipe)), " ", output);
  };
  revision_ = "v1.0";
  EXPECT_THAT(run(absl::StrCat("org/model --revision=v1.0 --to ", options_.folder)),
              AllOf(HasSubstr("0 'org/model' at commit 1234567890abcdef1234567890abcdef12345678: 3 "
                              "files, 0.3 MB to fetch\n"),
                    HasSubstr("model.safetensors: 0.3 MB, hash as listed\n"),
                    HasSubstr("model is complete\n")));
  EXPECT_TRUE(Whole());
  EXPECT_EQ(hub_->requests()[0].authorization, "Bearer hf_secret");
  files_["m-Q4_K_M.gguf"] = "four";
  for (const char* words : {"org/model:q4_k_m", "org/model m-Q4_K_M.gguf"}) {
    fs::remove_all(options_.folder);
    EXPECT_THAT(run(absl::StrCat(words, " --revision=v1.0 --to ", options_.folder)),
                AllOf(HasSubstr(": 1 file, 0.0 MB to fetch\n"),
                      HasSubstr("serve it with --model " + options_.folder + "/m-Q4_K_M.gguf\n")));
  }
  for (const char* words : {"org/model: --to=a", "org/model:q4_k_m m-Q4_K_M.gguf --to=a"})
    EXPECT_THAT(run(words), HasSubstr("': give ORGANISATION/MODEL:QUANTISATION or "));
  EXPECT_THAT(run("org/model:Q4 --to=a --include=*.gguf"),
              HasSubstr("2 baton-fetch: --include is '*.gguf', and 'Q4' was given too"));
  EXPECT_THAT(run("org/none --to " + folder_.File("none")),
              HasSubstr("1 baton-fetch: there is no 'org/none' at http://127.0.0.1"));
  EXPECT_THAT(run("--to=/tmp"), HasSubstr("2 baton-fetch: a model name is needed"));
  EXPECT_THAT(run("org/model"), HasSubstr("2 baton-fetch: --to is missing"));
  EXPECT_THAT(run("'org/mod el' --to=a"), HasSubstr("have only letters, digits and -_./"));
  EXPECT_THAT(run("org/model --to=a --attempts=0"),
              HasSubstr("--attempts is 0; it takes 1 or more"));
  EXPECT_THAT(run("org/model --to=a --token-file=/none"), HasSubstr("can't read /none"));
}

}  // namespace
}  // namespace baton
