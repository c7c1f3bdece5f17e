#include <cstdlib>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/scratch_folder.h"
#include "tests/goodput/testing/goodput_program.h"

namespace baton {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr char kLoad[] =
    "run --rate=1 --prompt-tokens=4 --output-tokens=1 --endpoint=127.0.0.1:1 "
    "--connect-timeout=1ms ";

TEST(SlosCommandTest, ListsThoseOfTheRepositoryWithTheirTargets) {
  const Ended slos = Goodput("slos");
  EXPECT_EQ(slos.exit_status, 0);
  for (const auto& entry : fs::directory_iterator(BATON_SOURCE_DIR "/tests/goodput/slo")) {
    EXPECT_THAT(slos.output, HasSubstr("\n" + entry.path().stem().string() + " "));
  }
  EXPECT_THAT(slos.output, HasSubstr("chat                   250 ms   100 ms        -  People"));
}

TEST(SlosCommandTest, ANameThatThereIsNotIsToldWithThoseThereAre) {
  const Ended run = Goodput(std::string(kLoad) + "--slo marathon");
  EXPECT_EQ(run.exit_status, 2);
  EXPECT_THAT(run.output, AllOf(StartsWith("baton-goodput: --slo is 'marathon': there is no such "
                                           "file, and no SLO of that name; the SLOs are "),
                                HasSubstr("chat, chat-interactive"), HasSubstr("summarise")));
}

TEST(SlosCommandTest, AnSloIsFoundByItsNameFromAnyFolder) {
  const ScratchFolder elsewhere;
  const Ended run = Goodput(std::string(kLoad) + "--slo chat");
  EXPECT_EQ(run.exit_status, 1) << "it got as far as connecting";
  EXPECT_THAT(run.output, Not(HasSubstr("slo")));
}

// Runs a copy of the program that is installed in a folder with only bin/ and share/. It must find
// the SLO files in share/.
TEST(SlosCommandTest, AnInstalledProgramFindsThoseBesideIt) {
  const ScratchFolder folder;
  fs::create_directory(folder.File("bin"));
  fs::copy_file(BATON_BINARY_DIR "/baton-goodput", folder.File("bin/baton-goodput"));
  const auto slos = [&](const std::string& environment) {
    FILE* pipe = popen(
        ("env " + environment + " " + folder.File("bin/baton-goodput") + " slos 2>&1").c_str(),
        "r");
    std::string output(10000, '\0');
    output.resize(std::fread(output.data(), 1, output.size(), pipe));
    pclose(pipe);
    return output;
  };
  EXPECT_THAT(slos("-u BATON_SLO"), StartsWith("baton-goodput: no SLO was found"));
  folder.Write("share/baton/slo/dash.json",
               R"({"name": "dash", "about": "Runners.", "ttft": "2s"})");
  EXPECT_THAT(slos("-u BATON_SLO"),
              HasSubstr("dash                      2 s        -        -  Runners.\n"));
  folder.Write("mine/dash.json", R"({"name": "dash", "tpot": "3x"})");
  EXPECT_THAT(slos("BATON_SLO=" + folder.File("mine")),
              HasSubstr("dash                        -       3x"));
  folder.Write("mine/bad.json", "{");
  EXPECT_THAT(slos("BATON_SLO=" + folder.File("mine")), HasSubstr("bad.json:1: not a JSON object"));
}

}  // namespace
}  // namespace baton
