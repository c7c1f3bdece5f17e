#include "tests/goodput/results/slo_file.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/json.h"
#include "tests/goodput/results/json_text.h"
#include "tests/goodput/results/object_reader.h"

namespace baton {
namespace {

using json = nlohmann::ordered_json;

constexpr absl::string_view kKeys[] = {"name", "about", "sources", "ttft", "tpot", "e2e"};

// Returns the line, counted from 1, on which `key` first appears.
int LineOf(const std::string& text, absl::string_view key) {
  const size_t at = text.find(absl::StrCat("\"", key, "\""));
  if (at == text.npos) return 1;
  return 1 + static_cast<int>(
                 std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(at), '\n'));
}

std::optional<double> Resolved(const std::optional<SloTarget>& target, double unloaded_s) {
  if (!target.has_value()) return std::nullopt;
  return target->is_multiple ? target->value * unloaded_s : target->value;
}

}  // namespace

absl::StatusOr<SloTarget> ParseSloTarget(absl::string_view text) {
  const size_t digits = std::min(text.find_first_not_of("+-.0123456789eE"), text.size());
  const absl::string_view unit = absl::StripAsciiWhitespace(text.substr(digits));
  SloTarget target;
  if (!absl::SimpleAtod(text.substr(0, digits), &target.value) || !std::isfinite(target.value)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", text,
        "' is not a target: a target is a time such as 250ms or 2s, or a multiple such as 10x"));
  }
  if (unit == "ms") {
    target.value /= 1e3;
  } else if (unit == "x") {
    target.is_multiple = true;
  } else if (unit != "s") {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", text, "' has ", unit.empty() ? "no unit" : absl::StrCat("unit '", unit, "'"),
        "; the units are ms, s and x (a multiple of the unloaded latency)"));
  }
  if (target.value <= 0)
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' is not above 0"));
  return target;
}

absl::StatusOr<SloFile> ParseSlo(const std::string& path, const std::string& text) {
  const json all = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (all.is_discarded() || !all.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ":", all.is_discarded() ? LineOfJsonError(text) : 1, ": not a JSON object"));
  }
  const auto refuse = [&](absl::string_view key, absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ":", LineOf(text, key), ": ", key, ": ", why));
  };
  for (const auto& [key, value] : all.items()) {
    if (std::find(std::begin(kKeys), std::end(kKeys), key) == std::end(kKeys))
      return refuse(key, absl::StrCat("no such key; the keys are ", absl::StrJoin(kKeys, ", ")));
  }
  SloFile slo;
  for (const char* key : {"name", "about"}) {
    if (all.contains(key) && !all[key].is_string()) return refuse(key, "it must be a string");
  }
  slo.name = all.contains("name") ? all["name"].get<std::string>() : path;
  if (all.contains("about")) slo.about = all["about"].get<std::string>();
  if (all.contains("sources")) {
    absl::Status status;
    ObjectReader reader(&all, "", &status);
    slo.source = absl::StrJoin(reader.Strings("sources"), "; ");
    if (!status.ok()) return refuse("sources", "it must be an array of strings");
  }
  for (auto [key, target] :
       {std::pair{"ttft", &slo.ttft}, std::pair{"tpot", &slo.tpot}, std::pair{"e2e", &slo.e2e}}) {
    if (!all.contains(key)) continue;
    if (!all[key].is_string()) {
      return refuse(key, absl::StrCat("it is ", all[key].dump(),
                                      "; write it with its unit, such as \"250ms\" or \"10x\""));
    }
    absl::StatusOr<SloTarget> parsed = ParseSloTarget(all[key].get<std::string>());
    if (!parsed.ok()) return refuse(key, parsed.status().message());
    *target = *parsed;
  }
  if (!slo.ttft.has_value() && !slo.tpot.has_value() && !slo.e2e.has_value())
    return absl::InvalidArgumentError(absl::StrCat(path, ": none of ttft, tpot and e2e is there"));
  return slo;
}

absl::StatusOr<SloFile> ReadSloFile(const std::string& path) {
  std::ifstream file(path);
  if (!file)
    return absl::NotFoundError(
        absl::StrCat("can't read the SLO file ", path, ": ", std::strerror(errno)));
  std::stringstream text;
  text << file.rdbuf();
  return ParseSlo(path, text.str());
}

bool SloFile::IsRelative() const {
  for (const auto* target : {&ttft, &tpot, &e2e}) {
    if (target->has_value() && (*target)->is_multiple) return true;
  }
  return false;
}

absl::StatusOr<SloTargets> SloFile::Resolve(const std::optional<UnloadedLatency>& unloaded) const {
  const UnloadedLatency base = unloaded.value_or(UnloadedLatency());
  const uint32_t answer = base.answer_tokens > 0 ? base.answer_tokens : base.output_tokens;
  const double e2e_s = base.ttft_s + base.tpot_s * (std::max(answer, 1u) - 1);
  const bool of_pace = (tpot.has_value() && tpot->is_multiple) ||
                       (e2e.has_value() && e2e->is_multiple && answer > 1);
  if (of_pace && base.tpot_s <= 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        name, ": a multiple of the unloaded TPOT, which is not known: no answer had two tokens"));
  }
  return SloTargets{.name = name,
                    .source = source,
                    .ttft_s = Resolved(ttft, base.ttft_s),
                    .tpot_s = Resolved(tpot, base.tpot_s),
                    .e2e_s = Resolved(e2e, e2e_s)};
}

}  // namespace baton
