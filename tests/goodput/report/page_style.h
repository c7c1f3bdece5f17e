#pragma once

namespace baton {

// The page's own rules, beside PlotStyle(), whose colours they use.
extern const char kPageStyle[];

}  // namespace baton
