#include "common/tokenizer/unicode_form.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <vector>

#include <utf8proc.h>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/tokenizer/utf8.h"

namespace baton {
namespace {

// Characters that are copied unchanged, and across which nothing is reordered or composed:
//   - combining marks, and characters with a decomposition, that came after Unicode 9;
//   - the two halves of U+11938, the only composition that came after Unicode 9;
//   - U+11A7, which composes with nothing, but which utf8proc 2.8 would join to a Hangul syllable
//     before it.
struct Range {
  char32_t first, last;
};
constexpr Range kBarriers[] = {
    {0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},
    {0xC3C, 0xC3C},     {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x11A7, 0x11A7},
    {0x1715, 0x1715},   {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},   {0x32FF, 0x32FF},
    {0xA7F2, 0xA7F4},   {0xA82C, 0xA82C},   {0xAB69, 0xAB69},   {0x10781, 0x107BA},
    {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50},
    {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E},
    {0x11839, 0x1183A}, {0x11930, 0x11930}, {0x11935, 0x11935}, {0x11938, 0x11938},
    {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0}, {0x11A34, 0x11A34},
    {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45},
    {0x11D97, 0x11D97}, {0x11F41, 0x11F42}, {0x16FF0, 0x16FF1}, {0x1E030, 0x1E06D},
    {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF},
    {0x1E4EC, 0x1E4EF}, {0x1F16C, 0x1F16C}, {0x1FBF0, 0x1FBF9}};

bool IsBarrier(char32_t code) {
  const auto after =
      std::upper_bound(std::begin(kBarriers), std::end(kBarriers), code,
                       [](char32_t c, const Range& range) { return c < range.first; });
  return after != std::begin(kBarriers) && code <= std::prev(after)->last;
}

// A run of more characters ends at the next character that nothing before it can compose with.
constexpr size_t kLongRun = 4096;

// A normal form may be this many times as long as the text, and kGrowthBeside bytes longer. In NFD
// Hangul becomes three times as long, and in NFKC a single character may become eleven times as
// long.
constexpr size_t kMaxGrowth = 3;
constexpr size_t kGrowthBeside = 4096;

using Run = std::vector<utf8proc_int32_t>;

int CombiningClass(utf8proc_int32_t code) { return utf8proc_get_property(code)->combining_class; }

// Sorts marks by their combining classes, which are below 256. Marks of one class keep their order.
void SortMarks(Run::iterator begin, Run::iterator end) {
  constexpr ptrdiff_t kFew = 64;
  if (end - begin <= kFew) {
    std::stable_sort(begin, end,
                     [](auto a, auto b) { return CombiningClass(a) < CombiningClass(b); });
    return;
  }
  std::array<size_t, 257> place{};  // index of the next mark of each class
  for (auto mark = begin; mark != end; ++mark) ++place[CombiningClass(*mark) + 1];
  for (size_t i = 1; i < place.size(); ++i) place[i] += place[i - 1];
  Run sorted(end - begin);
  for (auto mark = begin; mark != end; ++mark) sorted[place[CombiningClass(*mark)]++] = *mark;
  std::copy(sorted.begin(), sorted.end(), begin);
}

// Puts the decomposed characters of `run` into canonical order, and composes them if `compose`.
// Appends the result to `out` and clears `run`.
void FinishRun(bool compose, Run* run, std::string* out) {
  // Sorts here, because utf8proc uses insertion sort, which is too slow for a megabyte of marks.
  for (auto begin = run->begin(); begin != run->end();) {
    if (CombiningClass(*begin) == 0) {
      ++begin;
      continue;
    }
    const auto end =
        std::find_if(begin, run->end(), [](auto code) { return CombiningClass(code) == 0; });
    SortMarks(begin, end);
    begin = end;
  }
  auto size = static_cast<utf8proc_ssize_t>(run->size());
  if (compose) {
    size = utf8proc_normalize_utf32(
        run->data(), size, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  }
  for (utf8proc_ssize_t i = 0; i < size; ++i) AppendUtf8((*run)[i], out);
  run->clear();
}

}  // namespace

absl::StatusOr<std::string> NormalizeUnicode(UnicodeForm form, absl::string_view text,
                                             EncodeStop* stop) {
  const bool compose = form == UnicodeForm::kNfc || form == UnicodeForm::kNfkc;
  const bool compat = form == UnicodeForm::kNfkc || form == UnicodeForm::kNfkd;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE |
                                                      (compat ? UTF8PROC_COMPAT : 0));
  const size_t max_size = kMaxGrowth * text.size() + kGrowthBeside;
  std::string out;
  out.reserve(text.size());
  Run run;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = DecodeUtf8(text.data() + at);
    at += c.bytes;
    RETURN_IF_ERROR(stop->Worked(c.bytes));
    if (c.code < 0x80) {
      if (run.size() > kLongRun) FinishRun(compose, &run, &out);
      run.push_back(static_cast<utf8proc_int32_t>(c.code));
      continue;
    }
    if (IsBarrier(c.code)) {
      FinishRun(compose, &run, &out);
      AppendUtf8(c.code, &out);
      continue;
    }
    utf8proc_int32_t parts[32];
    int last_boundary_class = 0;
    const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c.code), parts,
                                               std::size(parts), options, &last_boundary_class);
    BATON_CHECK(count >= 0 && count <= static_cast<utf8proc_ssize_t>(std::size(parts))) << count;
    run.insert(run.end(), parts, parts + count);
    // Characters of a run will take at least a byte each, and few of those of long runs only one.
    if (out.size() + 2 * run.size() > max_size) {
      return absl::InvalidArgumentError(absl::StrCat("the text grows to more than ", kMaxGrowth,
                                                     " times its ", text.size(),
                                                     " bytes when the tokeniser normalises it"));
    }
  }
  FinishRun(compose, &run, &out);
  return out;
}

unsigned char FirstByteChangedBy(UnicodeForm form) {
  switch (form) {
    case UnicodeForm::kNfc:
      // The first byte of U+0300. No character below U+0300 changes or composes.
      return 0xCC;
    case UnicodeForm::kNfd:
      return 0xC3;  // first byte of U+00C0
    default:
      return 0xC2;  // first byte of U+00A0
  }
}

}  // namespace baton
