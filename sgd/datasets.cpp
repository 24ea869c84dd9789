#include "sgd/datasets.hpp"

#include "sgd/internal/order.hpp"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include <torch/torch.h>

namespace troupe::sgd {
namespace {

constexpr std::int64_t kMaxBytes = std::int64_t{1} << 30;  ///< of one file, unpacked
constexpr std::uint8_t kClassCount = 10;

Error corrupt(const std::filesystem::path& path, const std::string& what) {
  return make_error(Errc::corrupt, path.string() + ": " + what);
}

// --- MNIST ----------------------------------------------------------------------------------

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

// --- CIFAR-10 -------------------------------------------------------------------------------

constexpr std::int64_t kCifarPixels = 3 * 32 * 32;
using CifarRecord = std::array<char, 1 + kCifarPixels>;  ///< the label, then the pixels

Result<std::int64_t> count_cifar(const std::filesystem::path& path) {
  std::error_code error;
  const auto bytes = static_cast<std::int64_t>(std::filesystem::file_size(path, error));
  if (error)
    return make_error(Errc::not_found, path.string() +
                                           " can't be read: unpack cifar-10-binary.tar.gz and name "
                                           "the folder of its .bin files");
  constexpr auto record_bytes = static_cast<std::int64_t>(sizeof(CifarRecord));
  if (bytes == 0 || bytes > kMaxBytes || bytes % record_bytes != 0)
    return corrupt(path, "has " + std::to_string(bytes) + " bytes, no multiple of " +
                             std::to_string(record_bytes) + " that CIFAR-10 could have");
  return bytes / record_bytes;
}

Result<Split> read_cifar(const std::vector<std::filesystem::path>& paths) {
  std::vector<std::int64_t> counts;
  std::int64_t total = 0;
  for (const auto& path : paths) {
    const auto count = count_cifar(path);
    if (!count) return count.error();
    counts.push_back(*count);
    total += *count;
  }
  Split split{torch::empty({total, 3, 32, 32}, torch::kUInt8), torch::empty(total, torch::kInt64)};
  auto* image = split.images.data_ptr<std::uint8_t>();
  auto* label = split.labels.data_ptr<std::int64_t>();
  for (std::size_t i = 0; i < paths.size(); ++i) {
    std::ifstream file(paths[i], std::ios::binary);
    CifarRecord record{};
    for (std::int64_t n = 0; n < counts[i]; ++n, image += kCifarPixels, ++label) {
      if (!file.read(record.data(), record.size()))
        return corrupt(paths[i], "can't be read to its end");
      *label = static_cast<std::uint8_t>(record[0]);
      if (*label >= kClassCount)
        return corrupt(paths[i], "has the label " + std::to_string(*label) + " at image " +
                                     std::to_string(n) + "; 0 to 9 are possible");
      std::memcpy(image, record.data() + 1, kCifarPixels);
    }
  }
  return split;
}

// --- synthetic ------------------------------------------------------------------------------

/// pictures: of each class, one after the other.
Split synthetic_split(const SyntheticOptions& options, const std::vector<std::uint8_t>& pictures,
                      std::int64_t count, std::mt19937_64 random) {
  Split split{torch::empty({count, options.channels, options.height, options.width}, torch::kUInt8),
              torch::empty(count, torch::kInt64)};
  const std::int64_t pixels = options.channels * options.height * options.width;
  const auto range = static_cast<std::uint64_t>(2 * options.noise + 1);
  auto* out = split.images.data_ptr<std::uint8_t>();
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t label = i % options.class_count;
    split.labels.data_ptr<std::int64_t>()[i] = label;
    const auto* picture = pictures.data() + label * pixels;
    for (std::int64_t p = 0; p < pixels; ++p) {
      const auto noise = static_cast<std::int64_t>(internal::below(random, range)) - options.noise;
      *out++ = static_cast<std::uint8_t>(std::clamp<std::int64_t>(picture[p] + noise, 0, 255));
    }
  }
  return split;
}

}  // namespace

Batch Split::batch(const torch::Tensor& indices) const {
  return {{images.index_select(0, indices).to(torch::kFloat32).div_(255)},
          labels.index_select(0, indices)};
}

Epoch Split::epoch(std::int64_t index, EpochOptions options) const {
  return {*this, index, options};
}

Epoch::Epoch(Split split, std::int64_t index, EpochOptions options)
    : split_(std::move(split)), batch_size_(std::max<std::int64_t>(options.batch_size, 1)) {
  const std::int64_t size = split_.size();
  const bool some = options.sample_count > 0 && options.sample_count < size;
  const std::int64_t count = some ? options.sample_count : size;
  order_ = options.shuffle ? internal::shuffled(size, count, options.seed, index)
                           : torch::arange(count, torch::kInt64);
}

std::int64_t Epoch::size() const { return (order_.size(0) + batch_size_ - 1) / batch_size_; }

Batch Epoch::batch(std::int64_t index) const {
  const std::int64_t from = index * batch_size_;
  return split_.batch(order_.narrow(0, from, std::min(batch_size_, order_.size(0) - from)));
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

Result<Data> read_cifar10(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> train_paths;
  for (int i = 1; i <= 5; ++i)
    train_paths.push_back(folder / ("data_batch_" + std::to_string(i) + ".bin"));
  auto train = read_cifar(train_paths);
  if (!train) return train.error();
  auto test = read_cifar({folder / "test_batch.bin"});
  if (!test) return test.error();
  return Data{*train, *test};
}

Result<Data> synthetic(SyntheticOptions options) {
  std::int64_t bytes = 1;
  bool fits = true;
  for (const auto& [name, value, least] : {std::tuple{"class_count", options.class_count, 1},
                                           {"channels", options.channels, 1},
                                           {"height", options.height, 1},
                                           {"width", options.width, 1},
                                           {"train_count", options.train_count, 0},
                                           {"test_count", options.test_count, 0}})
    if (value < least)
      return make_error(Errc::bad_request, std::string("synthetic: ") + name + " is " +
                                               std::to_string(value) + "; it must be " +
                                               std::to_string(least) + " or more");
  if (options.noise < 0 || options.noise > 255)
    return make_error(Errc::bad_request, "synthetic: noise is " + std::to_string(options.noise) +
                                             "; 0 to 255 are possible");
  for (const std::int64_t factor :
       {options.channels, options.height, options.width,
        std::max({options.train_count, options.test_count, options.class_count})})
    fits = fits && !__builtin_mul_overflow(bytes, factor, &bytes) && bytes <= kMaxBytes;
  if (!fits) return make_error(Errc::bad_request, "synthetic: the images take more than 1 GiB");

  std::vector<std::uint8_t> pictures(static_cast<std::size_t>(
      options.class_count * options.channels * options.height * options.width));
  std::mt19937_64 random = internal::seeded(options.seed, 0);
  for (auto& pixel : pictures) pixel = static_cast<std::uint8_t>(internal::below(random, 256));
  return Data{
      synthetic_split(options, pictures, options.train_count, internal::seeded(options.seed, 1)),
      synthetic_split(options, pictures, options.test_count, internal::seeded(options.seed, 2))};
}

}  // namespace troupe::sgd
