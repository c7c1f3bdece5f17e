#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "absl/strings/string_view.h"
#include "tests/shell/run_shell.h"

// For tests of the chart.
namespace baton {

inline const std::filesystem::path kChart = BATON_SOURCE_DIR "/helm";
inline const std::filesystem::path kGolden = BATON_SOURCE_DIR "/tests/helm/golden";

// Empty where there is no such file.
std::string Read(const std::filesystem::path& path);

int Count(absl::string_view text, absl::string_view piece);

// What a program documents, as --name.
std::set<std::string> FlagsOf(const std::string& program);

// With $HELM, or the helm of $PATH; skips where there is none.
class HelmTest : public testing::Test {
 protected:
  void SetUp() override;

  // The manifests of the chart as of a Kubernetes that no test depends on.
  Ended Template(const std::string& arguments) const;
  // The same, with a cluster: each lookup of `file`, as it stands there, finds the object beside
  // it.
  Ended TemplateWhere(const std::string& file,
                      const std::vector<std::pair<std::string, std::string>>& found,
                      const std::string& arguments) const;

  std::string helm_;
};

}  // namespace baton
