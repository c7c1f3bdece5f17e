#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace baton {

// `text` for XML and HTML, between tags or inside a quoted attribute. What XML can't hold (control
// characters, bytes that are no UTF-8) becomes U+FFFD.
std::string XmlEscaped(absl::string_view text);

// A coordinate or a size with at most two decimals, the same on every machine. 0 for what is not
// finite.
std::string SvgNumber(double value);

// What `text` takes in pixels at `font_px`, for layout: no font is at hand, so each character
// counts as wide as it is in the broader of the common sans-serif fonts.
double TextWidth(absl::string_view text, double font_px);
// `text` cut, with an ellipsis, to what fits into `width` pixels.
std::string FittedText(absl::string_view text, double font_px, double width);

// The colours of pages and plots as CSS custom properties, light and (where the reader prefers it)
// dark, and the classes that SvgCanvas draws with. Series colours are those of Okabe and Ito
// (2008), which colour-blind readers can tell apart, darkened or lightened for contrast with the
// surface.
std::string PlotStyle();
// Series colours there are; a class is taken modulo this.
inline constexpr int kColors = 8;

enum class Anchor { kStart, kMiddle, kEnd };

// Draws one SVG. Sizes are in its own pixels; it scales to the width it is given. Everything that
// is text is escaped here. Classes are those of PlotStyle().
class SvgCanvas {
 public:
  // `title` is what a screen reader says instead of the picture.
  SvgCanvas(double width, double height, absl::string_view title);

  void Line(double x1, double y1, double x2, double y2, absl::string_view css);
  void Rect(double x, double y, double width, double height, absl::string_view css,
            absl::string_view tooltip = "");
  // A line through `points`, closed to an area if `closed`. Nothing for fewer than two points.
  void Path(const std::vector<std::pair<double, double>>& points, absl::string_view css,
            bool closed = false);
  // Shape 0 to 3: circle, square, diamond, triangle.
  void Marker(double x, double y, int shape, absl::string_view css, absl::string_view tooltip = "");
  void Text(double x, double y, absl::string_view text, absl::string_view css,
            Anchor anchor = Anchor::kStart);

  double width() const { return width_; }
  double height() const { return height_; }

  // For a page that brings PlotStyle() itself.
  std::string Inline() const;
  // A file of its own: with style and background, so that it reads on any page in either theme.
  std::string Standalone() const;

 private:
  std::string Svg(absl::string_view attributes, absl::string_view head) const;

  double width_, height_;
  std::string title_;
  std::string body_;
};

}  // namespace baton
