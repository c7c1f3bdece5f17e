#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "absl/strings/string_view.h"
#include "tests/shell/run_shell.h"

// Helpers for tests of the chart.
namespace baton {

inline const std::filesystem::path kChart = BATON_SOURCE_DIR "/helm";
inline const std::filesystem::path kGolden = BATON_SOURCE_DIR "/tests/helm/golden";

// Returns the contents of a file, or an empty text if there is no such file.
std::string Read(const std::filesystem::path& path);

int Count(absl::string_view text, absl::string_view piece);

// Returns the names of the flags that `program` --help lists, each with its two dashes.
std::set<std::string> FlagsOf(const std::string& program);

// Base class of tests that run helm: the command in $HELM, or `helm` from $PATH if $HELM is not
// set. Skips the test if helm can't be run.
class HelmTest : public testing::Test {
 protected:
  void SetUp() override;

  // Renders the chart's manifests for Kubernetes 1.31.0. No test depends on this version, and a
  // --kube-version in `arguments` replaces it.
  Ended Template(const std::string& arguments) const;
  // Renders the chart as in a cluster that has certain objects. Each pair in `found` has the text
  // of a call of `lookup` in templates/`file`, and the object that the call returns, in JSON.
  Ended TemplateWhere(const std::string& file,
                      const std::vector<std::pair<std::string, std::string>>& found,
                      const std::string& arguments) const;

  std::string helm_;
};

}  // namespace baton
