// What adding up costs: ranks as threads of one process, ours beside LibTorch's Gloo, beside Open
// MPI's shared memory (where mpirun is), and beside the copy bandwidth of the machine. --quick:
// alive or not, no figures.
//
// Copy bandwidth: as many threads as there are ranks copy a buffer of the same size each, all at
// once. An all-reduce of n bytes over p ranks must read p·n and write p·n bytes, and that is what
// those copies read and write, so the two times are compared as they are. Copies touch twice as
// much memory, so between 4 MiB and the size of the last cache they fall out of it first; the time
// to scale the buffers where they are, which touches what ours touches, stands beside.
#include "sgd/internal/collectives.hpp"
#include "sgd/internal/comm_actor.hpp"

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
      auto& mine = *ranks_[static_cast<std::size_t>(rank)];
      auto& buffer = buffers_[static_cast<std::size_t>(rank)];
      buffer.fill_(rank);
      mine.barrier();
      auto durations = repeat(count, [&] { mine.wait(mine.start_average(0, buffer, 1)); });
      const auto right = static_cast<float>(group_.world_size() - 1) / 2;
      if (!buffer.eq(right).all().item<bool>()) {
        std::fputs("the average is wrong\n", stderr);
        std::exit(1);
      }
      return durations;
    });
  }

 private:
  LocalGroup group_;
  std::vector<std::unique_ptr<Collectives>> ranks_;
  std::vector<torch::Tensor> buffers_;
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
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t pid = 0;
  if (posix_spawnp(&pid, "mpirun", nullptr, nullptr, argv.data(), environ) == 0) {
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
  struct Run {
    Way& way;
    int count = 3;
    Durations durations = {};
  };
  std::vector<Run> runs{{ours}, {gloo}, {copy}, {scale}};
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
      "scale %.1f us\n",
      world_size, size_text(bytes).c_str(), us[0], us[1], us[2], moved / us[2] / 1e3, us[3]);
  bench::print_figure("  times as fast as gloo", us[1] / us[0], "x", bytes >= 1 << 20 ? 5 : 2,
                      true);
  if (bytes >= 4 << 20)
    bench::print_figure("  of the copy bandwidth", 100 * us[2] / us[0], "%", 70, true);
  if (const auto found = mpi.find(bytes); found != mpi.end())
    bench::print_figure("  times as fast as Open MPI (processes)", 1e6 * found->second / us[0], "x",
                        1.2, true);
}

}  // namespace

int main(int argc, char** argv) {
  const bool quick = argc > 1 && std::string(argv[1]) == "--quick";
  if (!quick && !bench::optimised()) return 1;
  troupe::internal::System system;
  for (const int world_size : {2, 4}) {
    const auto mpi = quick ? std::map<std::int64_t, double>() : open_mpi(world_size);
    for (std::int64_t bytes = 1 << 10; bytes <= 64 << 20; bytes *= 4)
      if (!quick || bytes <= 1 << 18) measure(system.actors(), world_size, bytes, mpi, quick);
  }
}
