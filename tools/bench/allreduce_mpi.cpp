// allreduce_mpi FILE: adds up buffers of 1 KiB to 64 MiB by MPI_Allreduce, as allreduce_bench does,
// which starts this by mpirun. Rank 0 writes a line "bytes seconds" for each size: the median.
#include <mpi.h>

#include <cstdio>
#include <vector>

#include "tools/bench/bench.hpp"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::FILE* out = rank == 0 && argc > 1 ? std::fopen(argv[1], "w") : nullptr;
  for (std::size_t bytes = 1 << 10; bytes <= 64 << 20; bytes *= 4) {
    const std::size_t count = bytes / sizeof(float);
    std::vector<float> buffer(count);
    std::vector<double> durations;
    const int repetitions = bytes <= 1 << 18 ? 200 : bytes <= 1 << 22 ? 40 : 8;
    for (int i = -2; i < repetitions; ++i) {  // two to warm up
      if (i <= 0) MPI_Barrier(MPI_COMM_WORLD);
      const troupe::bench::Stopwatch watch;
      MPI_Allreduce(MPI_IN_PLACE, buffer.data(), static_cast<int>(count), MPI_FLOAT, MPI_SUM,
                    MPI_COMM_WORLD);
      if (i >= 0) durations.push_back(watch.seconds());
    }
    if (out != nullptr) std::fprintf(out, "%zu %.9f\n", bytes, troupe::bench::median(durations));
  }
  if (out != nullptr) std::fclose(out);
  MPI_Finalize();
}
