#include "libactor/checkpoint.hpp"

#include "libactor/checkpoint_folder.hpp"
#include "libactor/file.hpp"
#include "libactor/internal/checkpoint_format.hpp"
#include "tests/support/skip.hpp"
#include "tests/support/temp_folder.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bit>
#include <csignal>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <numeric>

using namespace troupe;
using troupe::test::TempFolder;
namespace format = troupe::internal::checkpoint_format;
namespace fs = std::filesystem;

namespace {

template <class T>
auto bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

/// What every small checkpoint of these tests holds.
void fill(CheckpointWriter& out) {
  const std::vector<float> weights{1, -2, 3.5, 0, 1e30F, 5};
  out.tensor("net/weight", DType::float32, std::array<std::int64_t, 2>{2, 3}, bytes_of(weights));
  out.text("note", "hello");
  out.integer("steps", 42);
  out.number("loss", 0.25);
}

std::string commit_small(const fs::path& folder, std::int64_t iteration) {
  auto out = CheckpointWriter::begin(folder, {.trial_id = "a1b2c_00000", .iteration = iteration});
  REQUIRE(out);
  fill(**out);
  auto uuid = (*out)->commit();
  REQUIRE_MESSAGE(uuid, describe(uuid.error()));
  return *uuid;
}

std::vector<std::byte> content(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

void replace(const fs::path& path, std::span<const std::byte> bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(reinterpret_cast<const char*>(bytes.data()),
            static_cast<std::streamsize>(bytes.size()));
}

bool is_sound(const fs::path& folder) {
  const auto reader = CheckpointReader::open(folder);
  return reader && reader->verify();
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

/// Runs `body` in a forked child and gives its exit code; -1 when a signal ended it.
int in_child(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

TEST_CASE("checkpoint: what went in comes out bit for bit") {
  const TempFolder folder;
  const double odd = std::bit_cast<double>(0x7ff4'0000'dead'beefULL);  // a signalling NaN
  std::vector<std::int64_t> large(300'000);
  std::iota(large.begin(), large.end(), -7);
  auto out = CheckpointWriter::begin(folder / "c", {.trial_id = "t",
                                                    .iteration = 7,
                                                    .time_total_s = 1.5,
                                                    .timesteps_total = 9,
                                                    .config_json = R"({"lr":0.1})",
                                                    .parent_uuid = "00ff"});
  REQUIRE(out);
  fill(**out);
  (*out)->number("odd", odd);
  (*out)->integer("least", std::numeric_limits<std::int64_t>::min());
  (*out)->tensor("large", DType::int64, std::array{std::int64_t{300'000}}, bytes_of(large));
  (*out)->tensor("empty", DType::float16, std::array<std::int64_t, 2>{0, 5}, {});
  (*out)->bytes("nothing", {});
  const auto uuid = (*out)->commit();
  REQUIRE(uuid);

  const auto in = CheckpointReader::open(folder / "c/");
  REQUIRE_MESSAGE(in, describe(in.error()));
  CHECK(in->uuid() == *uuid);
  CHECK(in->info().iteration == 7);
  CHECK(in->info().time_total_s == 1.5);
  CHECK(in->info().timesteps_total == 9);
  CHECK(in->info().config_json == R"({"lr":0.1})");
  CHECK(in->info().parent_uuid == "00ff");
  CHECK(in->text("note") == "hello");
  CHECK(std::bit_cast<std::uint64_t>(in->number("odd")) == std::bit_cast<std::uint64_t>(odd));
  CHECK(in->integer("least") == std::numeric_limits<std::int64_t>::min());
  CHECK(in->find("net/weight")->shape == std::vector<std::uint64_t>{2, 3});
  CHECK(in->find("empty")->shape == std::vector<std::uint64_t>{0, 5});
  CHECK(in->bytes("nothing").empty());
  std::vector<std::int64_t> back(large.size());
  REQUIRE(in->read("large", std::as_writable_bytes(std::span(back))));
  CHECK(back == large);
  CHECK(in->find("large")->offset % 4096 == 0);
  for (const auto& blob : in->entries()) CHECK(blob.offset % 64 == 0);
  CHECK(in->verify());
  CHECK(names_in(folder.path()) == std::vector<std::string>{"c"});
  CHECK(names_in(folder / "c") == std::vector<std::string>{"checkpoint"});
}

TEST_CASE("checkpoint: a wrong name, a name twice and bytes that do not fit are misuse") {
  const TempFolder folder;
  auto out = unwrap(CheckpointWriter::begin(folder / "c", {}));
  out->integer("a", 1);
  CHECK_THROWS_WITH_AS(out->integer("a", 2), doctest::Contains("'a' is there already"), Exception);
  CHECK_THROWS_AS(out->integer("", 2), Exception);
  CHECK_THROWS_AS(out->integer(std::string(1025, 'x'), 2), Exception);
  CHECK_THROWS_AS(out->integer(std::string_view("a\0b", 3), 2), Exception);
  CHECK_THROWS_WITH_AS(
      out->tensor("w", DType::float32, std::array{std::int64_t{2}}, bytes_of(std::vector<char>(7))),
      doctest::Contains("'w' has 7 bytes"), Exception);
}

TEST_CASE("checkpoint: reading under a wrong type or name tells the blob's name") {
  const TempFolder folder;
  commit_small(folder / "c", 1);
  const auto in = *CheckpointReader::open(folder / "c");
  CHECK_THROWS_WITH_AS(in.number("steps"), doctest::Contains("'steps' is not a number"), Exception);
  CHECK_THROWS_WITH_AS(in.text("none"), doctest::Contains("has no blob 'none'"), Exception);
  std::vector<std::byte> short_one(3);
  CHECK(code_of(in.read("net/weight", short_one).error()) == Errc::bad_request);
}

TEST_CASE("checkpoint: without commit nothing stays, and a folder that is there is not touched") {
  const TempFolder folder;
  {
    auto out = CheckpointWriter::begin(folder / "c", {});
    fill(**out);
    CHECK(names_in(folder.path()).size() == 1);
  }
  CHECK(names_in(folder.path()).empty());
  fs::create_directory(folder / "c");
  CHECK(code_of(CheckpointWriter::begin(folder / "c", {}).error()) == Errc::bad_request);
  CHECK(CheckpointWriter::begin(folder / "no/c", {}).error());
}

TEST_CASE("checkpoint: of two writers of one folder the second to commit is refused") {
  const TempFolder folder;
  auto first = unwrap(CheckpointWriter::begin(folder / "c", {.iteration = 1}));
  auto second = unwrap(CheckpointWriter::begin(folder / "c", {.iteration = 2}));
  REQUIRE(first->commit());
  CHECK_FALSE(second->commit());
  second.reset();
  CHECK(CheckpointReader::open(folder / "c")->info().iteration == 1);
  CHECK(names_in(folder.path()) == std::vector<std::string>{"c"});
}

// --- crash points ---------------------------------------------------------------------------

namespace {

internal::CheckpointPoint crash_at = {};

void crash(internal::CheckpointPoint now) {
  if (now == crash_at) ::_exit(77);
}

}  // namespace

TEST_CASE("checkpoint: killed at any point of publishing, the old or the new one loads") {
  using enum internal::CheckpointPoint;
  // Until the rename the old one is the newest, from then on the new one.
  for (const auto& [point, newest] : std::map<internal::CheckpointPoint, std::int64_t>{
           {begun, 1}, {written, 1}, {synced, 1}, {renamed, 2}, {published, 2}}) {
    CAPTURE(static_cast<int>(point));
    const TempFolder folder;
    commit_small(folder / "checkpoint_1", 1);
    crash_at = point;
    CHECK(in_child([&] {
            auto out =
                unwrap(CheckpointWriter::begin(folder / "checkpoint_2", {.iteration = 2}, &crash));
            fill(*out);
            (void)out->commit();
            return 0;
          }) == 77);
    auto scan = newest_valid_checkpoint(folder.path());
    REQUIRE(scan.newest);
    CHECK(scan.newest->info().iteration == newest);
    CHECK(scan.refused.empty());
    REQUIRE(clean_checkpoints(folder.path()));
    CHECK(names_in(folder.path()).size() == static_cast<std::size_t>(newest));
    for (const auto& name : names_in(folder.path())) CHECK(is_sound(folder / name));
  }
}

TEST_CASE("checkpoint: killed in the middle of the blobs, the old one loads and no rest stays") {
  const TempFolder folder;
  commit_small(folder / "checkpoint_1", 1);
  const pid_t child = ::fork();
  if (child == 0) {
    auto out = unwrap(CheckpointWriter::begin(folder / "checkpoint_2", {.iteration = 2}));
    out->bytes("large", std::vector<std::byte>(3 << 20));
    ::raise(SIGKILL);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  REQUIRE(WIFSIGNALED(status));
  CHECK(newest_valid_checkpoint(folder.path()).newest->info().iteration == 1);
  REQUIRE(clean_checkpoints(folder.path()));
  CHECK(names_in(folder.path()) == std::vector<std::string>{"checkpoint_1"});
}

// --- a disk that fails ----------------------------------------------------------------------

TEST_CASE("checkpoint: a write that fails is told by commit, removes the rest and keeps the old") {
  const TempFolder folder;
  commit_small(folder / "checkpoint_1", 1);
  CHECK(in_child([&] {
          ::signal(SIGXFSZ, SIG_IGN);
          const rlimit limit{1 << 20, 1 << 20};
          ::setrlimit(RLIMIT_FSIZE, &limit);
          auto out = unwrap(CheckpointWriter::begin(folder / "checkpoint_2", {.iteration = 2}));
          out->bytes("large", std::vector<std::byte>(3 << 20));
          fill(*out);
          const auto done = out->commit();
          return !done && code_of(done.error()) == Errc::io ? 0 : 1;
        }) == 0);
  CHECK(names_in(folder.path()) == std::vector<std::string>{"checkpoint_1"});
  CHECK(is_sound(folder / "checkpoint_1"));
}

TEST_CASE("checkpoint: on a full disk the error says so and the old one stays sound") {
  const TempFolder folder;
  const int code = in_child([&] {
    const std::string uid = "0 " + std::to_string(::getuid()) + " 1";
    const std::string gid = "0 " + std::to_string(::getgid()) + " 1";
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return 99;
    std::ofstream("/proc/self/setgroups") << "deny";
    std::ofstream("/proc/self/uid_map") << uid;
    std::ofstream("/proc/self/gid_map") << gid;
    if (::mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=1m") != 0) return 99;
    auto first = unwrap(CheckpointWriter::begin(folder / "checkpoint_1", {.iteration = 1}));
    fill(*first);
    if (!first->commit()) return 1;
    auto out = unwrap(CheckpointWriter::begin(folder / "checkpoint_2", {.iteration = 2}));
    out->bytes("large", std::vector<std::byte>(2 << 20));
    const auto done = out->commit();
    out.reset();
    if (done || text_of(done.error()).find("No space left") == std::string::npos) return 2;
    if (names_in(folder.path()).size() != 1 || !is_sound(folder / "checkpoint_1")) return 3;
    auto again = unwrap(CheckpointWriter::begin(folder / "checkpoint_2", {.iteration = 2}));
    fill(*again);
    return again->commit() ? 0 : 4;
  });
  if (code == 99)
    skip("no tmpfs in a user namespace here");
  else
    CHECK(code == 0);
}

// --- hostile files --------------------------------------------------------------------------

TEST_CASE("checkpoint: any single bit that is turned is noticed") {
  const TempFolder folder;
  commit_small(folder / "c", 1);
  const fs::path path = folder / "c/checkpoint";
  const auto bytes = content(path);
  const Fd file(::open(path.c_str(), O_WRONLY));
  std::size_t unnoticed = 0;
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    const auto at = static_cast<::off_t>(bit / 8);
    const std::byte turned = bytes[bit / 8] ^ (std::byte{1} << (bit % 8));
    REQUIRE(::pwrite(file.value(), &turned, 1, at) == 1);
    const auto reader = CheckpointReader::open(folder / "c");
    const auto error =
        reader ? (reader->verify() ? Error{} : reader->verify().error()) : reader.error();
    if (!error || code_of(error) != Errc::corrupt ||
        text_of(error).find(path.string()) == std::string::npos)
      ++unnoticed;
    REQUIRE(::pwrite(file.value(), &bytes[bit / 8], 1, at) == 1);
  }
  CHECK(unnoticed == 0);
  CHECK(is_sound(folder / "c"));
}

TEST_CASE("checkpoint: a file of any other length is refused") {
  const TempFolder folder;
  commit_small(folder / "c", 1);
  const auto bytes = content(folder / "c/checkpoint");
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    replace(folder / "c/checkpoint", std::span(bytes).first(size));
    const auto reader = CheckpointReader::open(folder / "c");
    REQUIRE_FALSE(reader);
    REQUIRE(code_of(reader.error()) == Errc::corrupt);
  }
  auto longer = bytes;
  longer.push_back(std::byte{0});
  replace(folder / "c/checkpoint", longer);
  CHECK(code_of(CheckpointReader::open(folder / "c").error()) == Errc::corrupt);
}

TEST_CASE("checkpoint: a damaged blob is named, and the others can still be read") {
  const TempFolder folder;
  commit_small(folder / "c", 1);
  auto bytes = content(folder / "c/checkpoint");
  bytes[CheckpointReader::open(folder / "c")->find("note")->offset] ^= std::byte{1};
  replace(folder / "c/checkpoint", bytes);
  const auto in = *CheckpointReader::open(folder / "c");
  CHECK_THROWS_WITH_AS(in.text("note"), doctest::Contains("blob 'note': checksum differs"),
                       Exception);
  CHECK(in.integer("steps") == 42);
}

TEST_CASE("checkpoint: a file that is cut while it is open gives an error and no signal") {
  const TempFolder folder;
  commit_small(folder / "c", 1);
  const auto in = *CheckpointReader::open(folder / "c");
  fs::resize_file(folder / "c/checkpoint", 70);
  CHECK(code_of(in.verify().error()) == Errc::corrupt);
  CHECK_THROWS_AS(in.integer("steps"), Exception);
}

TEST_CASE("checkpoint: a link in place of file, folder or parent is refused and not followed") {
  const TempFolder folder;
  commit_small(folder / "real", 1);
  fs::create_directory(folder / "c");
  fs::create_symlink(folder / "real/checkpoint", folder / "c/checkpoint");
  fs::create_directory_symlink(folder / "real", folder / "link");
  CHECK(text_of(CheckpointReader::open(folder / "c").error()).find("symbolic link") !=
        std::string::npos);
  CHECK(code_of(CheckpointReader::open(folder / "link").error()) == Errc::corrupt);
  CHECK(code_of(CheckpointWriter::begin(folder / "link/c", {}).error()) == Errc::corrupt);
  CHECK(names_in(folder / "real").size() == 1);
  CHECK(code_of(CheckpointReader::open(folder / "none").error()) == Errc::not_found);
}

// --- the format stays -----------------------------------------------------------------------

TEST_CASE("checkpoint: in memory the newest whole one is read, and half a one is none") {
  const int memory = ::memfd_create("test", MFD_CLOEXEC);
  const Fd keeper(memory);
  const auto again = [&] { return Fd(::dup(memory)); };
  CHECK(code_of(CheckpointReader::open(again(), "state").error()) == Errc::corrupt);
  for (std::int64_t iteration : {1, 2}) {
    auto out = CheckpointWriter::begin(again(), "state", {.iteration = iteration});
    REQUIRE(out);
    fill(**out);
    if (iteration == 1) (*out)->bytes("only the first has it", std::vector<std::byte>(100'000));
    REQUIRE((*out)->commit());
    auto in = CheckpointReader::open(again(), "state");
    REQUIRE(in);
    CHECK(in->info().iteration == iteration);
    CHECK(in->text("note") == "hello");
    CHECK(in->has("only the first has it") == (iteration == 1));
    CHECK(in->verify());
  }
  auto begun = CheckpointWriter::begin(again(), "state", {.iteration = 3});
  REQUIRE(begun);
  CHECK(code_of(CheckpointReader::open(again(), "state").error()) == Errc::corrupt);
}

TEST_CASE("checkpoint: parts of a file have their names to themselves") {
  const TempFolder temp;
  const auto place = temp.path() / "parts";
  auto out = CheckpointWriter::begin(place, {});
  REQUIRE(out);
  for (const char* part : {"rank/0/", "rank/1/"}) {
    const CheckpointWriter::Within within(**out, part);
    (*out)->text("name", part);
    const CheckpointWriter::Within deeper(**out, "user/");
    (*out)->integer("n", part[5]);
  }
  (*out)->text("name", "outside");
  REQUIRE((*out)->commit());
  auto in = CheckpointReader::open(place);
  REQUIRE(in);
  CHECK(in->text("name") == "outside");
  CHECK(in->below("rank/1/").text("name") == "rank/1/");
  CHECK(in->below("rank/").below("0/user/").integer("n") == '0');
  CHECK_FALSE(in->below("rank/2/").has("name"));
  CHECK(in->below("rank/1/").entries().size() == 2);
  CHECK_THROWS_WITH(in->below("rank/2/").text("name"),
                    doctest::Contains("has no blob 'rank/2/name'"));

  auto copied = CheckpointWriter::begin(temp.path() / "copy", {});
  REQUIRE(copied);
  REQUIRE((*copied)->copy(in->below("rank/1/"), "user/n"));
  CHECK(code_of((*copied)->copy(*in, "absent").error()) == Errc::not_found);
  REQUIRE((*copied)->commit());
  CHECK(CheckpointReader::open(temp.path() / "copy")->integer("user/n") == '1');
}

TEST_CASE("checkpoint: version 1 is read, and written again to the same bytes") {
  const fs::path golden = fs::path(TROUPE_GOLDEN_DIR) / "checkpoint_v1";
  const auto in = CheckpointReader::open(golden);
  REQUIRE_MESSAGE(in, describe(in.error()));
  CHECK(in->verify());
  CHECK(in->info().trial_id == "a1b2c_00000");
  CHECK(in->info().iteration == 3);
  CHECK(in->text("note") == "hello");
  CHECK(in->integer("steps") == 42);
  CHECK(in->number("loss") == 0.25);

  const auto bytes = content(golden / "checkpoint");
  const auto all = std::span(bytes);
  const auto header = all.first(format::kHeaderBytes);
  const auto footer = all.last(format::kFooterBytes);
  const auto frame = format::decode_frame(header, footer, all.size());
  REQUIRE(frame);
  const auto toc = all.subspan(frame->toc_offset, frame->toc_size);
  const auto contents = format::decode_contents(toc, footer, *frame);
  REQUIRE(contents);
  const auto same = [](std::span<const std::byte> a, std::span<const std::byte> b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  };
  CHECK(same(format::encode_header(*frame), header));
  CHECK(same(*format::encode_contents(*contents), toc));
  CHECK(same(format::encode_footer(*frame, toc), footer));
}
