// What adding up costs: ranks as threads of one process and as processes of one machine, ours
// beside LibTorch's Gloo, beside Open MPI's shared memory (where mpirun is), and beside the copy
// bandwidth of the machine. --quick: alive or not, no figures. Gloo's ranks are always threads:
// they speak over loopback as those of processes do.
//
// Copy bandwidth: as many threads as there are ranks copy a buffer of the same size each, all at
// once. An all-reduce of n bytes over p ranks must read p·n and write p·n bytes, and that is what
// those copies read and write, so the two times are compared as they are. Copies touch twice as
// much memory, so between 4 MiB and the size of the last cache they fall out of it first; the time
// to scale the buffers where they are, which touches what ours touches, stands beside.
#include "sgd/internal/collectives.hpp"
#include "sgd/internal/comm_actor.hpp"
#include "sgd/internal/shared_group.hpp"
#include "sgd/internal/shared_segment.hpp"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "libactor/internal/system.hpp"
#include "tools/bench/bench.hpp"

using namespace troupe;
using namespace troupe::sgd::internal;
using namespace std::chrono_literals;

namespace {

constexpr auto kLimit = 60s;

/// Runs `body` on a thread for each rank; rank 0's durations, in seconds.
using Durations = std::vector<double>;
Durations on_ranks(int world_size, const std::function<Durations(int)>& body) {
  Durations first;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank)
    threads.emplace_back([&, rank] {
      at::set_num_threads(1);
      auto mine = body(rank);
      if (rank == 0) first = std::move(mine);
    });
  for (auto& thread : threads) thread.join();
  return first;
}

Durations repeat(int count, const std::function<void()>& once) {
  Durations durations;
  for (int i = 0; i < count; ++i) {
    const bench::Stopwatch watch;
    once();
    durations.push_back(watch.seconds());
  }
  return durations;
}

/// One way to add up, with a buffer for each rank.
class Way {
 public:
  virtual ~Way() = default;
  virtual Durations run(int count) = 0;
};

/// What each rank does: `count` averages of its buffer.
Durations average(Collectives& mine, torch::Tensor& buffer, int count) {
  buffer.fill_(mine.rank());
  mine.barrier();
  auto durations = repeat(count, [&] { mine.wait(mine.start_average(0, buffer, 1)); });
  const auto right = static_cast<float>(mine.world_size() - 1) / 2;
  if (!buffer.eq(right).all().item<bool>()) {
    std::fputs("the average is wrong\n", stderr);
    std::exit(1);
  }
  return durations;
}

class Ours final : public Way {
 public:
  Ours(caf::actor_system& system, int world_size, std::int64_t floats)
      : group_(world_size, 1, comm_actors(system)) {
    for (int rank = 0; rank < world_size; ++rank) {
      ranks_.push_back(std::make_unique<Collectives>(group_.exchange(rank), kLimit));
      buffers_.push_back(ranks_.back()->allocate(floats, torch::kFloat, torch::kCPU));
    }
  }
  Durations run(int count) override {
    return on_ranks(group_.world_size(), [&](int rank) {
      const auto index = static_cast<std::size_t>(rank);
      return average(*ranks_[index], buffers_[index], count);
    });
  }

 private:
  LocalGroup group_;
  std::vector<std::unique_ptr<Collectives>> ranks_;
  std::vector<torch::Tensor> buffers_;
};

pid_t start(std::vector<std::string> words) {
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t pid = 0;
  return posix_spawnp(&pid, argv[0], nullptr, nullptr, argv.data(), environ) == 0 ? pid : 0;
}

/// One rank of a group in shared memory, with a process of its own.
class SharedRank {
 public:
  SharedRank(const std::string& path, int rank, std::int64_t floats)
      : group_(unwrap(join_shared_group({.path = path, .first_rank = rank}))),
        collectives_(group_->exchange(rank), kLimit),
        buffer_(collectives_.allocate(floats, torch::kFloat, torch::kCPU)) {}

  Durations run(int count) {  // rank 0 decides how many
    const auto agreed = torch::full({1}, count, torch::kInt64);
    collectives_.broadcast(agreed, 0);
    count_ = agreed.item<int>();
    return count_ > 0 ? average(collectives_, buffer_, count_) : Durations();
  }
  bool ended() const { return count_ == 0; }

 private:
  std::unique_ptr<ExchangeGroup> group_;
  Collectives collectives_;
  torch::Tensor buffer_;
  int count_ = -1;
};

int run_shared_rank(char** argv) {
  at::set_num_threads(1);
  SharedRank rank(argv[0], std::stoi(argv[1]), std::stoll(argv[2]));
  while (!rank.ended()) rank.run(0);
  return 0;
}

/// This process is rank 0.
class Shared final : public Way {
 public:
  Shared(int world_size, std::int64_t floats)
      : segment_(unwrap(SharedSegment::create({.world_size = world_size}))),
        rank_(segment_.path(), 0, floats) {
    for (int rank = 1; rank < world_size; ++rank)
      others_.push_back(start({"/proc/self/exe", "--rank", segment_.path(), std::to_string(rank),
                               std::to_string(floats)}));
  }
  ~Shared() override {
    rank_.run(0);
    for (const pid_t other : others_) ::waitpid(other, nullptr, 0);
  }
  Durations run(int count) override {
    return on_ranks(1, [&](int) { return rank_.run(count); });
  }

 private:
  SharedSegment segment_;
  SharedRank rank_;
  std::vector<pid_t> others_;
};

class Gloo final : public Way {
 public:
  Gloo(int world_size, std::int64_t floats) : ranks_(static_cast<std::size_t>(world_size)) {
    const auto store = c10::make_intrusive<c10d::HashStore>();
    on_ranks(world_size, [&](int rank) {
      auto options = c10d::ProcessGroupGloo::Options::create();
      options->devices = {c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1")};
      ranks_[static_cast<std::size_t>(rank)] =
          c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, world_size, std::move(options));
      return Durations();
    });
    for (int rank = 0; rank < world_size; ++rank) buffers_.push_back({torch::zeros({floats})});
  }
  Durations run(int count) override {
    return on_ranks(static_cast<int>(ranks_.size()), [&](int rank) {
      auto& mine = *ranks_[static_cast<std::size_t>(rank)];
      auto& buffer = buffers_[static_cast<std::size_t>(rank)];
      mine.barrier()->wait();
      return repeat(count, [&] { mine.allreduce(buffer)->wait(); });
    });
  }

 private:
  std::vector<c10::intrusive_ptr<c10d::ProcessGroupGloo>> ranks_;
  std::vector<std::vector<torch::Tensor>> buffers_;
};

class Copy final : public Way {
 public:
  Copy(int world_size, std::int64_t floats) {
    for (int rank = 0; rank < world_size; ++rank) {
      from_.push_back(torch::ones({floats}));
      to_.push_back(torch::ones({floats}));
    }
  }
  Durations run(int count) override {
    std::barrier together(static_cast<std::ptrdiff_t>(from_.size()));
    return on_ranks(static_cast<int>(from_.size()), [&](int rank) {
      const auto index = static_cast<std::size_t>(rank);
      return repeat(count, [&] {
        together.arrive_and_wait();
        std::memcpy(to_[index].data_ptr(), from_[index].data_ptr(), from_[index].nbytes());
        together.arrive_and_wait();
      });
    });
  }

 private:
  std::vector<torch::Tensor> from_, to_;
};

class Scale final : public Way {
 public:
  Scale(int world_size, std::int64_t floats) : buffers_(static_cast<std::size_t>(world_size)) {
    for (auto& buffer : buffers_) buffer = torch::ones({floats});
  }
  Durations run(int count) override {
    std::barrier together(static_cast<std::ptrdiff_t>(buffers_.size()));
    return on_ranks(static_cast<int>(buffers_.size()), [&](int rank) {
      return repeat(count, [&] {
        together.arrive_and_wait();
        buffers_[static_cast<std::size_t>(rank)].mul_(1.5F);
        together.arrive_and_wait();
      });
    });
  }

 private:
  std::vector<torch::Tensor> buffers_;
};

/// Seconds by bytes; empty where it can't be tried.
std::map<std::int64_t, double> open_mpi(int world_size) {
  std::map<std::int64_t, double> seconds;
#ifdef ALLREDUCE_MPI
  const auto file =
      std::filesystem::temp_directory_path() / ("allreduce_mpi." + std::to_string(::getpid()));
  std::vector<std::string> words{
      "mpirun", "--allow-run-as-root",      "--oversubscribe", "--mca",      "btl", "self,vader",
      "-n",     std::to_string(world_size), ALLREDUCE_MPI,     file.string()};
  if (const pid_t pid = start(words); pid != 0) {
    ::waitpid(pid, nullptr, 0);
    std::ifstream in(file);
    std::int64_t bytes = 0;
    double time = 0;
    while (in >> bytes >> time) seconds[bytes] = time;
  }
  std::filesystem::remove(file);
#endif
  if (seconds.empty()) std::puts("Open MPI: not tried (no mpirun, or built without it)");
  return seconds;
}

std::string size_text(std::int64_t bytes) {
  return bytes < 1 << 20 ? std::to_string(bytes >> 10) + " KiB"
                         : std::to_string(bytes >> 20) + " MiB";
}

void measure(caf::actor_system& system, int world_size, std::int64_t bytes,
             const std::map<std::int64_t, double>& mpi, bool quick) {
  const std::int64_t floats = bytes / 4;
  Ours ours(system, world_size, floats);
  Gloo gloo(world_size, floats);
  Copy copy(world_size, floats);
  Scale scale(world_size, floats);
  Shared shared(world_size, floats);
  struct Run {
    Way& way;
    int count = 3;
    Durations durations = {};
  };
  std::vector<Run> runs{{ours}, {gloo}, {copy}, {scale}, {shared}};
  // in turns, so that what disturbs the machine disturbs all alike; the first turn warms up
  for (int turn = 0; turn < (quick ? 1 : 5); ++turn)
    for (auto& run : runs) {
      const auto durations = run.way.run(run.count);
      run.count = std::clamp(static_cast<int>(0.02 / bench::median(durations)), 3, 300);
      if (turn > 0) run.durations.insert(run.durations.end(), durations.begin(), durations.end());
    }
  if (quick) return;
  std::vector<double> us;
  for (const auto& run : runs) us.push_back(1e6 * bench::median(run.durations));
  const double moved = 2.0 * world_size * static_cast<double>(bytes);
  std::printf(
      "%d ranks, %s: ours %.1f us, gloo %.1f us, copy %.1f us (%.1f GB/s read + written), "
      "scale %.1f us; ours between processes %.1f us\n",
      world_size, size_text(bytes).c_str(), us[0], us[1], us[2], moved / us[2] / 1e3, us[3], us[4]);
  bench::print_figure("  times as fast as gloo", us[1] / us[0], "x", bytes >= 1 << 20 ? 5 : 2,
                      true);
  if (bytes >= 4 << 20)
    bench::print_figure("  of the copy bandwidth", 100 * us[2] / us[0], "%", 70, true);
  if (bytes >= 1 << 20)
    bench::print_figure("  between processes, shared memory: times as fast as gloo", us[1] / us[4],
                        "x", 1, true);
  if (const auto found = mpi.find(bytes); found != mpi.end())
    bench::print_figure("  times as fast as Open MPI (processes)", 1e6 * found->second / us[0], "x",
                        1.2, true);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 5 && std::string(argv[1]) == "--rank") return run_shared_rank(argv + 2);
  const bool quick = argc > 1 && std::string(argv[1]) == "--quick";
  if (!quick && !bench::optimised()) return 1;
  troupe::internal::System system;
  for (const int world_size : {2, 4}) {
    const auto mpi = quick ? std::map<std::int64_t, double>() : open_mpi(world_size);
    for (std::int64_t bytes = 1 << 10; bytes <= 64 << 20; bytes *= 4)
      if (!quick || bytes <= 1 << 18) measure(system.actors(), world_size, bytes, mpi, quick);
  }
}
