#include "common/up/state_folder.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/scratch_folder.h"

namespace baton {
namespace {

using testing::HasSubstr;

TEST(StateFolderTest, WhatIsWrittenIsRead) {
  const ScratchFolder scratch;
  const StateFolder folder(scratch.path());
  EXPECT_TRUE(folder.Read().empty());
  EXPECT_EQ(folder.RouterAddress(), "");
  EXPECT_EQ(folder.HttpAddress(), "");
  folder.Write({{"router", "127.0.0.1:5", 71, ""}, {"decode-1", "", 0, "loading\tweights\n"}},
               "127.0.0.1:5", "127.0.0.1:6");
  const std::vector<ProcessRecord> records = folder.Read();
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].address, "127.0.0.1:5");
  EXPECT_EQ(records[0].pid, 71);
  EXPECT_EQ(records[1].note, "loading weights ");
  EXPECT_EQ(folder.RouterAddress(), "127.0.0.1:5");
  EXPECT_EQ(folder.HttpAddress(), "127.0.0.1:6");
  EXPECT_EQ(scratch.Read("router.pid"), "71\n");
  EXPECT_FALSE(std::filesystem::exists(scratch.File("decode-1.pid")));
  EXPECT_FALSE(folder.Stopping());
  folder.SetStopping();
  EXPECT_TRUE(folder.Stopping());
  folder.Clear();
  EXPECT_TRUE(folder.Read().empty());
  EXPECT_EQ(folder.RouterAddress(), "");
  EXPECT_EQ(folder.HttpAddress(), "");
  EXPECT_FALSE(std::filesystem::exists(scratch.File("router.pid")));
  EXPECT_FALSE(folder.Stopping());
}

// Takes the lock in another process, because a lock does not keep out the process that holds it.
TEST(StateFolderTest, OneProcessHasTheFolderAndItsDeathFreesIt) {
  const ScratchFolder scratch;
  const std::string path = scratch.File("made/on demand");
  int ready[2], end[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(end), 0);
  const pid_t owner = fork();
  if (owner == 0) {
    StateFolder folder(path);
    char byte = folder.Take().ok() ? 1 : 0;
    if (write(ready[1], &byte, 1) != 1) _exit(1);
    close(end[1]);
    _exit(read(end[0], &byte, 1) == 0 ? 0 : 1);
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_EQ(byte, 1);
  StateFolder folder(path);
  EXPECT_EQ(folder.Owner(), owner);
  EXPECT_TRUE(absl::IsAlreadyExists(folder.Take()));
  EXPECT_EQ(folder.Owner(), owner) << "asking took nothing away";
  close(end[1]);
  ASSERT_EQ(waitpid(owner, nullptr, 0), owner);
  EXPECT_EQ(folder.Owner(), 0);
  EXPECT_TRUE(folder.Take().ok());
  for (const int file : {ready[0], ready[1], end[0]}) close(file);
}

TEST(StateFolderTest, AFolderThatCannotBeWrittenIsNamed) {
  const ScratchFolder scratch;
  StateFolder folder(scratch.Write("a file", "") + "/state");
  EXPECT_THAT(folder.Take().message(),
              testing::AllOf(HasSubstr("a file/state"), HasSubstr("$BATON_STATE")));
}

}  // namespace
}  // namespace baton
