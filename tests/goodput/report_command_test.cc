#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/base/scratch_folder.h"
#include "tests/goodput/results/run_file.h"
#include "tests/goodput/search/search_result.h"
#include "tests/goodput/search/simulated_run.h"
#include "tests/goodput/testing/goodput_program.h"

namespace baton {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class ReportCommandTest : public testing::Test {
 protected:
  ReportCommandTest() {
    EXPECT_TRUE(WriteRunFile(run_, SimulatedRun({})).ok());
    EXPECT_TRUE(WriteRunFile(other_, SimulatedRun({.seed = 2})).ok());
    before_ = folder_.Read("chat.json");
  }

  // Expects that the command ends with status 2, names `path`, and changes or adds no file.
  void Refused(const std::string& arguments, const std::string& path) {
    const size_t files = Files();
    const Ended ended = Goodput(arguments);
    EXPECT_EQ(ended.exit_status, 2) << arguments << "\n" << ended.output;
    EXPECT_THAT(ended.output,
                HasSubstr(absl::StrCat("writing ", path, " would overwrite the input ")))
        << arguments;
    EXPECT_TRUE(folder_.Read("chat.json") == before_) << arguments;
    EXPECT_EQ(Files(), files) << arguments;
  }
  size_t Files() const {
    size_t files = 0;
    for ([[maybe_unused]] const auto& entry : fs::recursive_directory_iterator(folder_.File("")))
      ++files;
    return files;
  }

  const ScratchFolder folder_;
  const std::string run_ = folder_.File("chat.json"), other_ = folder_.File("other.json");
  std::string before_;
};

TEST_F(ReportCommandTest, APageIsNeverWrittenOverItsInputs) {
  const std::string page = folder_.File("chat.html"), link = folder_.File("link.json");
  const std::string report = absl::StrCat("report ", other_, " ", run_, " --out=");
  Refused(report + run_, run_);
  Refused(report + page, run_);  // The report's file of figures would overwrite the input.
  Refused(report + folder_.File("./chat.htm"), folder_.File("./chat.json"));
  fs::create_hard_link(run_, link);
  Refused(report + folder_.File("link.html"), link);
  fs::remove(link);
  fs::create_symlink(run_, link);
  Refused(report + link, link);
  fs::remove(link);
  // The command first writes the page to new.html.part and then renames this file. Here a hard link
  // gives the input the name new.html.part, so the command would overwrite the input.
  fs::create_hard_link(run_, folder_.File("new.html.part"));
  Refused(report + folder_.File("new.html"), folder_.File("new.html.part"));

  const Ended ended = Goodput(report + folder_.File("page.html"));
  EXPECT_EQ(ended.exit_status, 0) << ended.output;
  EXPECT_THAT(folder_.Read("page.json"), HasSubstr("\"baton_goodput_report\": 1"));
}

TEST_F(ReportCommandTest, APlotIsNeverWrittenOverItsInputs) {
  const std::string svg = folder_.File("plots");
  const std::string page = absl::StrCat(" --svg=", svg, " --out=", folder_.File("page.html"));
  ASSERT_EQ(Goodput(absl::StrCat("report ", run_, page)).exit_status, 0);
  const std::string plot = absl::StrCat(svg, "/attainment.svg");
  ASSERT_TRUE(fs::remove(plot));
  fs::create_hard_link(run_, plot);
  for (const char* made : {"page.html", "page.json"}) fs::remove(folder_.File(made));
  Refused(absl::StrCat("report ", run_, page), plot);
  Refused(absl::StrCat("report ", plot, page), plot);
}

TEST_F(ReportCommandTest, FiguresOfADiffAreNeverWrittenOverItsInputs) {
  const std::string diff = absl::StrCat("diff ", run_, " ", other_, " --out=");
  Refused(diff + run_, run_);
  Refused(diff + other_, other_);
  const std::string around = absl::StrCat(folder_.File("plots"), "/../chat.json");
  fs::create_directory(folder_.File("plots"));
  Refused(diff + around, around);
  const Ended ended = Goodput(diff + folder_.File("diff.json"));
  EXPECT_EQ(ended.exit_status, 0) << ended.output;
  EXPECT_TRUE(fs::exists(folder_.File("diff.json")));
}

TEST_F(ReportCommandTest, AFileThatIsGivenTwiceIsRefused) {
  const std::string link = folder_.File("link.json");
  fs::create_hard_link(run_, link);
  for (const std::string& again : {run_, folder_.File("./chat.json"), link}) {
    const Ended ended = Goodput(
        absl::StrCat("report ", run_, " ", other_, " ", again, " --out=", folder_.File("x.html")));
    EXPECT_EQ(ended.exit_status, 2) << ended.output;
    EXPECT_THAT(ended.output, HasSubstr(absl::StrCat(run_, " and ", again, " are the same file")));
    EXPECT_FALSE(fs::exists(folder_.File("x.html")));
  }
}

TEST_F(ReportCommandTest, ADiffFailsOnALossOnlyOfWhatMayBeBelieved) {
  const auto diff = [&](const RunResult& run, const std::string& flags) {
    EXPECT_TRUE(WriteRunFile(other_, run).ok());
    return Goodput(absl::StrCat("diff ", run_, " ", other_, flags));
  };
  RunResult run = SimulatedRun({});
  EXPECT_EQ(diff(run, " --fail-on-loss").exit_status, 0);
  for (RequestRecord& record : run.records) record.outcome = Outcome::kRejected;
  EXPECT_EQ(diff(run, " --fail-on-loss").exit_status, 1);
  EXPECT_EQ(diff(run, "").exit_status, 0);
  run = SimulatedRun({});
  run.partial = true;
  const Ended partial = diff(run, " --fail-on-loss");
  EXPECT_EQ(partial.exit_status, 1) << partial.output;
  EXPECT_THAT(partial.output,
              HasSubstr("can't tell whether there is a loss: the second is partial: "));
  EXPECT_EQ(diff(run, "").exit_status, 0);
}

TEST_F(ReportCommandTest, ASearchIsNotHeldAgainstAnotherAttainmentThanItLookedFor) {
  const SearchResult search{
      .modes = {{.name = "auto", .loads = {{{.rate = 4}, SimulatedRun({})}}}}};
  const std::string path = folder_.Write("search.json", SearchToJson(search).dump());
  for (const std::string& command :
       {absl::StrCat("diff ", path, " ", path),
        absl::StrCat("report ", path, " --out=", folder_.File("page.html"))}) {
    EXPECT_EQ(Goodput(command + " --attainment=0.9").exit_status, 0) << command;
    const Ended ended = Goodput(command + " --attainment=0.99");
    EXPECT_EQ(ended.exit_status, 2) << ended.output;
    EXPECT_THAT(ended.output,
                HasSubstr(absl::StrCat("--attainment=0.99: ", path, " is a search for 0.9")));
  }
}

}  // namespace
}  // namespace baton
