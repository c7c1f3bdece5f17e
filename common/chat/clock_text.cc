#include <ctime>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "common/chat/interpreter.h"

namespace baton {

absl::StatusOr<ChatValue> FormatClock(const OriginText& format, absl::Time now, absl::TimeZone zone,
                                      RenderMeter* meter) {
  const std::tm time = absl::ToTM(now, zone);
  TextBuilder out(meter);
  for (size_t at = 0; at < format.size() && meter->ok();) {
    if (format.code(at) != '%' || at + 1 == format.size()) {
      out.Append(format[at++]);
      continue;
    }
    // Flags of the C library, such as %-d, come before the letter. Widths are not taken: they would
    // make long texts.
    std::string field = "%";
    size_t letter = at + 1;
    while (letter + 1 < format.size() && format.code(letter) < 0x80 &&
           absl::StrContains("-_^#EO", static_cast<char>(format.code(letter)))) {
      field.push_back(static_cast<char>(format.code(letter++)));
    }
    const char32_t code = format.code(letter);
    if (code == 'f') {
      out.Append(absl::StrFormat("%06d", absl::ToInt64Microseconds(now - absl::UnixEpoch()) -
                                             absl::ToUnixSeconds(now) * 1'000'000));
    } else if (code == 'z' || code == 'Z') {
      // Python's clock has no time zone here.
    } else if (code < 0x80 && absl::StrContains("aAbBcCdDeFgGhHIjklmMnpPrRsStTuUVwWxXyY",
                                                static_cast<char>(code))) {
      field.push_back(static_cast<char>(code));
      char buffer[128];
      out.Append(
          absl::string_view(buffer, std::strftime(buffer, sizeof(buffer), field.c_str(), &time)));
    } else if (code == '%') {
      out.Append(format[letter]);
    } else {
      out.Append(format, at, letter + 1);
    }
    at = letter + 1;
  }
  return out.Finish();
}

}  // namespace baton
