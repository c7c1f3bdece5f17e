#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace baton {

// Escapes `text` for XML and HTML, between tags or inside a quoted attribute. Bytes that XML can't
// hold (control characters, invalid UTF-8) become U+FFFD.
std::string XmlEscaped(absl::string_view text);

// Formats a coordinate or a size with at most two decimals, the same on every machine. Returns "0"
// for a value that is not finite.
std::string SvgNumber(double value);

// Estimates the width of `text` in pixels at `font_px`, for layout. No font is available, so each
// character counts as wide as in the broader of the common sans-serif fonts.
double TextWidth(absl::string_view text, double font_px);
// Cuts `text`, with an ellipsis, so that it fits into `width` pixels.
std::string FittedText(absl::string_view text, double font_px, double width);

// Returns the CSS of pages and plots: the colours as custom properties, light or (if the reader
// prefers it) dark, and the classes that SvgCanvas uses. The colours of series are those of Okabe
// and Ito (2008), which colour-blind readers can distinguish. They are darkened or lightened for
// contrast with the surface.
std::string PlotStyle();
// Number of colours for series. A greater colour index begins again at the first colour.
inline constexpr int kColors = 8;

enum class Anchor { kStart, kMiddle, kEnd };

// Draws one SVG picture. Sizes are in the picture's own pixels; the page may scale the picture. All
// text is escaped by this class. CSS classes are those of PlotStyle().
class SvgCanvas {
 public:
  // A screen reader reads `title` instead of the picture.
  SvgCanvas(double width, double height, absl::string_view title);

  void Line(double x1, double y1, double x2, double y2, absl::string_view css);
  void Rect(double x, double y, double width, double height, absl::string_view css,
            absl::string_view tooltip = "");
  // Draws a line through `points`, or a filled area if `closed`. Draws nothing for fewer than two
  // points.
  void Path(const std::vector<std::pair<double, double>>& points, absl::string_view css,
            bool closed = false);
  // Shape 0 to 3: circle, square, diamond, triangle.
  void Marker(double x, double y, int shape, absl::string_view css, absl::string_view tooltip = "");
  void Text(double x, double y, absl::string_view text, absl::string_view css,
            Anchor anchor = Anchor::kStart);

  double width() const { return width_; }
  double height() const { return height_; }

  // Returns the picture for a page that contains PlotStyle() itself.
  std::string Inline() const;
  // Returns the picture as a file of its own, with style and background, so that it is readable on
  // any page in either theme.
  std::string Standalone() const;

 private:
  std::string Svg(absl::string_view attributes, absl::string_view head) const;

  double width_, height_;
  std::string title_;
  std::string body_;
};

}  // namespace baton
