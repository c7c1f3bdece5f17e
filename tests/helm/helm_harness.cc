#include "tests/helm/helm_harness.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include <sys/wait.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/base/scratch_folder.h"

namespace baton {

namespace fs = std::filesystem;

std::string Read(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

int Count(absl::string_view text, absl::string_view piece) {
  int count = 0;
  for (size_t at = text.find(piece); at != text.npos; at = text.find(piece, at + 1)) ++count;
  return count;
}

std::set<std::string> FlagsOf(const std::string& program) {
  const Ended help = RunShell(absl::StrCat(BATON_BINARY_DIR "/", program, " --help"));
  std::set<std::string> flags;
  for (absl::string_view word : absl::StrSplit(help.output, absl::ByAnyChar(" \n=,;:()[]"))) {
    if (absl::StartsWith(word, "--")) flags.emplace(word);
  }
  return flags;
}

void HelmTest::SetUp() {
  const char* named = std::getenv("HELM");
  helm_ = named == nullptr ? "helm" : named;
  if (RunShell(absl::StrCat(helm_, " version --short")).exit_status != 0)
    GTEST_SKIP() << "no helm here: neither $HELM nor one in $PATH runs";
}

Ended HelmTest::Template(const std::string& arguments) const {
  return RunShell(absl::StrCat(helm_, " template baton ", kChart.string(),
                               " --namespace serving --kube-version 1.31.0 ", arguments));
}

Ended HelmTest::TemplateWhere(const std::string& file,
                              const std::vector<std::pair<std::string, std::string>>& found,
                              const std::string& arguments) const {
  const ScratchFolder folder;
  fs::copy(kChart, folder.path(), fs::copy_options::recursive);
  std::string text = Read(kChart / "templates" / file);
  for (const auto& [lookup, object] : found) {
    EXPECT_EQ(Count(text, lookup), 1) << lookup;
    const std::string literal = absl::StrCat("(fromJson `", object, "`)");
    text = absl::StrReplaceAll(text, {{lookup, literal}});
  }
  folder.Write("templates/" + file, text);
  return RunShell(
      absl::StrCat(helm_, " template baton ", folder.path(), " --kube-version 1.31.0 ", arguments));
}

}  // namespace baton
