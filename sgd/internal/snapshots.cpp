#include "sgd/internal/snapshots.hpp"

#include "libactor/file.hpp"
#include "libactor/log.hpp"
#include "sgd/internal/limits.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

namespace troupe::sgd::internal {
namespace {

constexpr std::string_view kDescriptorFolder = "/proc/";

Result<Fd> open_memory(const std::string& path, int flags) {
  Fd memory(::open(path.c_str(), flags | O_CLOEXEC));
  if (!memory) return errno_error("open the trainer's memory", path);
  return memory;
}

}  // namespace

Result<SnapshotMemory> SnapshotMemory::make() {
  SnapshotMemory made;
  for (auto& memory : made.memory_) {
    memory = Fd(::memfd_create("troupe-snapshot", MFD_CLOEXEC));
    if (!memory) return errno_error("make memory for", "snapshots");
  }
  return made;
}

std::vector<std::string> SnapshotMemory::paths() const {
  std::vector<std::string> paths;
  for (const auto& memory : memory_)
    paths.push_back(std::string(kDescriptorFolder) + std::to_string(::getpid()) + "/fd/" +
                    std::to_string(memory.value()));
  return paths;
}

std::vector<SnapshotMemory::Kept> SnapshotMemory::kept() const {
  std::vector<Kept> kept;
  for (int place = 0; place < 2; ++place)
    if (auto reader = open_state(paths()[static_cast<std::size_t>(place)]))
      kept.push_back({place, std::move(*reader)});
  std::sort(kept.begin(), kept.end(), [](const Kept& a, const Kept& b) {
    return a.reader.info().iteration > b.reader.info().iteration;
  });
  return kept;
}

Result<CheckpointReader> open_state(const std::string& path) {
  if (!path.starts_with(kDescriptorFolder)) return CheckpointReader::open(path);
  auto memory = open_memory(path, O_RDONLY);
  if (!memory) return memory.error();
  return CheckpointReader::open(std::move(*memory), "the trainer's snapshot");
}

std::string rank_part(int rank) { return "rank/" + std::to_string(rank) + "/"; }

void Snapshots::begin() {
  auto memory = open_memory(plan_.memory[static_cast<std::size_t>(plan_.next_place)], O_RDWR);
  auto writer = !memory ? Result<std::unique_ptr<CheckpointWriter>>(memory.error())
                        : CheckpointWriter::begin(std::move(*memory), "the trainer's snapshot",
                                                  {.iteration = plan_.next_number});
  if (writer)
    writer_ = std::move(*writer);
  else
    log_warn("no snapshot of the training is kept: " + describe(writer.error()));
}

void Snapshots::commit() {
  if (!writer_) return;
  const auto done = writer_->commit();
  writer_.reset();
  if (!done) return log_warn("no snapshot of the training is kept: " + describe(done.error()));
  plan_.next_place = 1 - plan_.next_place;
}

void Snapshots::take(Collectives& collectives, int local_rank,
                     const std::function<void(CheckpointWriter&)>& save_shared,
                     const std::function<void(CheckpointWriter&)>& save_own) {
  const bool leads = local_rank == 0;
  if (leads) {
    const std::lock_guard lock(mutex_);
    begin();
    if (writer_ && plan_.writes_shared) save_shared(*writer_);
  }
  collectives.barrier();  // all are at this step, and the writer is there
  {
    const std::lock_guard lock(mutex_);
    if (writer_) {
      const CheckpointWriter::Within part(*writer_, rank_part(collectives.rank()));
      save_own(*writer_);
    }
  }
  collectives.barrier();  // all have written
  if (!leads) return;
  const std::lock_guard lock(mutex_);
  commit();
  ++plan_.next_number;
}

std::int64_t steps_until_next(std::chrono::nanoseconds step, std::chrono::nanoseconds snapshot) {
  const auto each = std::max<double>(1, static_cast<double>(step.count()));
  const auto by_cost = static_cast<double>(snapshot.count()) / limits::kSnapshotCost / each;
  const auto by_time =
      static_cast<double>(std::chrono::nanoseconds(limits::kSnapshotInterval).count()) / each;
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::max(by_cost, by_time)));
}

}  // namespace troupe::sgd::internal
