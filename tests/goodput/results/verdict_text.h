#pragma once

#include <string>

#include "tests/goodput/results/record.h"
#include "tests/goodput/results/verdict.h"

namespace baton {

// Returns the verdict for people: a table of about thirty lines that ends in a newline.
std::string VerdictText(const RunResult& run, const Verdict& verdict);

}  // namespace baton
