#pragma once

namespace baton {

// CSS rules of the page. They use the colours of PlotStyle().
extern const char kPageStyle[];

}  // namespace baton
