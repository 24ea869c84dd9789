#include "tune/internal/result_files.hpp"

#include "libactor/file.hpp"
#include "tune/internal/format.hpp"
#include "tune/naming.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <span>
#include <system_error>
#include <utility>

namespace troupe::tune::internal {
namespace {

constexpr std::int64_t kAll = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kTailBytes = 16 * 1024;  // holds the last row, nearly always

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

Result<Fd> open_for_writing(const std::filesystem::path& path, int flags = 0) {
  Fd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | flags, 0644));
  if (!file) return errno_error("open", path);
  return file;
}

Result<std::int64_t> size_of(const Fd& file, const std::filesystem::path& path) {
  struct stat info {};
  if (::fstat(file.value(), &info) != 0) return errno_error("look at", path);
  return static_cast<std::int64_t>(info.st_size);
}

/// Takes back what a failed write may have left. Should this fail too, the next write still begins
/// at `size`.
void cut(const Fd& file, std::int64_t size) {
  const int saved = errno;
  if (::ftruncate(file.value(), size) != 0) errno = saved;
  errno = saved;
}

/// The whole file; empty when there is none.
Result<std::string> read_or_empty(const std::filesystem::path& path) {
  auto text = read_bounded(path, kAll);
  if (!text && code_of(text.error()) == Errc::not_found) return std::string();
  return text;
}

std::int64_t iteration_of(const TrialResult& row) {
  return static_cast<std::int64_t>(row.number(kTrainingIteration).value_or(0));
}

/// Calls `use(line, row)` for each whole line. What follows the last newline is half a line that a
/// killed process left, and so is a last line that can't be read.
template <class Use>
Result<void> for_each_row(std::string_view text, const std::filesystem::path& path, Use&& use) {
  std::int64_t number = 0;
  while (true) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return {};
    const std::string_view line = text.substr(0, end + 1);
    text.remove_prefix(end + 1);
    number += 1;
    auto parsed = parse_result_line(line);
    if (!parsed && text.empty()) return {};
    if (!parsed)
      return with_context(parsed.error(), fmt::format("{}: line {}", path.string(), number));
    use(line, std::move(parsed->row));
  }
}

}  // namespace

// --- CsvColumns -------------------------------------------------------------------------------

bool CsvColumns::append(std::string& out, const TrialResult& row) {
  const std::size_t before = columns_.size();
  cells_.assign(before, nullptr);
  std::size_t next = 0;  // rows of a trial have the same keys in the same order, nearly always
  for (const auto& [key, value] : row) {
    if (is_config(key)) continue;
    if (next >= columns_.size() || columns_[next] != key) {
      const auto [found, is_new] = index_.try_emplace(key, columns_.size());
      if (is_new) {
        columns_.push_back(key);
        cells_.push_back(nullptr);
      }
      next = found->second;
    }
    cells_[next++] = &value;
  }
  for (std::size_t i = 0; i < cells_.size(); ++i) {
    if (i > 0) out += ',';
    if (cells_[i] != nullptr) append_csv(out, *cells_[i]);
  }
  out += '\n';
  return columns_.size() > before;
}

void CsvColumns::append_header(std::string& out, std::size_t from) const {
  for (std::size_t i = from; i < columns_.size(); ++i) {
    if (i > 0) out += ',';
    append_csv_text(out, columns_[i]);
  }
}

void CsvColumns::shrink(std::size_t size) {
  while (columns_.size() > size) {
    index_.erase(columns_.back());
    columns_.pop_back();
  }
}

// --- TrialFiles -------------------------------------------------------------------------------

Result<std::unique_ptr<TrialFiles>> TrialFiles::open(std::filesystem::path folder,
                                                     const Config& config) {
  std::unique_ptr<TrialFiles> files(new TrialFiles(std::move(folder)));
  std::error_code failed;
  std::filesystem::create_directory(files->folder_, failed);  // what is above it may be away only
  if (failed)
    return make_error(Errc::io, "make " + files->folder_.string() + ": " + failed.message());
  if (auto set = files->set_config(config); !set) return set.error();
  if (auto loaded = files->load(kAll); !loaded) return loaded.error();
  return files;
}

Result<void> TrialFiles::set_config(const Config& config) {
  config_json_ = config.to_json();
  params_json_ = config.to_json(2) + "\n";
  return write_params();
}

Result<void> TrialFiles::write_params() {
  const auto path = folder_ / "params.json";
  const auto there = read_or_empty(path);
  if (there && *there == params_json_) return {};
  return write_atomically(path, params_json_, {.durable = false});
}

Result<void> TrialFiles::load(std::int64_t last_iteration) {
  close();
  const auto text = read_or_empty(json_path());
  if (!text) return text.error();

  std::string kept;
  std::vector<TrialResult> rows;
  auto read = for_each_row(*text, json_path(), [&](std::string_view line, TrialResult row) {
    if (iteration_of(row) > last_iteration) return;
    kept += line;
    rows.push_back(std::move(row));
  });
  if (!read) return read;

  columns_ = {};
  std::string csv;
  for (const auto& row : rows) columns_.append(csv, row);  // now all columns are known
  csv.clear();
  if (!rows.empty()) {
    columns_.append_header(csv, 0);
    csv += '\n';
  }
  for (const auto& row : rows) columns_.append(csv, row);

  if (kept != *text)
    if (auto done = write_atomically(json_path(), kept, {.durable = false}); !done) return done;
  const auto old_csv = read_or_empty(csv_path());
  if (!old_csv || csv != *old_csv)
    if (auto done = write_atomically(csv_path(), csv, {.durable = false}); !done) return done;
  json_.size = static_cast<std::int64_t>(kept.size());
  csv_.size = static_cast<std::int64_t>(csv.size());
  last_iteration_ = rows.empty() ? 0 : iteration_of(rows.back());
  return {};
}

Result<void> TrialFiles::truncate_to(std::int64_t iteration) {
  return iteration >= last_iteration_ ? Result<void>{} : load(iteration);
}

/// Opens both files. If they are not as they were left (somebody removed or changed them), what is
/// there now is taken up.
Result<void> TrialFiles::reopen() {
  std::error_code ignored;  // opening will tell
  if (std::filesystem::create_directory(folder_, ignored))
    if (auto written = write_params(); !written) return written;
  for (bool again = false;; again = true) {
    auto json = open_for_writing(json_path());
    if (!json) return json.error();
    auto csv = open_for_writing(csv_path());
    if (!csv) return csv.error();
    const auto json_size = size_of(*json, json_path());
    if (!json_size) return json_size.error();
    const auto csv_size = size_of(*csv, csv_path());
    if (!csv_size) return csv_size.error();
    if (*json_size == json_.size && *csv_size == csv_.size) {
      json_.open = std::move(*json);
      csv_.open = std::move(*csv);
      return {};
    }
    if (again)
      return make_error(Errc::io, folder_.string() + ": somebody else is writing in this folder");
    if (auto loaded = load(kAll); !loaded) return loaded;
  }
}

Result<void> TrialFiles::append(const TrialResult& row) {
  if (!json_.open)
    if (auto opened = reopen(); !opened) return opened;
  line_.clear();
  record_.clear();
  append_row_json(line_, row, config_json_);
  line_ += '\n';
  const std::size_t columns_before = columns_.size();
  bool widen = columns_.append(record_, row);
  if (columns_before == 0) {
    std::string header;
    columns_.append_header(header, 0);
    record_.insert(0, header + '\n');
    widen = false;
  }
  if (auto written = write(widen, columns_before); !written) {
    columns_.shrink(columns_before);
    close();  // the next try looks anew at what is there
    return written;
  }
  last_iteration_ = iteration_of(row);
  return {};
}

/// The row in `line_` and `record_`, in both files or in none.
Result<void> TrialFiles::write(bool widen, std::size_t columns_before) {
  if (!write_fully_at(json_.open.value(), bytes_of(line_), json_.size)) {
    const Error error = errno_error("write", json_path());
    cut(json_.open, json_.size);
    return error;
  }
  Result<void> written;
  if (widen) {
    written = rewrite_csv(columns_before);
  } else if (!write_fully_at(csv_.open.value(), bytes_of(record_), csv_.size)) {
    written = errno_error("write", csv_path());
    cut(csv_.open, csv_.size);
  }
  if (written) written = check_still_there();
  if (!written) {
    cut(json_.open, json_.size);
    return written;
  }
  json_.size += static_cast<std::int64_t>(line_.size());
  csv_.size += static_cast<std::int64_t>(record_.size());
  return {};
}

/// Gives the records that are there the new columns, by a comma for each. Afterwards `csv_.size` is
/// where the record of this row begins.
Result<void> TrialFiles::rewrite_csv(std::size_t columns_before) {
  const auto old = read_or_empty(csv_path());
  if (!old) return old.error();
  std::string header_end, text;
  columns_.append_header(header_end, columns_before);
  const std::string commas(columns_.size() - columns_before, ',');
  bool quoted = false, in_header = true;
  for (const char c : std::string_view(*old).substr(0, static_cast<std::size_t>(csv_.size))) {
    if (c == '"') quoted = !quoted;
    if (c == '\n' && !quoted) text += std::exchange(in_header, false) ? header_end : commas;
    text += c;
  }
  const auto size = static_cast<std::int64_t>(text.size());
  text += record_;
  if (auto done = write_atomically(csv_path(), text, {.durable = false}); !done) return done;
  auto opened = open_for_writing(csv_path());
  if (!opened) return opened.error();
  csv_.open = std::move(*opened);
  csv_.size = size;
  return {};
}

/// Writes to a file that was removed succeed, and nobody would ever see them.
Result<void> TrialFiles::check_still_there() const {
  for (const auto* file : {&json_, &csv_}) {
    struct stat info {};
    if (::fstat(file->open.value(), &info) == 0 && info.st_nlink == 0)
      return make_error(Errc::io, (file == &json_ ? json_path() : csv_path()).string() +
                                      ": was removed while it was being written");
  }
  return {};
}

Result<void> TrialFiles::append_error(std::int64_t n, std::string_view text, Clock::WallTime now) {
  const auto path = folder_ / "error.txt";
  auto file = open_for_writing(path, O_APPEND);
  if (!file) return file.error();
  const auto size = size_of(*file, path);
  if (!size) return size.error();
  const std::string entry =
      fmt::format("Failure # {} (occurred at {})\n{}\n", n, date_for_name(now), text);
  if (write_fully(file->value(), bytes_of(entry))) return {};
  const Error error = errno_error("write", path);
  cut(*file, *size);
  return error;
}

Result<void> TrialFiles::sync() {
  for (const auto* file : {&json_, &csv_})
    if (file->open && ::fdatasync(file->open.value()) != 0)
      return errno_error("sync", file == &json_ ? json_path() : csv_path());
  return {};
}

void TrialFiles::close() {
  json_.open.reset();
  csv_.open.reset();
}

// --- reading ----------------------------------------------------------------------------------

Result<std::vector<TrialResult>> read_results(const std::filesystem::path& folder) {
  const auto path = folder / "result.json";
  const auto text = read_or_empty(path);
  if (!text) return text.error();
  std::vector<TrialResult> rows;
  auto read = for_each_row(
      *text, path, [&](std::string_view, TrialResult row) { rows.push_back(std::move(row)); });
  if (!read) return read.error();
  return rows;
}

Result<std::optional<ResultLine>> read_last_result(const std::filesystem::path& folder) {
  const auto path = folder / "result.json";
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file && errno == ENOENT) return std::optional<ResultLine>{};
  if (!file) return errno_error("open", path);
  const auto size = size_of(file, path);
  if (!size) return size.error();

  for (std::int64_t window = kTailBytes;; window *= 8) {
    const std::int64_t begin = std::max<std::int64_t>(0, *size - window);
    std::string tail(static_cast<std::size_t>(*size - begin), '\0');
    const ssize_t got = ::pread(file.value(), tail.data(), tail.size(), begin);
    if (got < 0) return errno_error("read", path);
    tail.resize(static_cast<std::size_t>(got));

    std::string_view rest(tail);
    while (true) {  // from the last line to the one before, until one can be read
      rest = rest.substr(0, rest.rfind('\n') == std::string_view::npos ? 0 : rest.rfind('\n'));
      const std::size_t start = rest.rfind('\n');
      if (start == std::string_view::npos && begin > 0) break;  // it may begin before the window
      if (rest.empty()) return std::optional<ResultLine>{};
      const auto line = start == std::string_view::npos ? rest : rest.substr(start + 1);
      if (auto parsed = parse_result_line(line)) return std::optional(std::move(*parsed));
    }
  }
}

}  // namespace troupe::tune::internal
