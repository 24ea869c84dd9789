#include "libactor/checkpoint.hpp"

#include "libactor/clock.hpp"
#include "libactor/file.hpp"
#include "libactor/internal/checkpoint_format.hpp"
#include "libactor/limits.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <set>

namespace troupe {

namespace format = internal::checkpoint_format;
using format::kCheckpointFile;
using internal::CheckpointPoint;

namespace {

/// Blobs are summed and copied in pieces that stay in the processor's cache in between.
constexpr std::size_t kPieceBytes = std::size_t{256} << 10;

struct FreeXxh3 {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};
using Xxh3 = std::unique_ptr<XXH3_state_t, FreeXxh3>;

std::array<std::uint8_t, 16> digest_of(const XXH3_state_t* state) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state));
  std::array<std::uint8_t, 16> sum{};
  std::memcpy(sum.data(), canonical.digest, sum.size());
  return sum;
}

[[noreturn]] void misuse(std::string text) {
  throw Exception(make_error(Errc::bad_request, std::move(text)));
}

std::filesystem::path without_slash(const std::filesystem::path& path) {
  return path.has_filename() ? path : path.parent_path();
}

std::filesystem::path parent_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

/// Renames within `folder_fd`, never over something that is there.
bool rename_new(int folder_fd, const std::string& from, const std::string& to) {
  if (::renameat2(folder_fd, from.c_str(), folder_fd, to.c_str(), RENAME_NOREPLACE) == 0)
    return true;
  // File systems without that flag (NFS): a folder never replaces one that holds something.
  return errno == EINVAL && ::renameat(folder_fd, from.c_str(), folder_fd, to.c_str()) == 0;
}

}  // namespace

// --- writing --------------------------------------------------------------------------------

struct CheckpointWriter::Impl {
  std::filesystem::path folder = {};  ///< the final name
  std::string temp = {};              ///< the name until `commit`, in the same parent
  Fd parent = {};
  Fd temp_folder = {};
  Fd file = {};
  format::Uuid uuid = {};
  format::Contents contents = {};
  std::set<std::string, std::less<>> names = {};
  std::string prefix = {};
  bool in_memory = false;
  std::vector<std::byte> buffer = {};  ///< small blobs on their way to the file
  std::uint64_t end = 0;               ///< of the file, with what is in `buffer`
  Xxh3 sum{XXH3_createState()};
  Error error = {};  ///< the first one
  bool published = false;
  internal::CheckpointHook hook = nullptr;

  ~Impl() {
    // A folder that was never published is of no use to anybody.
    if (parent && !temp.empty() && !published) (void)remove_tree_at(parent.value(), temp);
  }

  void at(CheckpointPoint point) const {
    if (hook != nullptr) hook(point);
  }

  void fail(std::string_view doing) {
    if (!error) error = errno_error(doing, folder);
  }

  void flush() {
    if (error || buffer.empty()) return;
    if (!write_fully(file.value(), buffer)) fail("write checkpoint");
    buffer.clear();
  }

  void append(std::span<const std::byte> bytes) {
    end += bytes.size();
    if (bytes.size() < kPieceBytes) {
      buffer.insert(buffer.end(), bytes.begin(), bytes.end());
      if (buffer.size() >= kPieceBytes) flush();
      return;
    }
    flush();
    if (!error && !write_fully(file.value(), bytes)) fail("write checkpoint");
  }

  void pad_to(std::uint64_t offset) { append(std::vector<std::byte>(offset - end)); }

  void add(std::string_view local_name, DType dtype, std::vector<std::uint64_t> shape,
           std::span<const std::byte> bytes) {
    const std::string name = prefix + std::string(local_name);
    if (local_name.empty() || name.size() > limits::kNameBytes ||
        name.find('\0') != std::string::npos)
      misuse("checkpoint: the name '" + name.substr(0, 64) +
             "' is empty, longer than 1024 bytes or holds a NUL");
    if (!names.emplace(name).second) misuse("checkpoint: the name '" + name + "' is there already");
    if (error) return;
    CheckpointEntry entry{name, dtype, std::move(shape), 0, bytes.size()};
    pad_to(format::align_blob(end, entry.size));
    entry.offset = end;
    XXH3_128bits_reset(sum.get());
    while (!bytes.empty() && !error) {
      const auto piece = bytes.first(std::min(bytes.size(), kPieceBytes));
      XXH3_128bits_update(sum.get(), piece.data(), piece.size());
      append(piece);
      bytes = bytes.subspan(piece.size());
    }
    entry.xxh3 = digest_of(sum.get());
    contents.blobs.push_back(std::move(entry));
  }

  /// Table of contents and footer, then the header, which makes the file one.
  void seal() {
    auto& blobs = contents.blobs;
    std::sort(blobs.begin(), blobs.end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });
    const auto toc = format::encode_contents(contents);
    if (!toc) {
      error = with_context(toc.error(), "write checkpoint " + folder.string());
      return;
    }
    pad_to(format::align_blob(end, 0));
    const format::Frame frame{end, toc->size(), uuid};
    append(*toc);
    append(format::encode_footer(frame, *toc));
    flush();
    if (error) return;
    at(CheckpointPoint::written);
    if (in_memory && ::ftruncate(file.value(), static_cast<::off_t>(end)) != 0)
      return fail("write checkpoint");
    if (!write_fully_at(file.value(), format::encode_header(frame), 0)) fail("write checkpoint");
  }

  void publish() {
    // After a failed fsync the kernel may have dropped the pages: this file is lost, never retried.
    if (::fsync(file.value()) != 0 || ::fsync(temp_folder.value()) != 0)
      return fail("write to disk: checkpoint");
    at(CheckpointPoint::synced);
    if (!rename_new(parent.value(), temp, folder.filename().string()))
      return fail("publish checkpoint");
    published = true;
    at(CheckpointPoint::renamed);
    if (::fsync(parent.value()) != 0) return fail("write to disk: folder of checkpoint");
    at(CheckpointPoint::published);
  }
};

CheckpointWriter::CheckpointWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CheckpointWriter::~CheckpointWriter() = default;

Result<std::unique_ptr<CheckpointWriter>> CheckpointWriter::begin(
    const std::filesystem::path& folder, CheckpointInfo info, internal::CheckpointHook hook) {
  auto impl = std::make_unique<Impl>();
  impl->folder = without_slash(folder);
  impl->hook = hook;
  impl->uuid = format::make_uuid();
  impl->contents.writer = "troupe " TROUPE_VERSION;
  impl->contents.info = std::move(info);
  impl->contents.wall_time_ns =
      std::chrono::nanoseconds(SystemClock().wall().time_since_epoch()).count();
  auto parent = open_folder(parent_of(impl->folder));
  if (!parent) return with_context(parent.error(), "begin checkpoint " + folder.string());
  impl->parent = std::move(*parent);
  struct stat there {};
  if (::fstatat(impl->parent.value(), impl->folder.filename().c_str(), &there,
                AT_SYMLINK_NOFOLLOW) == 0)
    return make_error(Errc::bad_request,
                      "begin checkpoint " + folder.string() + ": something is there already");
  const std::string temp = impl->folder.filename().string() + ".tmp-" + format::to_hex(impl->uuid);
  if (::mkdirat(impl->parent.value(), temp.c_str(), 0700) != 0)
    return errno_error("begin checkpoint", folder);
  impl->temp = temp;
  impl->at(CheckpointPoint::begun);
  impl->temp_folder = Fd(::openat(impl->parent.value(), temp.c_str(),
                                  O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!impl->temp_folder) return errno_error("begin checkpoint", folder);
  impl->file = Fd(::openat(impl->temp_folder.value(), std::string(kCheckpointFile).c_str(),
                           O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  // The lock says that the writer lives: clean_checkpoints leaves its folder alone.
  if (!impl->file || ::flock(impl->file.value(), LOCK_EX | LOCK_NB) != 0)
    return errno_error("begin checkpoint", folder);
  impl->pad_to(format::kHeaderBytes);
  return std::unique_ptr<CheckpointWriter>(new CheckpointWriter(std::move(impl)));
}

Result<std::unique_ptr<CheckpointWriter>> CheckpointWriter::begin(Fd memory, std::string label,
                                                                  CheckpointInfo info) {
  auto impl = std::make_unique<Impl>();
  impl->folder = std::move(label);
  impl->in_memory = true;
  impl->uuid = format::make_uuid();
  impl->contents.writer = "troupe " TROUPE_VERSION;
  impl->contents.info = std::move(info);
  impl->contents.wall_time_ns =
      std::chrono::nanoseconds(SystemClock().wall().time_since_epoch()).count();
  impl->file = std::move(memory);
  // Without its header it is none, whatever else is left of the one before.
  const std::array<std::byte, format::kHeaderBytes> nothing{};
  if (::lseek(impl->file.value(), 0, SEEK_SET) != 0 ||
      !write_fully_at(impl->file.value(), nothing, 0))
    return errno_error("begin checkpoint", impl->folder);
  impl->pad_to(format::kHeaderBytes);
  return std::unique_ptr<CheckpointWriter>(new CheckpointWriter(std::move(impl)));
}

CheckpointWriter::Within::Within(CheckpointWriter& out, std::string_view prefix)
    : out_(out), size_before_(out.impl_->prefix.size()) {
  out_.impl_->prefix += prefix;
}
CheckpointWriter::Within::~Within() { out_.impl_->prefix.resize(size_before_); }

Result<void> CheckpointWriter::copy(const CheckpointReader& from, std::string_view name) {
  const CheckpointEntry* blob = from.find(name);
  if (blob == nullptr)
    return make_error(Errc::not_found,
                      from.folder().string() + ": has no blob '" + std::string(name) + "'");
  std::vector<std::byte> content(blob->size);
  if (auto got = from.read(name, content); !got) return got;
  impl_->add(name, blob->dtype, blob->shape, content);
  return {};
}

void CheckpointWriter::tensor(std::string_view name, DType dtype,
                              std::span<const std::int64_t> shape,
                              std::span<const std::byte> bytes) {
  const std::vector<std::uint64_t> lengths(shape.begin(), shape.end());
  if (dtype == DType::none || format::bytes_of(dtype, lengths) != bytes.size())
    misuse("checkpoint: tensor '" + std::string(name) + "' has " + std::to_string(bytes.size()) +
           " bytes, which does not follow from its type and shape");
  impl_->add(name, dtype, lengths, bytes);
}

void CheckpointWriter::bytes(std::string_view name, std::span<const std::byte> bytes) {
  impl_->add(name, DType::none, {}, bytes);
}

void CheckpointWriter::text(std::string_view name, std::string_view text) {
  impl_->add(name, DType::none, {}, std::as_bytes(std::span(text)));
}

void CheckpointWriter::number(std::string_view name, double value) {
  impl_->add(name, DType::float64, {}, std::as_bytes(std::span(&value, 1)));
}

void CheckpointWriter::integer(std::string_view name, std::int64_t value) {
  impl_->add(name, DType::int64, {}, std::as_bytes(std::span(&value, 1)));
}

Result<std::string> CheckpointWriter::commit() {
  if (impl_->published)
    return make_error(Errc::bad_request,
                      "checkpoint " + impl_->folder.string() + " is committed already");
  if (!impl_->error) impl_->seal();
  if (!impl_->error && impl_->in_memory) impl_->published = true;
  if (!impl_->error && !impl_->in_memory) impl_->publish();
  if (impl_->error) return impl_->error;
  return format::to_hex(impl_->uuid);
}

// --- reading --------------------------------------------------------------------------------

struct CheckpointReader::Impl {
  std::filesystem::path folder = {};
  Fd file = {};
  std::string uuid = {};
  std::uint64_t toc_offset = 0;
  format::Contents contents = {};

  bool in_memory = false;

  std::string path() const {
    return in_memory ? folder.string() : (folder / kCheckpointFile).string();
  }

  /// False at the end of the file too (errno 0): it was cut while we have it open.
  bool read_at(std::span<std::byte> out, std::uint64_t offset) const {
    while (!out.empty()) {
      errno = 0;
      const ssize_t got =
          ::pread(file.value(), out.data(), out.size(), static_cast<::off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return false;
      out = out.subspan(static_cast<std::size_t>(got));
      offset += static_cast<std::uint64_t>(got);
    }
    return true;
  }

  Error read_error(const std::string& what) const {
    if (errno == 0)
      return make_error(Errc::corrupt, path() + ": " + what + "the file has become shorter");
    return with_context(errno_error("read", path()), what);
  }

  Result<void> load() {
    struct stat info {};
    if (::fstat(file.value(), &info) != 0) return errno_error("read", path());
    const auto size = static_cast<std::uint64_t>(info.st_size);
    if (size < format::kHeaderBytes + format::kFooterBytes)
      return make_error(Errc::corrupt,
                        path() + ": is only " + std::to_string(size) + " bytes long");
    std::array<std::byte, format::kHeaderBytes> header{};
    std::array<std::byte, format::kFooterBytes> footer{};
    if (!read_at(header, 0) || !read_at(footer, size - footer.size())) return read_error("");
    const auto frame = format::decode_frame(header, footer, size);
    if (!frame) return with_context(frame.error(), path());
    std::vector<std::byte> toc(frame->toc_size);
    if (!read_at(toc, frame->toc_offset)) return read_error("");
    auto decoded = format::decode_contents(toc, footer, *frame);
    if (!decoded) return with_context(decoded.error(), path());
    contents = std::move(*decoded);
    uuid = format::to_hex(frame->uuid);
    toc_offset = frame->toc_offset;
    return {};
  }

  /// Gives the blob in pieces to `take`, each in a buffer from `buffer_at(offset in the blob)`.
  Result<void> read_blob(const CheckpointEntry& blob,
                         const std::function<std::byte*(std::uint64_t)>& buffer_at) const {
    const Xxh3 sum{XXH3_createState()};
    XXH3_128bits_reset(sum.get());
    for (std::uint64_t done = 0; done < blob.size;) {
      const std::span piece(buffer_at(done),
                            std::min<std::uint64_t>(blob.size - done, kPieceBytes));
      if (!read_at(piece, blob.offset + done)) return read_error("blob '" + blob.name + "': ");
      XXH3_128bits_update(sum.get(), piece.data(), piece.size());
      done += piece.size();
    }
    if (digest_of(sum.get()) != blob.xxh3)
      return make_error(Errc::corrupt, path() + ": blob '" + blob.name + "': checksum differs");
    return {};
  }

  /// The bytes between blobs are padding: few, and zero.
  Result<void> check_gap(std::uint64_t from, std::uint64_t to) const {
    if (to - from >= format::kLargeBlobAlignment)
      return make_error(Errc::corrupt, path() + ": a hole between the blobs");
    std::vector<std::byte> gap(to - from);
    if (!read_at(gap, from)) return read_error("");
    if (std::any_of(gap.begin(), gap.end(), [](std::byte b) { return b != std::byte{0}; }))
      return make_error(Errc::corrupt, path() + ": something is written between the blobs");
    return {};
  }
};

CheckpointReader::CheckpointReader(std::shared_ptr<const Impl> impl)
    : impl_(std::move(impl)), entries_(impl_, &impl_->contents.blobs) {}

Result<CheckpointReader> CheckpointReader::open(const std::filesystem::path& folder) {
  auto impl = std::make_shared<Impl>();
  impl->folder = without_slash(folder);
  auto opened = open_folder(impl->folder);
  if (!opened) return opened.error();
  auto file = open_regular(opened->value(), std::string(kCheckpointFile), impl->path());
  if (!file) return file.error();
  impl->file = std::move(*file);
  if (auto loaded = impl->load(); !loaded) return loaded.error();
  return CheckpointReader(std::move(impl));
}

Result<CheckpointReader> CheckpointReader::open(Fd memory, std::string label) {
  auto impl = std::make_shared<Impl>();
  impl->folder = std::move(label);
  impl->in_memory = true;
  impl->file = std::move(memory);
  if (auto loaded = impl->load(); !loaded) return loaded.error();
  return CheckpointReader(std::move(impl));
}

CheckpointReader CheckpointReader::below(std::string_view prefix) const {
  auto entries = std::make_shared<std::vector<CheckpointEntry>>();
  for (const auto& entry : *entries_)
    if (entry.name.starts_with(prefix)) {
      entries->push_back(entry);
      entries->back().name.erase(0, prefix.size());
    }
  CheckpointReader part = *this;
  part.prefix_ += prefix;
  part.entries_ = std::move(entries);
  return part;
}

const CheckpointInfo& CheckpointReader::info() const { return impl_->contents.info; }
const std::string& CheckpointReader::uuid() const { return impl_->uuid; }
const std::filesystem::path& CheckpointReader::folder() const { return impl_->folder; }
const std::vector<CheckpointEntry>& CheckpointReader::entries() const { return *entries_; }
bool CheckpointReader::has(std::string_view name) const { return find(name) != nullptr; }

const CheckpointEntry* CheckpointReader::find(std::string_view name) const {
  const auto at =
      std::lower_bound(entries_->begin(), entries_->end(), name,
                       [](const CheckpointEntry& e, std::string_view n) { return e.name < n; });
  return at != entries_->end() && at->name == name ? &*at : nullptr;
}

Result<void> CheckpointReader::read(std::string_view name, std::span<std::byte> out) const {
  const CheckpointEntry* blob = find(name);
  if (blob == nullptr)
    return make_error(Errc::not_found,
                      impl_->path() + ": has no blob '" + prefix_ + std::string(name) + "'");
  if (blob->size != out.size())
    return make_error(Errc::bad_request, impl_->path() + ": blob '" + blob->name + "' has " +
                                             std::to_string(blob->size) + " bytes, not " +
                                             std::to_string(out.size()));
  return impl_->read_blob(*blob, [out](std::uint64_t done) { return out.data() + done; });
}

std::vector<std::byte> CheckpointReader::bytes(std::string_view name) const {
  const CheckpointEntry* blob = find(name);
  std::vector<std::byte> out(blob == nullptr ? 0 : blob->size);
  unwrap(read(name, out));
  return out;
}

std::string CheckpointReader::text(std::string_view name) const {
  const CheckpointEntry* blob = find(name);
  std::string out(blob == nullptr ? 0 : blob->size, '\0');
  unwrap(read(name, std::as_writable_bytes(std::span(out))));
  return out;
}

double CheckpointReader::number(std::string_view name) const {
  double value = 0;
  read_scalar(name, DType::float64, std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

std::int64_t CheckpointReader::integer(std::string_view name) const {
  std::int64_t value = 0;
  read_scalar(name, DType::int64, std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

void CheckpointReader::read_scalar(std::string_view name, DType dtype,
                                   std::span<std::byte> out) const {
  if (const CheckpointEntry* blob = find(name);
      blob != nullptr && (blob->dtype != dtype || !blob->shape.empty()))
    misuse(impl_->path() + ": blob '" + blob->name + "' is not " +
           (dtype == DType::int64 ? "an integer" : "a number"));
  unwrap(read(name, out));
}

Result<void> CheckpointReader::verify() const {
  std::vector<const CheckpointEntry*> order;
  for (const auto& blob : impl_->contents.blobs) order.push_back(&blob);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::pair(a->offset, a->size) < std::pair(b->offset, b->size);
  });
  std::vector<std::byte> piece(kPieceBytes);
  std::uint64_t end = format::kHeaderBytes;
  for (const auto* blob : order) {
    if (auto ok = impl_->check_gap(end, blob->offset); !ok) return ok;
    if (auto ok = impl_->read_blob(*blob, [&piece](std::uint64_t) { return piece.data(); }); !ok)
      return ok;
    end = blob->offset + blob->size;
  }
  return impl_->check_gap(end, impl_->toc_offset);
}

}  // namespace troupe
