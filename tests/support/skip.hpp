#pragma once

#include <string_view>

/// Says that the running test case can't be tried here and why: `if (!have_pandas()) return
/// skip("no pandas");`. ctest shows it as skipped, never as passed.
void skip(std::string_view why);
