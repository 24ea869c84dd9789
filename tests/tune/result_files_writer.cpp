// result_files_writer FOLDER: a trial's files with everything that is awkward for their readers;
// tests/tune/pandas_test.py reads them.
#include "tune/internal/result_files.hpp"

#include <cmath>
#include <cstdio>
#include <limits>

using namespace troupe;
using namespace troupe::tune;

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const double inf = std::numeric_limits<double>::infinity();
  const auto files =
      tune::internal::TrialFiles::open(argv[1], {{"lr", 0.1}, {"augment", {{"flip", true}}}});
  if (!files) return fail(files.error());
  for (const TrialResult& row : {
           TrialResult{{"loss", 0.1 + 0.2}, {"note", "a,\"b\"\nc"}, {"trial_id", "a00e12_00000"}},
           TrialResult{{"loss", std::nan("")}, {"note", "=cmd()"}, {"trial_id", "a00e12_00000"}},
           TrialResult{{"loss", -inf}, {"late", {{"x", 4}}}, {"trial_id", "a00e12_00000"}},
       })
    if (auto written = (*files)->append(row); !written) return fail(written.error());
  return 0;
}
