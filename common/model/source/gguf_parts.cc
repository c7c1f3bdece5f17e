#include "common/model/source/gguf_parts.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

constexpr int64_t kMaxParts = 1000;

}  // namespace

absl::StatusOr<GgufParts> GgufParts::Open(const std::string& path) {
  ASSIGN_OR_RETURN(auto file, GgufFile::Open(path));
  GgufParts parts;
  parts.files_.push_back(std::move(file));
  const auto* const count = parts.first().Find<int64_t>("split.count");
  if (count == nullptr || *count <= 1) return parts;
  if (*count > kMaxParts) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": setting split.count is ", *count, "; expected at most ", kMaxParts));
  }
  const std::string end = absl::StrFormat("-00001-of-%05d.gguf", *count);
  if (!absl::EndsWith(path, end)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is one of ", *count,
                                                   " parts, and not the first by its name; give "
                                                   "the file whose name ends with ",
                                                   end));
  }
  const std::string begin = path.substr(0, path.size() - end.size());
  for (int64_t part = 2; part <= *count; ++part) {
    auto next =
        GgufFile::Open(absl::StrCat(begin, absl::StrFormat("-%05d-of-%05d.gguf", part, *count)));
    if (absl::IsNotFound(next.status())) {
      return absl::NotFoundError(absl::StrCat(next.status().message(), "; it is part ", part,
                                              " of ", *count,
                                              " of the model: put all into one folder"));
    }
    RETURN_IF_ERROR(next.status());
    parts.files_.push_back(*std::move(next));
  }
  return parts;
}

const WeightTensor* GgufParts::FindTensor(const std::string& name) const {
  for (const auto& file : files_) {
    const auto found = file->tensors().find(name);
    if (found != file->tensors().end()) return &found->second;
  }
  return nullptr;
}

}  // namespace baton
