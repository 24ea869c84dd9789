// A checkpoint of 1 GiB written and read, beside torch.save and torch.load of Debian's
// python3-torch in the same run, both synced to the disk before they count as written; and how long
// a step is blocked, against one copy of the state.
// --quick: 16 MiB, alive or not, no figures. Other arguments: the folder to write in (default: the
// present one).
#include "libactor/checkpoint.hpp"
#include "tools/bench/bench.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

using namespace troupe;

namespace {

constexpr std::int64_t kTensors = 64;

// The same work in Python: tensors in a dict, saved, synced, renamed, loaded again and copied to
// where they were, as load_state_dict does. Prints "write read" in seconds.
constexpr const char* kPeer = R"(
import os, sys, time, torch
folder, count, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
state = {f"layer{i}.weight": torch.rand(size // 4) for i in range(count)}
path = os.path.join(folder, "peer.pt")
begin = time.perf_counter()
with open(path + ".tmp", "wb") as f:
    torch.save(state, f)
    f.flush()
    os.fsync(f.fileno())
os.rename(path + ".tmp", path)
fd = os.open(folder, os.O_RDONLY); os.fsync(fd); os.close(fd)
written = time.perf_counter()
loaded = torch.load(path)
for name, tensor in state.items():
    tensor.copy_(loaded[name])
done = time.perf_counter()
os.remove(path)
print(written - begin, done - written)
)";

struct Times {
  double write = 0;
  double read = 0;
  double blocked = 0;  ///< of the write, before the state may change again
};

using Buffer = std::unique_ptr<std::byte[]>;

std::vector<Buffer> make_state(std::int64_t size) {
  std::vector<Buffer> state;
  std::uint64_t x = 88172645463325252ull;
  for (std::int64_t i = 0; i < kTensors; ++i) {
    state.push_back(std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(size)));
    for (std::int64_t at = 0; at < size; at += 8) {
      x ^= x << 13, x ^= x >> 7, x ^= x << 17;
      std::memcpy(state.back().get() + at, &x, 8);
    }
  }
  return state;
}

Times ours(const std::filesystem::path& folder, const std::vector<Buffer>& state,
           std::int64_t size) {
  const auto target = folder / "checkpoint";
  const std::int64_t shape[] = {size / 4};
  Times times;
  const bench::Stopwatch watch;
  auto writer = unwrap(CheckpointWriter::begin(target, {.trial_id = "bench"}));
  for (std::size_t i = 0; i < state.size(); ++i)
    writer->tensor("layer" + std::to_string(i) + ".weight", DType::float32, shape,
                   {state[i].get(), static_cast<std::size_t>(size)});
  times.blocked = watch.seconds();
  unwrap(writer->commit());
  times.write = watch.seconds();

  const bench::Stopwatch reading;
  const auto reader = unwrap(CheckpointReader::open(target));
  for (std::size_t i = 0; i < state.size(); ++i)  // to where a model's parameters are already
    unwrap(reader.read("layer" + std::to_string(i) + ".weight",
                       {state[i].get(), static_cast<std::size_t>(size)}));
  times.read = reading.seconds();
  std::filesystem::remove_all(target);
  return times;
}

/// The state copied into memory that the process does not have yet, as any snapshot would be.
double one_copy(const std::vector<Buffer>& state, std::int64_t size) {
  const bench::Stopwatch watch;
  std::vector<Buffer> copy;
  for (const auto& buffer : state) {
    copy.push_back(std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(size)));
    std::memcpy(copy.back().get(), buffer.get(), static_cast<std::size_t>(size));
  }
  return watch.seconds();
}

std::optional<Times> peers(const std::filesystem::path& folder, std::int64_t size) {
  const auto script = folder / "peer.py", out = folder / "peer.txt";
  std::ofstream(script) << kPeer;
  std::vector<std::string> words = {"/usr/bin/python3", script.string(), folder.string(),
                                    std::to_string(kTensors), std::to_string(size)};
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out.c_str(),
                                   O_CREAT | O_TRUNC | O_WRONLY, 0600);
  pid_t pid = 0;
  const int failed = posix_spawn(&pid, words[0].c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed) return std::nullopt;
  int status = 0;
  ::waitpid(pid, &status, 0);
  Times times;
  std::ifstream in(out);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || !(in >> times.write >> times.read))
    return std::nullopt;
  return times;
}

}  // namespace

int main(int argc, char** argv) {
  const bool quick = argc > 1 && std::strcmp(argv[1], "--quick") == 0;
  if (!quick && !bench::optimised()) return 2;
  const std::int64_t size = (quick ? std::int64_t{16} << 20 : std::int64_t{1} << 30) / kTensors;
  std::string pattern =
      (std::filesystem::path(argc > 1 && !quick ? argv[1] : ".") / "checkpoint_bench_XXXXXX")
          .string();
  if (!::mkdtemp(pattern.data())) return 2;
  const std::filesystem::path folder = pattern;

  const auto state = make_state(size);
  std::vector<double> write, read, blocked, copy, peer_write, peer_read;
  for (int round = 0; round < (quick ? 1 : 5); ++round) {
    const auto times = ours(folder, state, size);
    write.push_back(times.write), read.push_back(times.read), blocked.push_back(times.blocked);
    copy.push_back(one_copy(state, size));
    if (const auto peer = peers(folder, size))
      peer_write.push_back(peer->write), peer_read.push_back(peer->read);
  }
  std::filesystem::remove_all(folder);
  std::printf("ours: write %.3f s (blocked %.3f s), read %.3f s; one copy %.3f s\n",
              bench::median(write), bench::median(blocked), bench::median(read),
              bench::median(copy));
  if (peer_write.empty()) {
    std::puts("python3-torch is not here: no comparison");
  } else {
    std::printf("torch: save %.3f s, load %.3f s\n", bench::median(peer_write),
                bench::median(peer_read));
    bench::print_figure("write, ratio of the medians",
                        bench::median(peer_write) / bench::median(write), "x", 3, true);
    bench::print_figure("read, ratio of the medians",
                        bench::median(peer_read) / bench::median(read), "x", 3, true);
  }
  bench::print_figure("a step is blocked, in copies of the state",
                      bench::median(blocked) / bench::median(copy), "x", 1.2, false);
}
