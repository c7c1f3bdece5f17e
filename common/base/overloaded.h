#pragma once

namespace baton {

// Combines several function objects into one for std::visit, which then calls the function that
// takes the variant's current alternative.
//
//   std::visit(Overloaded{[](const A& a) { ... }, [](const B& b) { ... }}, variant);
template <class... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};
template <class... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;

}  // namespace baton
