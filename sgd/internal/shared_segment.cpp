#include "sgd/internal/shared_segment.hpp"

#include "libactor/assert.hpp"
#include "libactor/fd.hpp"
#include "libactor/file.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>

namespace troupe::sgd::internal {
namespace {

constexpr std::uint64_t kMagic = 0x3170756f72677274;  // "trgroup1": a new layout, a new number
constexpr std::uint64_t kAlignment = 64;
constexpr std::uint64_t kPage = 4096;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

using Number = std::atomic<std::uint32_t>;
static_assert(Number::is_always_lock_free && sizeof(Number) == 4);  // as futexes are

/// An error, written by one, and complete before it becomes the first.
struct Failure {
  std::uint8_t code;
  std::uint32_t size_bytes;
  std::array<char, limits::kFailureBytes> text;
};

/// What the segment begins with; bells, rings and buffers follow.
struct Header {
  std::uint64_t magic;
  std::uint64_t epoch;
  std::uint64_t size_bytes;
  std::int32_t world_size;
  alignas(64) std::atomic<std::uint64_t> allocated;  // up to here
  alignas(64) Number failures_begun;
  Number first_failure;  // its place + 1; 0: there is none
  std::array<Failure, limits::kFailures> failures;
};

struct Bell {
  alignas(64) Number rung;  // how often
  Number claimed;           // by the one process that is this rank
};

std::uint64_t round_up(std::uint64_t value, std::uint64_t to) { return (value + to - 1) / to * to; }

/// Where what begins, in bytes.
struct Layout {
  explicit Layout(int world_size) {
    const auto ranks = static_cast<std::uint64_t>(world_size);
    bells = round_up(sizeof(Header), kAlignment);
    rings = bells + ranks * sizeof(Bell);
    buffers = round_up(rings + ranks * ranks * sizeof(NoteRing), kPage);
  }
  std::uint64_t bells = 0;
  std::uint64_t rings = 0;
  std::uint64_t buffers = 0;
};

std::uint64_t machine_bytes() {
  return static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

/// Takes pages now: where memory is short that is an error, and later it would be a SIGBUS.
bool take_pages(int fd, std::uint64_t begin, std::uint64_t size_bytes) {
  int failed = 0;
  do {
    failed = ::fallocate(fd, 0, static_cast<off_t>(begin), static_cast<off_t>(size_bytes));
  } while (failed != 0 && errno == EINTR);
  return failed == 0;
}

Error no_memory(std::uint64_t size_bytes) {
  const std::string reason = std::strerror(errno);
  return make_error(Errc::out_of_resources, "shared memory of " + std::to_string(size_bytes) +
                                                " bytes for the ranks of this machine: " + reason);
}

}  // namespace

struct SharedSegment::Mapping {
  Mapping(Fd file, std::byte* begin, std::uint64_t size, int ranks, std::uint64_t number)
      : fd(std::move(file)),
        data(begin),
        size_bytes(size),
        world_size(ranks),
        epoch(number),
        layout(ranks) {}
  ~Mapping() { ::munmap(data, size_bytes); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  static std::byte* map(int fd, std::uint64_t size_bytes) {
    void* data =
        ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (data == MAP_FAILED) return nullptr;
    ::madvise(data, size_bytes, MADV_DONTDUMP);  // a core dump would take pages for all of it
    return static_cast<std::byte*>(data);
  }

  Header& header() const { return *reinterpret_cast<Header*>(data); }
  Bell& bell(int rank) const {
    TROUPE_ASSERT(rank >= 0 && rank < world_size, rank, world_size);
    return reinterpret_cast<Bell*>(data + layout.bells)[rank];
  }

  Fd fd;
  std::byte* data;
  // Read once: the memory may say something else later.
  std::uint64_t size_bytes;
  int world_size;
  std::uint64_t epoch;
  Layout layout;
};

// --- making it ------------------------------------------------------------------------------

Result<SharedSegment> SharedSegment::create(const Options& options) {
  TROUPE_ASSERT(options.world_size >= 1, options.world_size);
  if (options.world_size > limits::kSharedRanks)
    return make_error(Errc::bad_request, std::to_string(options.world_size) +
                                             " ranks in several processes of one machine; there "
                                             "may be " +
                                             std::to_string(limits::kSharedRanks));
  const Layout layout(options.world_size);
  const std::uint64_t size_bytes =
      layout.buffers +
      round_up(options.memory_bytes > 0 ? options.memory_bytes : machine_bytes(), kPage);
  Fd fd(::memfd_create("troupe_group", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd || ::ftruncate(fd.value(), static_cast<off_t>(size_bytes)) != 0 ||
      ::fcntl(fd.value(), F_ADD_SEALS, kSeals) != 0 || !take_pages(fd.value(), 0, layout.buffers))
    return no_memory(size_bytes);
  std::byte* data = Mapping::map(fd.value(), size_bytes);
  if (data == nullptr) return no_memory(size_bytes);
  auto mapping =
      std::make_shared<Mapping>(std::move(fd), data, size_bytes, options.world_size, options.epoch);
  Header& header = mapping->header();  // all zero, as bells and rings must be
  header.epoch = options.epoch;
  header.size_bytes = size_bytes;
  header.world_size = options.world_size;
  header.allocated = layout.buffers;
  header.magic = kMagic;
  return SharedSegment(std::move(mapping));
}

Result<SharedSegment> SharedSegment::open(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd) return errno_error("open shared memory of a group", path);
  const auto foreign = [&path] {
    return make_error(Errc::corrupt, path + " is not the shared memory of a group of ranks");
  };
  struct stat status {};
  const int seals = ::fcntl(fd.value(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals || ::fstat(fd.value(), &status) != 0 ||
      static_cast<std::uint64_t>(status.st_size) < sizeof(Header))
    return foreign();
  const auto size_bytes = static_cast<std::uint64_t>(status.st_size);
  std::byte* data = Mapping::map(fd.value(), size_bytes);
  if (data == nullptr) return no_memory(size_bytes);
  const auto& header = *reinterpret_cast<const Header*>(data);
  const int world_size = header.world_size;
  if (header.magic != kMagic || header.size_bytes != size_bytes || world_size < 1 ||
      world_size > limits::kSharedRanks || Layout(world_size).buffers > size_bytes) {
    ::munmap(data, size_bytes);
    return foreign();
  }
  return SharedSegment(
      std::make_shared<Mapping>(std::move(fd), data, size_bytes, world_size, header.epoch));
}

std::string SharedSegment::path() const {
  return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(mapping_->fd.value());
}

int SharedSegment::world_size() const { return mapping_->world_size; }
std::uint64_t SharedSegment::epoch() const { return mapping_->epoch; }
std::shared_ptr<void> SharedSegment::memory() const { return mapping_; }

// --- the first error ------------------------------------------------------------------------

/// Who is killed in here leaves a place that is never looked at, and the next error takes another.
/// With all places taken somebody else is about to tell.
Error SharedSegment::fail(const Error& error) const {
  Header& header = mapping_->header();
  if (header.first_failure == 0) {
    const std::uint32_t place = header.failures_begun.fetch_add(1);
    if (place < limits::kFailures) {
      Failure& mine = header.failures[place];
      const std::string text = text_of(error).substr(0, mine.text.size());
      mine.code = static_cast<std::uint8_t>(code_of(error));
      mine.size_bytes = static_cast<std::uint32_t>(text.size());
      std::copy(text.begin(), text.end(), mine.text.begin());
      std::uint32_t none = 0;
      header.first_failure.compare_exchange_strong(none, place + 1);
    }
  }
  for (int rank = 0; rank < world_size(); ++rank) ring_bell(rank);
  const Error first = failure();
  return first ? first : error;
}

Error SharedSegment::failure() const {
  const Header& header = mapping_->header();
  const std::uint32_t first = header.first_failure.load();
  if (first == 0) return {};
  const auto garbled = [] {
    return make_error(Errc::corrupt, "a process has overwritten memory that the ranks share");
  };
  if (first > limits::kFailures) return garbled();
  const Failure& failure = header.failures[first - 1];
  const std::uint8_t code = failure.code;
  const std::uint32_t size_bytes = failure.size_bytes;
  if (code < static_cast<std::uint8_t>(Errc::timed_out) ||
      code > static_cast<std::uint8_t>(Errc::cancelled) || size_bytes > failure.text.size())
    return garbled();
  return make_error(static_cast<Errc>(code), std::string(failure.text.data(), size_bytes));
}

// --- notes ----------------------------------------------------------------------------------

bool SharedSegment::claim(int rank) const { return mapping_->bell(rank).claimed.exchange(1) == 0; }

NoteRing& SharedSegment::ring(int from_rank, int to_rank) const {
  const int ranks = world_size();
  TROUPE_ASSERT(from_rank >= 0 && from_rank < ranks && to_rank >= 0 && to_rank < ranks, from_rank,
                to_rank, ranks);
  return reinterpret_cast<NoteRing*>(mapping_->data +
                                     mapping_->layout.rings)[from_rank * ranks + to_rank];
}

std::uint32_t SharedSegment::bell(int rank) const { return mapping_->bell(rank).rung.load(); }

void SharedSegment::ring_bell(int rank) const {
  Number& rung = mapping_->bell(rank).rung;
  rung.fetch_add(1);
  ::syscall(SYS_futex, &rung, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

bool SharedSegment::wait_for_bell(int rank, std::uint32_t seen,
                                  std::chrono::milliseconds limit) const {
  const timespec time{.tv_sec = limit.count() / 1000, .tv_nsec = limit.count() % 1000 * 1'000'000};
  const auto waited =
      ::syscall(SYS_futex, &mapping_->bell(rank).rung, FUTEX_WAIT, seen, &time, nullptr, 0);
  return waited == 0 || errno != ETIMEDOUT;
}

// --- buffers --------------------------------------------------------------------------------

std::span<std::byte> SharedSegment::allocate(std::size_t size_bytes) const {
  const std::uint64_t end = mapping_->size_bytes;
  if (size_bytes == 0 || size_bytes > end) return {};
  const std::uint64_t rounded = round_up(size_bytes, kAlignment);
  auto& allocated = mapping_->header().allocated;
  std::uint64_t begin = allocated.load();
  do {
    if (begin < mapping_->layout.buffers || begin > end || rounded > end - begin ||
        begin % kAlignment != 0)
      return {};
  } while (!allocated.compare_exchange_weak(begin, begin + rounded));
  if (!take_pages(mapping_->fd.value(), begin, rounded)) return {};
  return {mapping_->data + begin, size_bytes};
}

std::uint64_t SharedSegment::address_of(std::span<const std::byte> data) const {
  const auto address = std::bit_cast<std::uint64_t>(data.data());
  const auto begin = std::bit_cast<std::uint64_t>(mapping_->data);
  const std::uint64_t end = begin + mapping_->size_bytes;
  if (address < begin + mapping_->layout.buffers || address > end || data.size() > end - address)
    return 0;
  return address - begin;
}

std::byte* SharedSegment::resolve(std::uint64_t address, std::uint64_t size_bytes) const {
  const std::uint64_t end = std::min(mapping_->header().allocated.load(), mapping_->size_bytes);
  if (address < mapping_->layout.buffers || address > end || size_bytes > end - address)
    return nullptr;
  return mapping_->data + address;
}

}  // namespace troupe::sgd::internal
