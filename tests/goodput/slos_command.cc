#include "tests/goodput/slos_command.h"

#include <cstdio>
#include <filesystem>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/program.h"
#include "tests/goodput/results/slo_file.h"
#include "tests/goodput/slo_folder.h"

namespace baton {
namespace {

std::string TargetText(const std::optional<SloTarget>& target) {
  if (!target.has_value()) return "-";
  if (target->is_multiple) return absl::StrFormat("%gx", target->value);
  return target->value < 1 ? absl::StrFormat("%g ms", target->value * 1e3)
                           : absl::StrFormat("%g s", target->value);
}

int ListSlos(const std::vector<std::string>&) {
  const std::vector<std::string> files = FindSloFiles(SloFolders());
  if (files.empty()) {
    RefuseToStart("no SLO was found; $BATON_SLO can name a folder that holds some");
  }
  absl::PrintF("%-20s %8s %8s %8s  %s\n", "name", "TTFT", "TPOT", "total", "about");
  for (const std::string& file : files) {
    const absl::StatusOr<SloFile> slo = ReadSloFile(file);
    if (!slo.ok()) {
      std::fprintf(stderr, "baton-goodput: %s\n", std::string(slo.status().message()).c_str());
      return kExitFailed;
    }
    absl::PrintF("%-20s %8s %8s %8s  %s\n", std::filesystem::path(file).stem().string(),
                 TargetText(slo->ttft), TargetText(slo->tpot), TargetText(slo->e2e), slo->about);
  }
  std::puts(
      "A target such as 10x is that multiple of the latency of an idle server, which is measured "
      "first.");
  return 0;
}

}  // namespace

Command SlosCommand() {
  return {.name = "slos",
          .usage = "baton-goodput slos: lists the latency targets that --slo knows by name.",
          .flags = {},
          .min_words = 0,
          .max_words = 0,
          .run = ListSlos};
}

}  // namespace baton
