#pragma once

namespace baton {

// One function object made of several, for std::visit: each alternative of a variant is given to
// the function that takes it.
//
//   std::visit(Overloaded{[](const A& a) { ... }, [](const B& b) { ... }}, variant);
template <class... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};
template <class... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;

}  // namespace baton
