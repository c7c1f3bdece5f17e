#include "tests/goodput/plot/svg.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace baton {
namespace {

constexpr absl::string_view kReplacement = "\xef\xbf\xbd";

// Returns the number of bytes of the UTF-8 character at the start of `text`, or 0 if it is no
// character that XML allows.
size_t CharacterBytes(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return first >= 0x20 || first == '\t' || first == '\n' || first == '\r' ? 1 : 0;
  const size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < bytes) return 0;
  uint32_t code = first & (0x7f >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3f);
  }
  const bool shortest = code >= (bytes == 4 ? 0x10000u : bytes == 3 ? 0x800u : 0x80u);
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  return shortest && !surrogate && code <= 0x10ffff && (code & 0xfffe) != 0xfffe ? bytes : 0;
}

struct Color {
  const char* name;
  const char* light;
  const char* dark;
};

// Colours that carry data have a contrast of at least 3 to 1 with the surface; text has 4.5 to 1.
constexpr Color kPalette[] = {
    {"surface", "#ffffff", "#161b22"}, {"page", "#f6f7f9", "#0d1117"},
    {"ink", "#1c2128", "#e6edf3"},     {"soft", "#57606a", "#9aa5b1"},
    {"grid", "#e3e6ea", "#2a313a"},    {"rule", "#8c959f", "#6e7781"},
    {"target", "#a40e26", "#ff8182"},  {"good", "#1a7f37", "#4ac26b"},
    {"warn", "#9a6700", "#e3b341"},    {"s0", "#0072b2", "#56b4e9"},
    {"s1", "#d55e00", "#ff8f3f"},      {"s2", "#008f68", "#2bc79a"},
    {"s3", "#b0568a", "#e59ac4"},      {"s4", "#a87900", "#f0c54a"},
    {"s5", "#6b5bb5", "#a99bf0"},      {"s6", "#6e7781", "#98a2ad"},
    {"s7", "#2c89a0", "#7fd6e8"},
};

const Color& Named(absl::string_view name) {
  return *std::find_if(std::begin(kPalette), std::end(kPalette),
                       [&](const Color& color) { return name == color.name; });
}

// Returns two CSS declarations of `property`: first a plain colour, for programs that do not know
// CSS custom properties, then the custom property `name`.
std::string Paint(absl::string_view property, absl::string_view name) {
  return absl::StrCat(property, ":", Named(name).light, ";", property, ":var(--", name, ");");
}

}  // namespace

std::string XmlEscaped(absl::string_view text) {
  std::string escaped;
  while (!text.empty()) {
    const size_t bytes = CharacterBytes(text);
    if (bytes == 0) {
      absl::StrAppend(&escaped, kReplacement);
    } else if (text[0] == '<') {
      absl::StrAppend(&escaped, "&lt;");
    } else if (text[0] == '>') {
      absl::StrAppend(&escaped, "&gt;");
    } else if (text[0] == '&') {
      absl::StrAppend(&escaped, "&amp;");
    } else if (text[0] == '"') {
      absl::StrAppend(&escaped, "&quot;");
    } else if (text[0] == '\'') {
      absl::StrAppend(&escaped, "&#39;");
    } else {
      absl::StrAppend(&escaped, text.substr(0, bytes));
    }
    text.remove_prefix(std::max<size_t>(bytes, 1));
  }
  return escaped;
}

std::string SvgNumber(double value) {
  if (!std::isfinite(value)) return "0";
  std::string text = absl::StrFormat("%.2f", value);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

double TextWidth(absl::string_view text, double font_px) {
  double ems = 0;
  for (const char c : text) {
    if ((c & 0xc0) == 0x80) continue;  // A continuation byte of a UTF-8 character.
    if (absl::string_view("iljtf.,:;|!'()[] I").find(c) != absl::string_view::npos) {
      ems += 0.34;
    } else if (absl::string_view("mwMW%@").find(c) != absl::string_view::npos) {
      ems += 0.92;
    } else if (c >= 'A' && c <= 'Z') {
      ems += 0.7;
    } else {
      ems += 0.58;
    }
  }
  return ems * font_px;
}

std::string FittedText(absl::string_view text, double font_px, double width) {
  if (TextWidth(text, font_px) <= width) return std::string(text);
  while (!text.empty() && TextWidth(text, font_px) + font_px > width) {
    text.remove_suffix(1);
    while (!text.empty() && (text.back() & 0xc0) == 0x80) text.remove_suffix(1);
    if (!text.empty() && (text.back() & 0x80) != 0) text.remove_suffix(1);
  }
  return absl::StrCat(text, "…");
}

std::string PlotStyle() {
  std::string light, dark;
  for (const Color& color : kPalette) {
    absl::StrAppend(&light, "--", color.name, ":", color.light, ";");
    absl::StrAppend(&dark, "--", color.name, ":", color.dark, ";");
  }
  std::string style = absl::StrCat(
      ":root{color-scheme:light dark;", light, "}\n", "@media (prefers-color-scheme:dark){:root{",
      dark, "}}\n",
      ".plot{font-family:system-ui,-apple-system,\"Segoe UI\",Roboto,\"DejaVu Sans\","
      "sans-serif;font-size:13px;font-variant-numeric:tabular-nums}\n",
      ".plot text{", Paint("fill", "ink"), "}\n.plot .surface{", Paint("fill", "surface"),
      "}\n.plot .heading{font-size:15px;font-weight:600}\n", ".plot .soft{", Paint("fill", "soft"),
      "}\n.plot .small{font-size:12px}\n", ".plot .grid{", Paint("stroke", "grid"),
      "stroke-width:1}\n.plot .rule{", Paint("stroke", "rule"), "stroke-width:1}\n.plot .target{",
      Paint("stroke", "target"), "stroke-width:1.5;stroke-dasharray:5 3}\n", ".plot .target-text{",
      Paint("fill", "target"), "font-size:12px}\n",
      ".plot .line{fill:none;stroke-width:2.25;stroke-linejoin:round}\n",
      ".plot .thin{stroke-width:1.5}\n.plot .dash1{stroke-dasharray:7 3}\n",
      ".plot .dash2{stroke-dasharray:2 3}\n.plot .band{opacity:.16;stroke:none}\n",
      ".plot .whisker{", Paint("stroke", "ink"), "stroke-width:1.5}\n", ".plot .halo{",
      Paint("stroke", "surface"), "stroke-width:4;stroke-linecap:square}\n",
      ".plot .over{paint-order:stroke;stroke-width:5;", Paint("stroke", "surface"), "}\n",
      ".plot .edge{", Paint("stroke", "surface"), "stroke-width:1}\n");
  for (int i = 0; i < kColors; ++i) {
    const std::string name = absl::StrCat("s", i);
    absl::StrAppend(&style, ".plot .", name, "{", Paint("stroke", name), "}.plot .f", i, "{",
                    Paint("fill", name), "}\n");
  }
  return style;
}

SvgCanvas::SvgCanvas(double width, double height, absl::string_view title)
    : width_(width), height_(height), title_(title) {}

void SvgCanvas::Line(double x1, double y1, double x2, double y2, absl::string_view css) {
  absl::StrAppend(&body_, "<line x1=\"", SvgNumber(x1), "\" y1=\"", SvgNumber(y1), "\" x2=\"",
                  SvgNumber(x2), "\" y2=\"", SvgNumber(y2), "\" class=\"", css, "\"/>\n");
}

void SvgCanvas::Rect(double x, double y, double width, double height, absl::string_view css,
                     absl::string_view tooltip) {
  absl::StrAppend(&body_, "<rect x=\"", SvgNumber(x), "\" y=\"", SvgNumber(y), "\" width=\"",
                  SvgNumber(std::max(0.0, width)), "\" height=\"", SvgNumber(std::max(0.0, height)),
                  "\" class=\"", css, "\"");
  absl::StrAppend(&body_, tooltip.empty()
                              ? "/>\n"
                              : absl::StrCat("><title>", XmlEscaped(tooltip), "</title></rect>\n"));
}

void SvgCanvas::Path(const std::vector<std::pair<double, double>>& points, absl::string_view css,
                     bool closed) {
  if (points.size() < 2) return;
  std::string d;
  for (size_t i = 0; i < points.size(); ++i) {
    absl::StrAppend(&d, i == 0 ? "M" : "L", SvgNumber(points[i].first), " ",
                    SvgNumber(points[i].second));
  }
  absl::StrAppend(&body_, "<path d=\"", d, closed ? "Z" : "", "\" class=\"", css, "\"/>\n");
}

void SvgCanvas::Marker(double x, double y, int shape, absl::string_view css,
                       absl::string_view tooltip) {
  const auto at = [&](double dx, double dy) {
    return absl::StrCat(SvgNumber(x + dx), " ", SvgNumber(y + dy));
  };
  std::string d;
  switch (shape % 4) {
    case 0:
      d = absl::StrCat("M", at(-4, 0), "a4 4 0 1 0 8 0a4 4 0 1 0 -8 0Z");
      break;
    case 1:
      d = absl::StrCat("M", at(-3.5, -3.5), "h7v7h-7Z");
      break;
    case 2:
      d = absl::StrCat("M", at(0, -5), "L", at(5, 0), "L", at(0, 5), "L", at(-5, 0), "Z");
      break;
    default:
      d = absl::StrCat("M", at(0, -5), "L", at(4.5, 3.5), "L", at(-4.5, 3.5), "Z");
  }
  absl::StrAppend(&body_, "<path d=\"", d, "\" class=\"", css, "\"");
  absl::StrAppend(&body_, tooltip.empty()
                              ? "/>\n"
                              : absl::StrCat("><title>", XmlEscaped(tooltip), "</title></path>\n"));
}

void SvgCanvas::Text(double x, double y, absl::string_view text, absl::string_view css,
                     Anchor anchor) {
  absl::StrAppend(&body_, "<text x=\"", SvgNumber(x), "\" y=\"", SvgNumber(y), "\"");
  if (anchor != Anchor::kStart) {
    absl::StrAppend(&body_, " text-anchor=\"", anchor == Anchor::kEnd ? "end" : "middle", "\"");
  }
  if (!css.empty()) absl::StrAppend(&body_, " class=\"", css, "\"");
  absl::StrAppend(&body_, ">", XmlEscaped(text), "</text>\n");
}

std::string SvgCanvas::Svg(absl::string_view attributes, absl::string_view head) const {
  return absl::StrCat("<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"plot\" role=\"img\" ",
                      "viewBox=\"0 0 ", SvgNumber(width_), " ", SvgNumber(height_), "\"",
                      attributes, ">\n<title>", XmlEscaped(title_), "</title>\n", head, body_,
                      "</svg>\n");
}

std::string SvgCanvas::Inline() const { return Svg("", ""); }

std::string SvgCanvas::Standalone() const {
  // Factor by which the plot is enlarged where it stands alone, as in a README. A phone shows the
  // plot smaller.
  constexpr double kScale = 1.35;
  return Svg(absl::StrCat(" width=\"", SvgNumber(width_ * kScale), "\" height=\"",
                          SvgNumber(height_ * kScale), "\""),
             absl::StrCat("<style>\n", PlotStyle(), "</style>\n<rect width=\"", SvgNumber(width_),
                          "\" height=\"", SvgNumber(height_), "\" rx=\"6\" class=\"surface\"/>\n"));
}

}  // namespace baton
