#pragma once

#include "libactor/fd.hpp"
#include "libactor/result.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

/// The element type of a tensor blob. Numbers are part of the file format
/// (`libactor/checkpoint.capnp`).
enum class DType : std::uint16_t {
  none = 0,  ///< bytes without a type
  float32 = 1,
  float64 = 2,
  float16 = 3,
  bfloat16 = 4,
  int8 = 5,
  int16 = 6,
  int32 = 7,
  int64 = 8,
  uint8 = 9,
  boolean = 10,
  complex64 = 11,
  complex128 = 12,
};

/// What the file says of itself beside its blobs.
struct CheckpointInfo {
  std::string trial_id = {};
  std::int64_t iteration = 0;  ///< `training_iteration` after which it was written
  double time_total_s = 0;     ///< of the trial, at that iteration
  std::int64_t timesteps_total = 0;
  std::string config_json = {};
  std::string parent_uuid = {};  ///< the checkpoint that the trial was started from, in hex
};

/// One blob of a file, as its table of contents has it.
struct CheckpointEntry {
  std::string name = {};
  DType dtype = DType::none;
  std::vector<std::uint64_t> shape = {};
  std::uint64_t offset = 0;  ///< from the start of the file, bytes
  std::uint64_t size = 0;    ///< bytes
  std::array<std::uint8_t, 16> xxh3 = {};
};

namespace internal {

/// Where a writer stands, in order. Tests end the process at each.
enum class CheckpointPoint {
  begun,      ///< the temporary folder is made
  written,    ///< all but the header
  synced,     ///< the file is whole and on the disk, under its temporary name
  renamed,    ///< under its final name
  published,  ///< and the name is on the disk
};
using CheckpointHook = void (*)(CheckpointPoint);

}  // namespace internal

/// Writes one checkpoint file: named blobs, then a table of contents. User code gets one in
/// `save_checkpoint`.
///
/// Errors are kept: after the first, everything is ignored and `commit` returns it. Throws
/// `Exception` only on misuse by the caller (a name that is taken, empty, longer than 1 KiB or with
/// a NUL; bytes that don't fit type and shape). Blobs go straight to the file, so filling a writer
/// costs about one copy of the state and no memory; `commit` waits for the disk and may be called
/// on another thread, once nothing more is added. Layout and publish order:
/// libactor/CHECKPOINT.md.
class CheckpointWriter {
 public:
  /// Begins `<folder>.tmp-<uuid>` beside `folder`, which must not exist.
  static Result<std::unique_ptr<CheckpointWriter>> begin(const std::filesystem::path& folder,
                                                         CheckpointInfo info,
                                                         internal::CheckpointHook hook = nullptr);
  /// Into `memory`, a memfd, from its beginning, over whatever it holds: a state that outlives its
  /// process as long as another one keeps the memory. It is no checkpoint from here until `commit`
  /// has returned. `label` is for sentences.
  static Result<std::unique_ptr<CheckpointWriter>> begin(Fd memory, std::string label,
                                                         CheckpointInfo info);
  ~CheckpointWriter();  ///< without `commit`, removes what was written
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// A typed array; `bytes` are in C order and are copied before the call returns.
  void tensor(std::string_view name, DType dtype, std::span<const std::int64_t> shape,
              std::span<const std::byte> bytes);
  void bytes(std::string_view name, std::span<const std::byte> bytes);
  void text(std::string_view name, std::string_view text);
  void number(std::string_view name, double value);  ///< kept bit for bit
  void integer(std::string_view name, std::int64_t value);

  /// While it lives, names get `prefix` before them: one writer, several parts.
  class Within {
   public:
    Within(CheckpointWriter& out, std::string_view prefix);
    ~Within();
    Within(const Within&) = delete;
    Within& operator=(const Within&) = delete;

   private:
    CheckpointWriter& out_;
    std::size_t size_before_;
  };

  /// The same blob as another file has, under that name.
  Result<void> copy(const class CheckpointReader& from, std::string_view name);

  /// Publishes the folder: table of contents, fsync, rename, fsync of the parent. When it returns
  /// without error the checkpoint survives a power cut. Returns the file's uuid in hex.
  Result<std::string> commit();

 private:
  struct Impl;
  explicit CheckpointWriter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Reads one checkpoint folder. Everything in the file is checked before it is believed; blobs are
/// verified by their sum when they are read. User code gets one in `load_checkpoint`. Thread-safe;
/// copies are cheap and share the open file, which may be removed meanwhile.
class CheckpointReader {
 public:
  /// Errors: not_found; corrupt (text names the file, and the blob); io.
  static Result<CheckpointReader> open(const std::filesystem::path& folder);
  /// What a writer has committed into a memfd. corrupt: nothing, or not all of it.
  static Result<CheckpointReader> open(Fd memory, std::string label);
  /// The part of the file whose names begin with `prefix`, under names without it.
  CheckpointReader below(std::string_view prefix) const;

  const CheckpointInfo& info() const;
  const std::string& uuid() const;
  const std::filesystem::path& folder() const;
  const std::vector<CheckpointEntry>& entries() const;  ///< sorted by name
  bool has(std::string_view name) const;
  /// nullptr when there is no blob of that name.
  const CheckpointEntry* find(std::string_view name) const;

  /// Copies the blob into `out`, which must have its size; corrupt when the sum differs.
  Result<void> read(std::string_view name, std::span<std::byte> out) const;
  /// For user code; these throw `Exception` with a sentence that names file and blob.
  std::vector<std::byte> bytes(std::string_view name) const;
  std::string text(std::string_view name) const;
  double number(std::string_view name) const;
  std::int64_t integer(std::string_view name) const;

  /// Reads every byte of the file and verifies it.
  Result<void> verify() const;

 private:
  struct Impl;
  explicit CheckpointReader(std::shared_ptr<const Impl> impl);
  void read_scalar(std::string_view name, DType dtype, std::span<std::byte> out) const;
  std::shared_ptr<const Impl> impl_;
  std::shared_ptr<const std::vector<CheckpointEntry>> entries_;
  std::string prefix_ = {};  ///< for sentences
};

}  // namespace troupe
