#pragma once

#include "libactor/clock.hpp"
#include "libactor/fd.hpp"
#include "libactor/result.hpp"
#include "tune/config.hpp"
#include "tune/internal/result_line.hpp"
#include "tune/metrics.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace troupe::tune::internal {

/// progress.csv as a form of text: it knows the columns so far, and gives the bytes of the next
/// row.
class CsvColumns {
 public:
  /// Appends `row` as one record. True when it brought new columns: records that were written
  /// before must then be widened.
  bool append(std::string& out, const TrialResult& row);
  /// The names from column `from` on, without a newline; a comma before all but the first column.
  void append_header(std::string& out, std::size_t from) const;
  std::size_t size() const { return columns_.size(); }
  /// Takes back the columns from `size` on, which came with a row that could not be written.
  void shrink(std::size_t size);

 private:
  std::vector<std::string> columns_;
  std::unordered_map<std::string, std::size_t> index_;
  std::vector<const Value*> cells_;  // of the row in hand
};

/// One trial's params.json, result.json, progress.csv and error.txt, written by the experiment's
/// thread.
///
/// result.json is the truth, and progress.csv can be made from it. What `append` returned without
/// error is in both, whatever then happens to this process. An error leaves no half line, and the
/// same row may be appended again. Descriptors are opened by the first `append` and closed by
/// `close`: between them the object is only what it remembers.
class TrialFiles {
 public:
  /// Makes the folder and params.json, and takes up what is there: a half line at the end of
  /// result.json goes, progress.csv is made anew from it. Errors: io; corrupt.
  static Result<std::unique_ptr<TrialFiles>> open(std::filesystem::path folder,
                                                  const Config& config);
  TrialFiles(const TrialFiles&) = delete;
  TrialFiles& operator=(const TrialFiles&) = delete;

  /// row: with the automatic keys, without config.
  Result<void> append(const TrialResult& row);
  /// "Failure # n (occurred at …)" and the text, at the end of error.txt.
  Result<void> append_error(std::int64_t n, std::string_view text, Clock::WallTime now);
  /// Drops the rows with a training_iteration above this: what a resume does with rows that the
  /// journal does not have.
  Result<void> truncate_to(std::int64_t iteration);
  /// training_iteration of the last row; 0 when there is none.
  std::int64_t last_iteration() const { return last_iteration_; }
  /// Another config from the next row on, as after an exploit; writes params.json.
  Result<void> set_config(const Config& config);

  Result<void> sync();  ///< what is written survives a power cut
  void close();

 private:
  struct File {
    Fd open = {};
    std::int64_t size = 0;  // what is known to be whole
  };

  explicit TrialFiles(std::filesystem::path folder) : folder_(std::move(folder)) {}
  std::filesystem::path json_path() const { return folder_ / "result.json"; }
  std::filesystem::path csv_path() const { return folder_ / "progress.csv"; }

  Result<void> write_params();
  Result<void> load(std::int64_t last_iteration);
  Result<void> reopen();
  Result<void> write(bool widen, std::size_t columns_before);
  Result<void> rewrite_csv(std::size_t columns_before);
  Result<void> check_still_there() const;

  std::filesystem::path folder_;
  std::string config_json_;  // in one line
  std::string params_json_;  // indented, sorted
  File json_;
  File csv_;
  CsvColumns columns_;
  std::int64_t last_iteration_ = 0;
  std::string line_, record_;  // kept for their capacity
};

/// All whole rows of a trial's result.json, oldest first; none when there is no file. Errors:
/// corrupt (names file and line), io.
Result<std::vector<TrialResult>> read_results(const std::filesystem::path& folder);

/// The last whole row, without reading the others; nothing when there is none.
Result<std::optional<ResultLine>> read_last_result(const std::filesystem::path& folder);

}  // namespace troupe::tune::internal
