#include "sgd/datasets.hpp"

#include "tests/support/skip.hpp"
#include "tests/support/temp_folder.hpp"

#include <doctest/doctest.h>
#include <zlib.h>

#include <cstring>
#include <fstream>
#include <set>
#include <string>

#include <torch/torch.h>

using namespace troupe;
using troupe::test::TempFolder;
namespace fs = std::filesystem;

namespace {

std::string big_endian(std::uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16),
          static_cast<char>(value >> 8), static_cast<char>(value)};
}

std::string idx(std::initializer_list<std::uint32_t> shape, const std::string& bytes) {
  std::string text{0, 0, 8, static_cast<char>(shape.size())};
  for (const auto length : shape) text += big_endian(length);
  return text + bytes;
}

void write_gz(const fs::path& path, const std::string& text) {
  gzFile file = ::gzopen(path.c_str(), "wb");
  ::gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
  ::gzclose(file);
}

/// Three training images and two test images of 2 × 2.
void write_small(const fs::path& folder) {
  write_gz(folder / "train-images-idx3-ubyte.gz",
           idx({3, 2, 2}, std::string("\x00\x01\x02\x03\x04\x05\x06\x07\xff\x09\x0a\x0b", 12)));
  write_gz(folder / "train-labels-idx1-ubyte.gz", idx({3}, std::string("\x03\x00\x09", 3)));
  write_gz(folder / "t10k-images-idx3-ubyte.gz", idx({2, 2, 2}, std::string(8, '\x05')));
  write_gz(folder / "t10k-labels-idx1-ubyte.gz", idx({2}, std::string("\x01\x02", 2)));
}

void write(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

/// A label, then 3072 pixels of one value but for the first.
std::string cifar_record(char label, char pixel) {
  std::string record(3073, pixel);
  record[0] = label;
  record[1] = '\1';
  return record;
}

/// Two images in the first training file, one in each other.
void write_small_cifar(const fs::path& folder) {
  write(folder / "data_batch_1.bin", cifar_record(3, '\x10') + cifar_record(9, '\x11'));
  for (int i = 2; i <= 5; ++i)
    write(folder / ("data_batch_" + std::to_string(i) + ".bin"),
          cifar_record(static_cast<char>(i), static_cast<char>(0x20 + i)));
  write(folder / "test_batch.bin", cifar_record(0, '\xff'));
}

std::size_t thread_count() {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator("/proc/self/task"), {}));
}

}  // namespace

TEST_CASE("datasets: images and labels are what the files hold") {
  const TempFolder folder;
  write_small(folder.path());
  const auto data = sgd::read_mnist(folder.path());
  REQUIRE_MESSAGE(data, describe(data.error()));
  CHECK(data->train.images.sizes() == std::vector<std::int64_t>{3, 1, 2, 2});
  CHECK(data->train.images[2][0][0][0].item<int>() == 255);
  CHECK(data->train.labels.equal(torch::tensor({3, 0, 9}, torch::kInt64)));
  const auto batch = data->train.epoch(0, {.batch_size = 3, .shuffle = false}).batch(0);
  CHECK(batch.features[0].dtype() == torch::kFloat32);
  CHECK(batch.features[0][2][0][0][0].item<float>() == 1.0F);
  CHECK(batch.target.equal(data->train.labels));
}

TEST_CASE("datasets: Debian's Fashion-MNIST is read without starting a thread") {
  if (!fs::exists(sgd::kFashionMnistFolder)) return skip("dataset-fashion-mnist is not installed");
  const auto before = thread_count();
  const auto data = sgd::read_mnist();
  REQUIRE_MESSAGE(data, describe(data.error()));
  CHECK(thread_count() == before);
  CHECK(data->train.size() == 60'000);
  CHECK(data->test.size() == 10'000);
  CHECK(data->train.labels.bincount().equal(torch::full(10, 6000, torch::kInt64)));
}

TEST_CASE("datasets: a missing folder says what to install and which option names it") {
  const auto data = sgd::read_mnist("/nowhere");
  REQUIRE_FALSE(data);
  CHECK(text_of(data.error()) ==
        "Fashion-MNIST is not at /nowhere: install Debian's dataset-fashion-mnist or name its "
        "folder by --data-dir");
}

TEST_CASE("datasets: hostile files are refused by name, without a large allocation") {
  const auto refused = [](const char* file, const std::string& content, const char* sentence) {
    const TempFolder folder;
    write_small(folder.path());
    write_gz(folder / file, content);
    const auto data = sgd::read_mnist(folder.path());
    REQUIRE_FALSE(data);
    CHECK(code_of(data.error()) == Errc::corrupt);
    CHECK(text_of(data.error()).find(file) != std::string::npos);
    CHECK_MESSAGE(text_of(data.error()).find(sentence) != std::string::npos, text_of(data.error()));
  };
  const char* images = "train-images-idx3-ubyte.gz";
  const char* labels = "train-labels-idx1-ubyte.gz";
  refused(images, idx({0xffffffff, 0xffffffff, 0xffffffff}, ""), "impossible size");
  refused(images, idx({100'000, 1000, 1000}, ""), "impossible size");
  refused(images, idx({0, 2, 2}, ""), "impossible size");
  refused(images, idx({3, 2, 2}, std::string(11, 'x')), "cut short");
  refused(images, idx({3, 2, 2}, std::string(13, 'x')), "longer than it says");
  refused(images, idx({12}, std::string(12, 'x')), "no IDX file");
  refused(images, "", "no gzipped IDX file");
  refused(labels, idx({2}, std::string(2, '\1')), "2 labels for 3 images");
  refused(labels, idx({3}, std::string(3, '\12')), "label 10");
}

TEST_CASE("datasets: a gzip file with a turned bit or a cut end is refused") {
  const TempFolder folder;
  write_small(folder.path());
  const auto path = folder / "train-images-idx3-ubyte.gz";
  const auto size = fs::file_size(path);
  fs::resize_file(path, size - 4);
  CHECK(code_of(sgd::read_mnist(folder.path()).error()) == Errc::corrupt);
  write_small(folder.path());
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(size) - 6);
  file.put('\x55');
  file.close();
  CHECK(code_of(sgd::read_mnist(folder.path()).error()) == Errc::corrupt);
}

TEST_CASE("datasets: an epoch gives every sample once, in an order that seed and number decide") {
  const sgd::Split split{torch::arange(100, torch::kUInt8).view({100, 1, 1, 1}),
                         torch::arange(100, torch::kInt64)};
  const auto order = [&](std::int64_t index, sgd::EpochOptions options) {
    std::vector<std::int64_t> seen;
    for (const auto& batch : split.epoch(index, options)) {
      CHECK(batch.features[0].size(0) == batch.target.size(0));
      for (std::int64_t i = 0; i < batch.target.size(0); ++i) {
        seen.push_back(batch.target[i].item<std::int64_t>());
        CHECK(batch.features[0][i].item<float>() == doctest::Approx(double(seen.back()) / 255));
      }
    }
    return seen;
  };
  const auto first = order(0, {.batch_size = 7});
  CHECK(first.size() == 100);
  CHECK(std::set(first.begin(), first.end()).size() == 100);
  CHECK(order(0, {.batch_size = 30}) == first);
  CHECK(order(1, {}) != first);
  CHECK(order(0, {.seed = 1}) != first);
  CHECK(order(0, {.seed = std::uint64_t{1} << 32}) != first);
  CHECK(order(0, {.shuffle = false})[99] == 99);
  CHECK(std::vector(first.begin(), first.begin() + 5) ==
        std::vector<std::int64_t>{50, 46, 94, 66, 83});
  const auto some = order(0, {.sample_count = 10});
  CHECK(some == std::vector(first.begin(), first.begin() + 10));
  CHECK(split.epoch(0, {.batch_size = 64}).size() == 2);
}

TEST_CASE("datasets: CIFAR-10's images and labels are what the files hold, in their order") {
  const TempFolder folder;
  write_small_cifar(folder.path());
  const auto before = thread_count();
  const auto data = sgd::read_cifar10(folder.path());
  REQUIRE_MESSAGE(data, describe(data.error()));
  CHECK(thread_count() == before);
  CHECK(data->train.images.sizes() == std::vector<std::int64_t>{6, 3, 32, 32});
  CHECK(data->train.labels.equal(torch::tensor({3, 9, 2, 3, 4, 5}, torch::kInt64)));
  CHECK(data->train.images.index({0, 0, 0, 0}).item<int>() == 1);
  CHECK(data->train.images.index({1, 2, 31, 31}).item<int>() == 0x11);
  CHECK(data->train.images.index({5, 0, 0, 1}).item<int>() == 0x25);
  CHECK(data->test.images.index({0, 1, 7, 7}).item<int>() == 0xff);
  CHECK(data->test.size() == 1);
}

TEST_CASE("datasets: CIFAR-10 files of a wrong size or with a wrong label are refused by name") {
  const auto refused = [](const char* file, const std::string& content, const char* sentence) {
    const TempFolder folder;
    write_small_cifar(folder.path());
    write(folder / file, content);
    const auto data = sgd::read_cifar10(folder.path());
    REQUIRE_FALSE(data);
    CHECK(code_of(data.error()) == Errc::corrupt);
    CHECK(text_of(data.error()).find(file) != std::string::npos);
    CHECK_MESSAGE(text_of(data.error()).find(sentence) != std::string::npos, text_of(data.error()));
  };
  refused("data_batch_3.bin", "", "0 bytes");
  refused("data_batch_3.bin", cifar_record(1, 'x') + "x", "3074 bytes, no multiple of 3073");
  refused("test_batch.bin", std::string(3072, 'x'), "3072 bytes");
  refused("test_batch.bin", cifar_record(10, 'x'), "label 10 at image 0");
  refused("data_batch_5.bin", cifar_record(0, 'x') + cifar_record('\xff', 'x'),
          "label 255 at image 1");

  const TempFolder folder;
  write_small_cifar(folder.path());
  fs::resize_file(folder / "data_batch_2.bin", std::uintmax_t{3073} * 1'000'000);  // a hole
  CHECK(code_of(sgd::read_cifar10(folder.path()).error()) == Errc::corrupt);
  fs::remove(folder / "data_batch_2.bin");
  const auto missing = sgd::read_cifar10(folder.path());
  CHECK(code_of(missing.error()) == Errc::not_found);
  CHECK(text_of(missing.error()).find("data_batch_2.bin can't be read") != std::string::npos);
}

TEST_CASE("datasets: synthetic images are the same bytes everywhere, and follow from the seed") {
  const auto data = unwrap(sgd::synthetic({.train_count = 20, .test_count = 7, .class_count = 3}));
  CHECK(data.train.images.sizes() == std::vector<std::int64_t>{20, 1, 28, 28});
  CHECK(data.train.labels.slice(0, 0, 5).equal(torch::tensor({0, 1, 2, 0, 1}, torch::kInt64)));
  const auto first = data.train.images.view(-1).slice(0, 0, 6);
  CHECK_MESSAGE(first.equal(torch::tensor({168, 197, 222, 146, 194, 0}, torch::kUInt8)), first);

  const auto other = unwrap(sgd::synthetic({.train_count = 9, .test_count = 7, .class_count = 3}));
  CHECK(other.test.images.equal(data.test.images));
  CHECK(other.train.images.equal(data.train.images.slice(0, 0, 9)));
  const auto seeded =
      unwrap(sgd::synthetic({.train_count = 20, .test_count = 7, .class_count = 3, .seed = 1}));
  CHECK_FALSE(seeded.train.images.equal(data.train.images));
}

TEST_CASE("datasets: a linear model learns the synthetic images") {
  const auto data = unwrap(sgd::synthetic());
  torch::manual_seed(1);
  torch::nn::Linear model(784, 10);
  torch::optim::SGD optimizer(model->parameters(), 0.05);
  for (const auto& batch : data.train.epoch(0)) {
    optimizer.zero_grad();
    torch::cross_entropy_loss(model(batch.features[0].flatten(1)), batch.target).backward();
    optimizer.step();
  }
  const auto test = data.test.epoch(0, {.batch_size = 500}).batch(0);
  const auto right = model(test.features[0].flatten(1)).argmax(1).eq(test.target);
  CHECK(right.to(torch::kFloat32).mean().item<double>() > 0.95);
}

TEST_CASE("datasets: synthetic options that make no sense are refused with the value") {
  CHECK(text_of(sgd::synthetic({.class_count = 0}).error()) ==
        "synthetic: class_count is 0; it must be 1 or more");
  CHECK(text_of(sgd::synthetic({.noise = 256}).error()) ==
        "synthetic: noise is 256; 0 to 255 are possible");
  CHECK(text_of(sgd::synthetic({.train_count = std::int64_t{1} << 62}).error()) ==
        "synthetic: the images take more than 1 GiB");
  CHECK_FALSE(sgd::synthetic({.test_count = -1}));
}
