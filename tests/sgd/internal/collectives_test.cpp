#include "sgd/internal/collectives.hpp"

#include "sgd/internal/thread_mail.hpp"

#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <torch/torch.h>

using namespace troupe;
using namespace troupe::sgd::internal;
using namespace std::chrono_literals;

namespace {

/// Runs `body` on a thread for each rank; what it throws comes back as text.
std::vector<std::string> each_rank(int world_size, const std::function<void(Collectives&)>& body) {
  LocalGroup group(world_size, 1, comm_threads());
  std::vector<std::string> errors(static_cast<std::size_t>(world_size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank)
    threads.emplace_back([&, rank] {
      Collectives collectives(group.exchange(rank), 60s);
      const auto ran = fence(Errc::user_code, [&] { body(collectives); });
      if (!ran) {
        errors[static_cast<std::size_t>(rank)] = describe(ran.error());
        group.fail(ran.error());
      }
    });
  for (auto& thread : threads) thread.join();
  return errors;
}

void must(bool holds, const std::string& what) {
  if (!holds) throw Exception(make_error(Errc::user_code, what));
}

void check_ranks(int world_size, const std::function<void(Collectives&)>& body) {
  for (const auto& error : each_rank(world_size, body)) CHECK(error == "");
}

/// A tensor that depends on the rank.
torch::Tensor values(torch::IntArrayRef shape, int rank, torch::ScalarType type = torch::kFloat) {
  const std::int64_t count = c10::multiply_integers(shape);
  return (torch::arange(count) % 11 + rank).reshape(shape).to(type);
}

}  // namespace

TEST_CASE("collectives: tensors of any shape, stride and type are reduced in place") {
  for (const int world_size : {1, 2, 3})
    check_ranks(world_size, [&](Collectives& group) {
      for (const auto type : {torch::kFloat, torch::kDouble, torch::kBFloat16, torch::kHalf,
                              torch::kLong, torch::kInt, torch::kByte}) {
        const auto of = [&](int rank) { return values({6, 50, 7}, rank, type); };
        auto sum = torch::zeros({6, 50, 7}, type);
        auto greatest = of(world_size - 1);
        for (int rank = 0; rank < world_size; ++rank) sum = sum + of(rank);

        auto plain = of(group.rank());
        group.all_reduce(plain, Reduce::sum);
        must(plain.equal(sum), "sum");
        auto turned = of(group.rank()).transpose(0, 2).contiguous().transpose(0, 2);
        const auto strides = turned.strides().vec();
        group.all_reduce(turned, Reduce::sum);
        must(turned.equal(sum) && turned.strides() == strides, "sum of a turned tensor");
        auto whole = torch::zeros({6, 50, 9}, type);
        auto part = whole.slice(2, 1, 8);
        part.copy_(of(group.rank()));
        group.all_reduce(part, Reduce::max);
        must(part.equal(greatest), "greatest of a part");
        must(whole.select(2, 0).eq(0).all().item<bool>(), "what lies beside it stays");
        auto number = torch::full({}, group.rank() + 1, type);
        group.all_reduce(number, Reduce::min);
        must(number.item<double>() == (world_size == 1 ? group.rank() + 1 : 1), "least number");
        auto nothing = torch::empty({0, 3}, type);
        group.all_reduce(nothing, Reduce::sum);
      }
    });
}

TEST_CASE("collectives: complex and boolean tensors have the operations that they have") {
  check_ranks(2, [](Collectives& group) {
    auto number = torch::full({3}, 1.0, torch::kComplexFloat) * c10::complex<float>(1, 2);
    auto conjugate = number.conj();
    group.all_reduce(conjugate, Reduce::sum);
    must(torch::view_as_real(number).select(1, 1).eq(4).all().item<bool>(), "a conjugate's sum");
    auto flags = torch::tensor({group.rank() == 0, true, false});
    group.all_reduce(flags, Reduce::min);
    must(flags.equal(torch::tensor({false, true, false})), "all");
  });
  for (const auto& error : each_rank(2, [](Collectives& group) {
         group.all_reduce(torch::ones({2}, torch::kLong), Reduce::average);
       }))
    CHECK(error.find("bad request: there is no such thing as an average of 2 int64") == 0);
}

TEST_CASE("collectives: broadcast gives all ranks the root's values, gather all of them in order") {
  check_ranks(3, [](Collectives& group) {
    auto tensor = values({40, 5}, group.rank());
    group.broadcast(tensor, 2);
    must(tensor.equal(values({40, 5}, 2)), "broadcast");
    const auto gathered = group.all_gather(values({4, 3}, group.rank()).t());
    must(gathered.sizes() == torch::IntArrayRef({3, 3, 4}), "shape");
    for (int rank = 0; rank < 3; ++rank)
      must(gathered[rank].equal(values({4, 3}, rank).t()), "gathered");
    must(group.all_gather(torch::tensor(7)).sizes() == torch::IntArrayRef({3}), "of a number");
    group.barrier();
  });
}

TEST_CASE("collectives: a leaf that requires gradients takes part, and its graph learns of it") {
  check_ranks(2, [](Collectives& group) {
    auto weight = torch::ones({3}, torch::requires_grad());
    auto square = weight * weight;
    group.broadcast(weight, 0);
    must(weight.requires_grad() && weight.is_leaf(), "it stays a leaf");
    bool told = false;
    try {
      square.sum().backward();
    } catch (const std::exception&) {
      told = true;
    }
    must(told, "a value that backward needs was overwritten, and nobody said so");
  });
}

TEST_CASE("collectives: averages run beside each other, weighted, without a copy") {
  for (const int world_size : {1, 2, 3})
    check_ranks(world_size, [&](Collectives& group) {
      const auto channel = group.open_channel("gradients");
      std::vector<torch::Tensor> buckets;
      std::vector<Exchange::Ticket> tickets;
      for (const std::int64_t count : {1, 1000, 50'000}) {
        auto bucket = group.allocate(count, torch::kFloat, torch::kCPU);
        must(bucket.eq(0).all().item<bool>(), "zeroed");
        bucket.fill_(group.rank() + 1);
        buckets.push_back(bucket);
      }
      for (auto& bucket : buckets) {
        const void* before = bucket.data_ptr();
        tickets.push_back(group.start_average(channel, bucket, group.rank() == 0 ? 3 : 1));
        must(bucket.data_ptr() == before, "it stays where it is");
      }
      for (const auto ticket : tickets) group.wait(ticket);
      // (3·1 + 1·2 + 1·3) / 5
      const float right = world_size == 1 ? 1 : world_size == 2 ? 1.25F : 1.6F;
      for (const auto& bucket : buckets)
        must(bucket.sub(right).abs().max().item<float>() < 1e-6, "average");
      must(group.waited_ns() > 0 || world_size == 1, "time is counted");
    });
}

TEST_CASE("collectives: an average of what others can't reach goes through memory that they can") {
  check_ranks(2, [](Collectives& group) {
    auto one = torch::full({100}, group.rank() + 1.0);
    auto two = torch::full({300'000}, group.rank() + 2.0);
    const auto first = group.start_average(0, one, 1);
    const auto second = group.start_average(0, two, 1);
    group.wait(second);
    group.wait(first);
    must(one.eq(1.5).all().item<bool>() && two.eq(2.5).all().item<bool>(), "average");
  });
}

TEST_CASE("collectives: tensors of the group outlive it") {
  torch::Tensor kept;
  {
    LocalGroup group(2, 1, comm_threads());
    Collectives collectives(group.exchange(0), 1s);
    kept = collectives.allocate(1000, torch::kFloat, torch::kCPU);
  }
  kept.fill_(3);
  CHECK(kept.sum().item<float>() == 3000);
}

TEST_CASE("collectives: what fails throws the group's error on every rank") {
  const auto errors = each_rank(2, [](Collectives& group) {
    auto tensor = torch::ones({group.rank() == 0 ? 3 : 4});
    group.all_reduce(tensor, Reduce::sum);
  });
  CHECK(errors[0] == errors[1]);
  CHECK(errors[0].find("a sum of 3 float32 for rank 0 and a sum of 4 float32 for rank 1") !=
        std::string::npos);
  for (const auto& error :
       each_rank(2, [](Collectives& group) { group.all_reduce(torch::Tensor(), Reduce::sum); }))
    CHECK(error.starts_with("bad request: a collective was given an undefined tensor"));
}
