#include "common/base/program.h"

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "absl/flags/flag.h"

ABSL_FLAG(int, seat_count, 4, "seats");
ABSL_FLAG(std::optional<float>, warmth, std::nullopt, "glow: degrees");
ABSL_FLAG(bool, quiet, false, "says less");
ABSL_FLAG(bool, lights, true, "are on");
ABSL_FLAG(std::string, name, "", "name of it");

namespace baton {
namespace {

using testing::ElementsAre;
using testing::ExitedWithCode;
using testing::IsEmpty;

// Parses a command line. Call it only in a death test's child process, because flags are
// process-wide.
std::vector<std::string> Start(std::vector<std::string> arguments,
                               const ProgramHelp& help = "Does a thing.") {
  arguments.insert(arguments.begin(), "/usr/bin/baton-thing");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  return StartProgram(static_cast<int>(argv.size()), argv.data(), help);
}

[[noreturn]] void ExitByExpectations() { std::exit(testing::Test::HasFailure() ? 1 : 0); }

// Redirects standard output, where --help and --version print, to standard error, which death tests
// read.
void OutputToError() { dup2(2, 1); }

TEST(ProgramTest, FlagsAreReadInEverySpelling) {
  EXPECT_EXIT(
      {
        EXPECT_THAT(Start({"run", "--seat-count", "7", "-warmth=-1.5", "--quiet", "--no-lights",
                           "-", "--name", "--quiet", "--", "--name"}),
                    ElementsAre("run", "-", "--name"));
        EXPECT_EQ(absl::GetFlag(FLAGS_seat_count), 7);
        EXPECT_EQ(absl::GetFlag(FLAGS_warmth), -1.5f);
        EXPECT_TRUE(absl::GetFlag(FLAGS_quiet));
        EXPECT_FALSE(absl::GetFlag(FLAGS_lights));
        EXPECT_EQ(absl::GetFlag(FLAGS_name), "--quiet");
        EXPECT_THAT(GivenFlags(), ElementsAre("lights", "name", "quiet", "seat_count", "warmth"));
        ExitByExpectations();
      },
      ExitedWithCode(0), "");
}

TEST(ProgramTest, UnderscoresAndPlainNoAreUnderstoodToo) {
  EXPECT_EXIT(
      {
        EXPECT_THAT(Start({"--seat_count=9", "--seat_count=2", "--nolights", "--quiet=false"}),
                    IsEmpty());
        EXPECT_EQ(absl::GetFlag(FLAGS_seat_count), 2);
        EXPECT_FALSE(absl::GetFlag(FLAGS_lights));
        EXPECT_EQ(absl::GetFlag(FLAGS_warmth), std::nullopt);
        EXPECT_THAT(GivenFlags(), ElementsAre("lights", "quiet", "seat_count"));
        ExitByExpectations();
      },
      ExitedWithCode(0), "");
}

TEST(ProgramTest, WhatCannotBeUsedIsNamedAndExits2) {
  EXPECT_EXIT(
      Start({"--sheet-count=1"}), ExitedWithCode(2),
      "^baton-thing: unknown flag --sheet-count; did you mean --seat-count\\?; --help lists all "
      "flags\n$");
  EXPECT_EXIT(Start({"--colour"}), ExitedWithCode(2),
              "^baton-thing: unknown flag --colour; --help lists all flags\n$");
  EXPECT_EXIT(Start({"--count=1"}), ExitedWithCode(2), "did you mean --seat-count");
  EXPECT_EXIT(Start({"--no-name"}), ExitedWithCode(2), "unknown flag --no-name");
  EXPECT_EXIT(Start({"--no-lights=true"}), ExitedWithCode(2), "unknown flag --no-lights");
  EXPECT_EXIT(Start({"--flagfile=/dev/null"}), ExitedWithCode(2), "unknown flag --flagfile");
  EXPECT_EXIT(Start({"--seat-count"}), ExitedWithCode(2), "flag --seat-count needs a value");
  EXPECT_EXIT(Start({"--seat-count=many"}), ExitedWithCode(2),
              "'many' is not a valid value of --seat-count: seats");
  EXPECT_EXIT(
      Start({"--seat-count=99999999999"}), ExitedWithCode(2),
      "'99999999999' is not a valid value of --seat-count: .*a whole number from -2147483648 to "
      "2147483647");
  EXPECT_EXIT(Start({"--log-level=loud"}), ExitedWithCode(2),
              "'loud' is not a valid value of --log-level: .*debug, info, warn or error");
  EXPECT_EXIT(Start({"--log-format", "xml"}), ExitedWithCode(2),
              "'xml' is not a valid value of --log-format: .*text, or json");
  EXPECT_EXIT(Start({"--lights=perhaps"}), ExitedWithCode(2),
              "'perhaps' is not a valid value of --lights: .*true or false");
}

TEST(ProgramTest, HelpListsEveryFlagOfOursAndNoOther) {
  EXPECT_EXIT((OutputToError(), Start({"--seat-count=1", "--help"})), ExitedWithCode(0),
              "^Does a thing.\n\nFlags:\n"
              "  --\\[no-\\]lights\n      are on\n"
              "  --log-format\n      format of the log on standard error: text, or json \\(one "
              "object per line; servers then print\n      nothing on standard output, and their "
              "addresses are only in the log\\) \\(default: text\\)\n"
              "  --log-level\n      lowest level of the log lines that are written: debug, info, "
              "warn or error \\(default: info\\)\n"
              "  --name\n      name of it\n"
              "  --quiet\n      says less\n"
              "  --seat-count\n      seats \\(default: 4\\)\n"
              "  --warmth\n      glow: degrees\n"
              "\nFlags of every program:\n  --help\n.*\n  --version\n.*\n$");
}

ProgramHelp HelpWithCommands() {
  return {"Does things.",
          {{"Of every command", "log-level log-format"}},
          {{.name = "sit", .usage = "sit: takes seats.", .groups = {{"Seats", "seat-count"}}},
           {.name = "glow",
            .usage = "glow: is warm.",
            .groups = {{"Light", "lights no-such-flag"}, {"Heat", "warmth"}}}}};
}

TEST(ProgramTest, HelpOfACommandHasItsFlagsAloneByTheirGroups) {
  EXPECT_EXIT(
      (OutputToError(), Start({"glow", "--help"}, HelpWithCommands())), ExitedWithCode(0),
      "^glow: is warm.\n\nLight:\n  --\\[no-\\]lights\n.*\n\nHeat:\n  --warmth\n      degrees\n\n"
      "Of every command:\n  --log-level\n.*\n  --log-format\n");
  EXPECT_EXIT(
      (OutputToError(), Start({"sit", "--help"}, HelpWithCommands())), ExitedWithCode(0),
      "^sit: takes seats.\n\nSeats:\n  --seat-count\n      seats \\(default: 4\\)\n\nOf every c");
}

TEST(ProgramTest, HelpWithoutACommandHasAllFlagsAndThoseOfNoGroupLast) {
  EXPECT_EXIT((OutputToError(), Start({"--help"}, HelpWithCommands())), ExitedWithCode(0),
              "^Does things.\n\nSeats:\n(.|\n)*\n\nLight:\n(.|\n)*\n\nHeat:\n(.|\n)*"
              "\n\nOf every command:\n(.|\n)*\n\nOther flags:\n  --name\n(.|\n)*  --quiet\n");
}

TEST(ProgramTest, ListsItsFlagsForOtherPrograms) {
  EXPECT_EXIT((OutputToError(), Start({"--list-flags"})), ExitedWithCode(0),
              "^lights bool\nlog-format value\nlog-level value\nname value\nquiet bool\n"
              "seat-count value\nwarmth value\n$");
}

TEST(ProgramTest, VersionIsNameAndNumber) {
  EXPECT_EXIT((OutputToError(), Start({"--version"})), ExitedWithCode(0),
              "^baton-thing [0-9]+\\.[0-9]+\\.[0-9]+\n$");
}

}  // namespace
}  // namespace baton
