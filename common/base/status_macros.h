#pragma once

#include <utility>

// RETURN_IF_ERROR and ASSIGN_OR_RETURN return early from a function that returns a Status or
// StatusOr. RETURN_IF_ERROR also accepts other types that have ok(), such as grpc::Status, where
// the function returns that type.

// Returns `expression`, a status, from the enclosing function unless the status is OK.
#define RETURN_IF_ERROR(...)                                       \
  do {                                                             \
    if (auto&& baton_status = (__VA_ARGS__); !baton_status.ok()) { \
      return baton_status;                                         \
    }                                                              \
  } while (false)

// Evaluates an expression that gives a StatusOr. Returns its status from the enclosing function if
// it is an error, and otherwise initializes or assigns `target` with its value:
//   ASSIGN_OR_RETURN(const Config config, ReadConfig(path));
// `target` has no comma outside parentheses. The macro is more than one statement, so it can't be
// the body of an `if` or a loop without braces.
#define ASSIGN_OR_RETURN(target, ...) \
  BATON_ASSIGN_OR_RETURN(BATON_JOIN(baton_status_or_, __LINE__), target, (__VA_ARGS__))

#define BATON_ASSIGN_OR_RETURN(result, target, expression) \
  auto result = expression;                                \
  if (!result.ok()) return std::move(result).status();     \
  target = *std::move(result)

#define BATON_JOIN(a, b) BATON_JOIN_AGAIN(a, b)
#define BATON_JOIN_AGAIN(a, b) a##b
