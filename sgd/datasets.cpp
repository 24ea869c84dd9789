#include "sgd/datasets.hpp"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <system_error>
#include <utility>

#include <torch/torch.h>

namespace troupe::sgd {
namespace {

constexpr std::int64_t kMaxBytes = std::int64_t{1} << 30;  ///< of one file, unpacked
constexpr std::uint8_t kClassCount = 10;

/// Random numbers that are the same with every standard library.
std::uint64_t below(std::mt19937_64& random, std::uint64_t bound) {
  return static_cast<std::uint64_t>((static_cast<unsigned __int128>(random()) * bound) >> 64);
}

/// The first `count` of a random order of `size` numbers, or of 0, 1, 2, …
torch::Tensor make_order(std::int64_t size, std::int64_t count, std::int64_t epoch,
                         const EpochOptions& options) {
  torch::Tensor all = torch::empty(size, torch::kInt64);
  const std::span order(all.data_ptr<std::int64_t>(), static_cast<std::size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  if (options.shuffle) {
    const auto low = static_cast<std::uint32_t>(options.seed);
    const auto high = static_cast<std::uint32_t>(options.seed >> 32);
    std::seed_seq seed{low, high, static_cast<std::uint32_t>(epoch)};
    std::mt19937_64 random(seed);
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
      std::swap(order[i], order[i + below(random, order.size() - i)]);
  }
  return all.narrow(0, 0, count);
}

Error corrupt(const std::filesystem::path& path, const std::string& what) {
  return make_error(Errc::corrupt, path.string() + ": " + what);
}

using Gzip = std::unique_ptr<gzFile_s, int (*)(gzFile)>;

bool read_fully(gzFile file, std::span<std::uint8_t> out) {
  while (!out.empty()) {
    const int got = ::gzread(file, out.data(),
                             static_cast<unsigned>(std::min<std::size_t>(out.size(), 1 << 20)));
    if (got <= 0) return false;
    out = out.subspan(static_cast<std::size_t>(got));
  }
  return true;
}

/// A gzipped IDX file of bytes with `dimensions` dimensions. Nothing is allocated that the file
/// does not hold up to `kMaxBytes`, and it must end where it says.
Result<torch::Tensor> read_idx(const std::filesystem::path& path, int dimensions) {
  const Gzip file(::gzopen(path.c_str(), "rb"), &::gzclose);
  if (!file) return make_error(Errc::not_found, path.string() + " can't be opened");
  std::array<std::uint8_t, 16> header{};
  const auto used = std::span(header).first(static_cast<std::size_t>(4 + 4 * dimensions));
  if (!read_fully(file.get(), used)) return corrupt(path, "is no gzipped IDX file");
  const std::array<std::uint8_t, 4> magic{0, 0, 8, static_cast<std::uint8_t>(dimensions)};
  if (!std::equal(magic.begin(), magic.end(), header.begin()))
    return corrupt(path,
                   "is no IDX file of bytes with " + std::to_string(dimensions) + " dimensions");
  std::vector<std::int64_t> shape;
  std::int64_t bytes = 1;
  for (int d = 0; d < dimensions; ++d) {
    const auto* at = header.data() + 4 + 4 * d;
    shape.push_back(std::int64_t{at[0]} << 24 | at[1] << 16 | at[2] << 8 | at[3]);
    if (__builtin_mul_overflow(bytes, shape.back(), &bytes) || bytes > kMaxBytes || bytes == 0)
      return corrupt(path, "has an impossible size");
  }
  torch::Tensor tensor = torch::empty(shape, torch::kUInt8);
  if (!read_fully(file.get(), {tensor.data_ptr<std::uint8_t>(), static_cast<std::size_t>(bytes)}))
    return corrupt(path, "is cut short or damaged");
  // Reading on to the end is what makes zlib compare the checksum.
  std::uint8_t more = 0;
  const int left = ::gzread(file.get(), &more, 1);
  int state = Z_OK;
  ::gzerror(file.get(), &state);
  if (left != 0 || (state != Z_OK && state != Z_STREAM_END))
    return corrupt(path, "is damaged, cut short or longer than it says");
  return tensor;
}

Result<Split> read_split(const std::filesystem::path& folder, const std::string& prefix) {
  const auto images_path = folder / (prefix + "-images-idx3-ubyte.gz");
  const auto labels_path = folder / (prefix + "-labels-idx1-ubyte.gz");
  auto images = read_idx(images_path, 3);
  if (!images) return images.error();
  auto bytes = read_idx(labels_path, 1);
  if (!bytes) return bytes.error();
  const std::int64_t count = images->size(0);
  if (bytes->size(0) != count)
    return corrupt(labels_path, "has " + std::to_string(bytes->size(0)) + " labels for " +
                                    std::to_string(count) + " images");
  // A plain loop: LibTorch's conversion would start threads.
  torch::Tensor labels = torch::empty(count, torch::kInt64);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint8_t label = bytes->data_ptr<std::uint8_t>()[i];
    if (label >= kClassCount)
      return corrupt(labels_path,
                     "has the label " + std::to_string(label) + "; 0 to 9 are possible");
    labels.data_ptr<std::int64_t>()[i] = label;
  }
  return Split{images->unsqueeze(1), labels};
}

}  // namespace

Epoch::Epoch(torch::Tensor images, torch::Tensor labels, std::int64_t index, EpochOptions options)
    : images_(std::move(images)),
      labels_(std::move(labels)),
      batch_size_(std::max<std::int64_t>(options.batch_size, 1)) {
  const std::int64_t size = labels_.size(0);
  const bool some = options.sample_count > 0 && options.sample_count < size;
  order_ = make_order(size, some ? options.sample_count : size, index, options);
}

std::int64_t Epoch::size() const { return (order_.size(0) + batch_size_ - 1) / batch_size_; }

Batch Epoch::batch(std::int64_t index) const {
  const std::int64_t from = index * batch_size_;
  const auto rows = order_.narrow(0, from, std::min(batch_size_, order_.size(0) - from));
  return {{images_.index_select(0, rows).to(torch::kFloat32).div_(255)},
          labels_.index_select(0, rows)};
}

Result<Data> read_mnist(const std::filesystem::path& folder) {
  std::error_code error;
  if (!std::filesystem::exists(folder / "train-images-idx3-ubyte.gz", error))
    return make_error(Errc::not_found,
                      "Fashion-MNIST is not at " + folder.string() +
                          ": install Debian's dataset-fashion-mnist or name its folder by "
                          "--data-dir");
  auto train = read_split(folder, "train");
  if (!train) return train.error();
  auto test = read_split(folder, "t10k");
  if (!test) return test.error();
  return Data{*train, *test};
}

}  // namespace troupe::sgd
