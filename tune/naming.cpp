#include "tune/naming.hpp"

#include "tune/internal/format.hpp"
#include "tune/random.hpp"

#include <fmt/format.h>

namespace troupe::tune {
namespace {

constexpr std::size_t kMaxNameBytes = 130;  // a file name has 255 at most; date and suffix follow
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

/// Bytes of the UTF-8 character that `text` begins with; 0 when it begins with none.
std::size_t character_bytes(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const std::size_t count = byte(0) < 0x80             ? 1
                            : (byte(0) & 0xe0) == 0xc0 ? 2
                            : (byte(0) & 0xf0) == 0xe0 ? 3
                            : (byte(0) & 0xf8) == 0xf0 ? 4
                                                       : 0;
  if (count > text.size()) return 0;
  for (std::size_t i = 1; i < count; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  return count;
}

/// Fit for a file name, cut between two characters.
std::string sanitised(std::string_view text) {
  constexpr std::string_view kForbidden = "/\\()[]{}<>\x7f";
  std::string name;
  while (!text.empty()) {
    const std::size_t count = character_bytes(text);
    const bool forbidden = count == 0 || static_cast<unsigned char>(text[0]) < 0x20 ||
                           kForbidden.find(text[0]) != kForbidden.npos;
    if (name.size() + (forbidden ? 1 : count) > kMaxNameBytes) break;
    name += forbidden ? std::string_view("_") : text.substr(0, count);
    text.remove_prefix(forbidden ? 1 : count);
  }
  return name;
}

}  // namespace

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

}  // namespace troupe::tune
