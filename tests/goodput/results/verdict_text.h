#pragma once

#include <string>

#include "tests/goodput/results/record.h"
#include "tests/goodput/results/verdict.h"

namespace baton {

// The verdict for people: a table of about thirty lines, ending in a newline.
std::string VerdictText(const RunResult& run, const Verdict& verdict);

}  // namespace baton
