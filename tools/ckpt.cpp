// ckpt: looks into checkpoints (libactor/CHECKPOINT.md).
//   ckpt list   PATH…   what is in them, without reading the blobs
//   ckpt verify PATH…   reads every byte
// PATH: a checkpoint folder, the file in it, or a folder of checkpoints (a trial's).
// Exit codes: 0 all sound, 1 at least one damaged or unreadable, 2 wrong use or nothing found.
#include "examples/command_line.hpp"
#include "libactor/checkpoint.hpp"
#include "libactor/internal/checkpoint_format.hpp"
#include "libactor/output.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <vector>

using namespace troupe;
namespace fs = std::filesystem;
namespace format = internal::checkpoint_format;

namespace {

const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::none: return "bytes";
    case DType::float32: return "float32";
    case DType::float64: return "float64";
    case DType::float16: return "float16";
    case DType::bfloat16: return "bfloat16";
    case DType::int8: return "int8";
    case DType::int16: return "int16";
    case DType::int32: return "int32";
    case DType::int64: return "int64";
    case DType::uint8: return "uint8";
    case DType::boolean: return "bool";
    case DType::complex64: return "complex64";
    case DType::complex128: return "complex128";
  }
  return "?";
}

/// Names come from a file: what could move a terminal's cursor becomes "?".
std::string printable(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return text;
}

std::string shape_text(const CheckpointEntry& entry) {
  std::string text = "[";
  for (const auto length : entry.shape)
    text += (text.size() > 1 ? ", " : "") + std::to_string(length);
  return text + "]";
}

bool has_checkpoint(const fs::path& folder) {
  std::error_code error;
  return fs::symlink_status(folder / format::kCheckpointFile, error).type() !=
         fs::file_type::not_found;
}

/// The checkpoint folders that a path on the command line means, sorted.
std::vector<fs::path> folders_of(const fs::path& path) {
  std::error_code error, gone;
  if (path.filename() == format::kCheckpointFile && !fs::is_directory(path, error))
    return {path.has_parent_path() ? path.parent_path() : fs::path(".")};
  std::vector<fs::path> folders;
  if (!fs::is_directory(path, error)) return folders;
  if (has_checkpoint(path)) return {path};
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error))
    if (at->symlink_status(gone).type() == fs::file_type::directory && has_checkpoint(at->path()))
      folders.push_back(at->path());
  std::sort(folders.begin(), folders.end());
  return folders;
}

/// Why `folders_of` is empty.
std::string why_none(const fs::path& path) {
  std::error_code error;
  switch (fs::status(path, error).type()) {
    case fs::file_type::not_found: return path.string() + ": there is nothing";
    case fs::file_type::directory:
      return path.string() + ": no checkpoint in this folder, nor in one of its folders";
    case fs::file_type::none: return path.string() + ": " + error.message();
    default:
      return path.string() + ": no checkpoint, which is a folder with a file '" +
             std::string(format::kCheckpointFile) + "' in it; give the folder";
  }
}

nlohmann::json to_json(const CheckpointReader& in) {
  nlohmann::json blobs = nlohmann::json::array();
  for (const auto& entry : in.entries())
    blobs.push_back({{"name", entry.name},
                     {"type", name_of(entry.dtype)},
                     {"shape", entry.shape},
                     {"offset", entry.offset},
                     {"bytes", entry.size}});
  return {{"uuid", in.uuid()},
          {"trial_id", in.info().trial_id},
          {"training_iteration", in.info().iteration},
          {"time_total_s", in.info().time_total_s},
          {"timesteps_total", in.info().timesteps_total},
          {"config", in.info().config_json},
          {"parent_uuid", in.info().parent_uuid},
          {"blobs", blobs}};
}

void print_list(const CheckpointReader& in) {
  std::printf("%s: trial %s, iteration %lld, uuid %s\n", in.folder().c_str(),
              printable(in.info().trial_id).c_str(), static_cast<long long>(in.info().iteration),
              in.uuid().c_str());
  for (const auto& entry : in.entries())
    std::printf("  %-40s %-10s %-20s %12llu bytes\n", printable(entry.name).c_str(),
                name_of(entry.dtype), shape_text(entry).c_str(),
                static_cast<unsigned long long>(entry.size));
}

/// Looks at one checkpoint and tells of it; false when it is not sound.
bool look_at(const fs::path& folder, bool verify, bool json, nlohmann::json& all) {
  const auto reader = CheckpointReader::open(folder);
  Error error = reader ? Error{} : reader.error();
  if (reader && verify)
    if (const auto sound = reader->verify(); !sound) error = sound.error();
  if (json) {
    nlohmann::json one = reader && !verify ? to_json(*reader) : nlohmann::json::object();
    one["folder"] = folder.string();
    one["ok"] = !error;
    if (error) one["error"] = describe(error);
    all.push_back(std::move(one));
  } else if (error) {
    std::printf("%s: DAMAGED: %s\n", folder.c_str(), printable(describe(error)).c_str());
  } else if (verify) {
    std::printf("%s: sound (%zu blobs)\n", folder.c_str(), reader->entries().size());
  } else {
    print_list(*reader);
  }
  return !error;
}

}  // namespace

int main(int argc, char** argv) {
  guard_output();
  CLI::App app("Looks into checkpoints.");
  app.require_subcommand(1);
  std::vector<std::string> paths;
  bool json = false;
  auto* list = app.add_subcommand("list", "What is in them");
  auto* verify = app.add_subcommand("verify", "Reads every byte");
  for (auto* command : {list, verify}) {
    command->add_option("path", paths, "A checkpoint, or a folder of checkpoints")->required();
    command->add_flag("--json", json, "For programs");
  }
  examples::parse_or_exit(app, argc, argv);

  nlohmann::json all = nlohmann::json::array();
  bool sound = true;
  bool missing = false;
  for (const auto& path : paths) {
    const auto folders = folders_of(path);
    if (folders.empty()) {
      std::fprintf(stderr, "ckpt: %s\n", printable(why_none(path)).c_str());
      missing = true;
    }
    for (const auto& folder : folders)
      sound = look_at(folder, verify->parsed(), json, all) && sound;
  }
  if (json)
    std::printf("%s\n", all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
  return !sound ? 1 : missing ? 2 : 0;
}
