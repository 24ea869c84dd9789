#include "tune/naming.hpp"

#include "tune/internal/format.hpp"
#include "tune/random.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <system_error>

namespace troupe::tune {
namespace {

constexpr std::size_t kMaxNameBytes = 130;  // a file name has 255 at most; date and suffix follow
constexpr std::size_t kMaxRunNameBytes = 200;
constexpr std::uint64_t kHeadPurpose = 1;
constexpr std::uint64_t kTrialSeedPurpose = 2;

std::string tag_text(const Value& value) {
  if (value.is_double()) return fmt::format("{:.5g}", value.as_double());
  if (!value.is_list()) return value.text();
  std::string text = "[";
  for (const Value& element : value.as_list())
    text += (text.size() > 1 ? ", " : "") + tag_text(element);
  return text + "]";
}

/// Whether `text` begins with a control character: those of ASCII, and U+0080 to U+009F.
bool is_control(std::string_view text) {
  return static_cast<unsigned char>(text[0]) < 0x20 || text[0] == '\x7f' ||
         (text[0] == '\xc2' && text.size() > 1 && static_cast<unsigned char>(text[1]) < 0xa0);
}

/// Fit for a file name, cut between two characters.
std::string sanitised(std::string_view text) {
  constexpr std::string_view kForbidden = "/\\()[]{}<>";
  std::string name;
  while (!text.empty()) {
    const std::size_t count = internal::utf8_length(text);
    const bool forbidden =
        count == 0 || is_control(text) || kForbidden.find(text[0]) != kForbidden.npos;
    if (name.size() + (forbidden ? 1 : count) > kMaxNameBytes) break;
    name += forbidden ? std::string_view("_") : text.substr(0, count);
    text.remove_prefix(forbidden ? 1 : count);
  }
  return name;
}

}  // namespace

Result<void> check_run_name(std::string_view name) {
  std::string shown;  // a sentence must not carry what it complains of
  std::string_view why;
  for (auto rest = name; !rest.empty();) {
    const std::size_t count = internal::utf8_length(rest);
    const bool control = is_control(rest);
    if (count == 0)
      why = "has bytes that are no UTF-8";
    else if (control)
      why = "has a control character";
    shown += count == 0 || control ? std::string_view("?") : rest.substr(0, count);
    rest.remove_prefix(std::max<std::size_t>(count, 1));
  }
  if (name.empty())
    why = "is empty";
  else if (name.find('/') != name.npos || name == "." || name == "..")
    why = "is a path";
  else if (name.size() > kMaxRunNameBytes)
    why = "is longer than 200 bytes";
  if (why.empty()) return {};
  return make_error(
      Errc::bad_request,
      fmt::format("name '{}' {}; it is to become a folder in local_dir: choose a plain word",
                  shown.substr(0, kMaxRunNameBytes), why));
}

std::string head_from_seed(std::uint64_t seed) {
  Random random(seed, 0, kHeadPurpose);
  const char letter = "abcdef"[random.below(6)];
  return fmt::format("{}{:04x}", letter, random.below(0x10000));
}

std::string trial_id(std::string_view head, std::int64_t index) {
  return fmt::format("{}_{:05}", head, index);
}

std::uint64_t trial_seed(std::uint64_t run_seed, std::int64_t index) {
  return Random(run_seed, static_cast<std::uint64_t>(index), kTrialSeedPurpose).bits();
}

std::string experiment_tag(std::int64_t index,
                           const std::vector<std::pair<std::string, Value>>& resolved) {
  std::string tag = std::to_string(index);
  char separator = '_';
  for (const auto& [path, value] : resolved) {
    std::string text = tag_text(value);
    for (char& c : text)
      if (c == '/') c = '_';
    tag += separator + path.substr(path.rfind('/') + 1) + "=" + text;
    separator = ',';
  }
  return tag;
}

std::string date_for_name(std::chrono::system_clock::time_point time) {
  return internal::format_time(time, "%Y-%m-%d_%H-%M-%S");
}

std::string trial_directory(std::string_view name, std::string_view tag, std::string_view date) {
  return fmt::format("{}_{}", sanitised(fmt::format("{}_{}", name, tag)), date);
}

std::string with_suffix(std::string_view directory, std::uint64_t attempt) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : directory) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return fmt::format("{}_{:04x}", directory, Random(hash, attempt).below(0x10000));
}

Result<std::filesystem::path> results_folder(const std::filesystem::path& chosen) {
  auto folder = chosen;
  const char* home = std::getenv("HOME");
  if (const char* said = std::getenv("TROUPE_RESULT_DIR"); folder.empty() && said) folder = said;
  if (folder.empty() && home && *home) folder = std::filesystem::path(home) / "troupe_results";
  if (folder.empty())
    return make_error(Errc::bad_request,
                      "neither HOME nor TROUPE_RESULT_DIR is set; set one of them, or local_dir");
  std::error_code error;
  const auto absolute = std::filesystem::absolute(folder, error);
  if (!error) return absolute;
  return make_error(Errc::io, "the present folder is gone, and " + folder.string() +
                                  " is relative to it; choose an absolute local_dir");
}

}  // namespace troupe::tune
