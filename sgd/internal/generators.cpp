#include "sgd/internal/generators.hpp"

#include "libactor/result.hpp"

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <torch/library.h>
#include <torch/torch.h>

// A thread that uses a RankGenerator has a dispatch key switched on that LibTorch itself leaves
// unused. Every operator falls through it, but for those with an argument `generator`: these get a
// kernel that fills in the rank's generator where the caller has left it out. The generator is
// found through LibTorch's thread-local debug info, which autograd carries to its own threads.
namespace troupe::sgd::internal {
namespace {

constexpr auto kKey = c10::DispatchKey::TESTING_ONLY_GenericMode;
constexpr auto kInfo = c10::DebugInfoKind::TEST_INFO_2;

struct InUse final : c10::DebugInfoBase {
  explicit InUse(at::Generator g) : generator(std::move(g)) {}
  at::Generator generator;
};

/// Where an operator will run: where its first tensor lies, or where it is told to make one.
c10::Device device_of(const c10::FunctionSchema& schema, torch::ArrayRef<c10::IValue> arguments) {
  for (const auto& argument : arguments)
    if (argument.isTensor() && argument.toTensor().defined()) return argument.toTensor().device();
  const auto place = schema.argumentIndexWithName("device");
  if (place && arguments[static_cast<std::size_t>(*place)].isDevice())
    return arguments[static_cast<std::size_t>(*place)].toDevice();
  return torch::kCPU;
}

void fill_in_generator(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                       torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  const std::size_t count = schema.arguments().size();
  const auto place = static_cast<std::size_t>(*schema.argumentIndexWithName("generator"));
  c10::IValue& generator = (*stack)[stack->size() - count + place];
  if (generator.isNone() && device_of(schema, torch::jit::last(*stack, count)).is_cpu())
    if (const auto* in_use = static_cast<InUse*>(c10::ThreadLocalDebugInfo::get(kInfo)))
      generator = in_use->generator;
  op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey), stack);
}

/// Once a process; it changes nothing on threads without the key.
void register_kernels() {
  static const auto libraries = [] {
    std::vector<torch::Library> made;
    made.emplace_back(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
    made.back().fallback(torch::CppFunction::makeFallthrough());
    made.emplace_back(torch::Library::IMPL, "aten", kKey, __FILE__, __LINE__);
    auto& dispatcher = c10::Dispatcher::singleton();
    for (const auto& name : dispatcher.getAllOpNames()) {
      const auto op = dispatcher.findSchema(name);
      if (!op || name.getNamespace() != "aten" || !op->schema().argumentIndexWithName("generator"))
        continue;
      const std::string full =
          name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
      made.back().impl(full.c_str(),
                       torch::CppFunction::makeFromBoxedFunction<&fill_in_generator>());
    }
    return made;
  }();
  (void)libraries;
}

}  // namespace

struct RankGenerator::Impl {
  at::Generator cpu;
  std::optional<at::Generator> gpu;
  std::shared_ptr<InUse> in_use;

  std::vector<at::Generator> all() const { return gpu ? std::vector{cpu, *gpu} : std::vector{cpu}; }
};

RankGenerator::RankGenerator(std::uint64_t seed, torch::Device device)
    : impl_(std::make_shared<Impl>()) {
  register_kernels();
  impl_->cpu = at::detail::createCPUGenerator();
  impl_->in_use = std::make_shared<InUse>(impl_->cpu);
  if (!device.is_cpu()) impl_->gpu = at::globalContext().defaultGenerator(device);
  this->seed(seed);
}

RankGenerator::~RankGenerator() = default;

std::unique_ptr<RankGenerator::Use> RankGenerator::use() { return std::make_unique<Use>(impl_); }

RankGenerator::Use::Use(std::shared_ptr<Impl> impl) : generator_(kInfo, impl->in_use), key_(kKey) {}

void RankGenerator::seed(std::uint64_t seed) {
  for (auto generator : impl_->all()) {
    const std::lock_guard lock(generator.mutex());
    generator.set_current_seed(seed);
  }
}

// The states one after the other: the CPU's, whose size is fixed, then the GPU's.
torch::Tensor RankGenerator::state() const {
  std::vector<torch::Tensor> states;
  for (auto generator : impl_->all()) {
    const std::lock_guard lock(generator.mutex());
    states.push_back(generator.get_state());
  }
  return torch::cat(states);
}

void RankGenerator::set_state(const torch::Tensor& state) {
  // A state from a GPU has its part too; here it may have no use, or be missing.
  std::int64_t place = 0;
  for (auto generator : impl_->all()) {
    const std::lock_guard lock(generator.mutex());
    const auto size = generator.get_state().numel();
    const bool there =
        state.defined() && state.scalar_type() == torch::kUInt8 && state.numel() >= place + size;
    if (!there && place == 0)
      throw Exception(make_error(Errc::bad_request, "the state of a rank's generator must be " +
                                                        std::to_string(size) +
                                                        " bytes or more; it is damaged"));
    if (!there) return;
    generator.set_state(state.flatten().narrow(0, place, size).clone());
    place += size;
  }
}

// The finaliser of splitmix64 (Steele, Lea & Flood 2014), once a number.
std::uint64_t mix_seed(std::uint64_t seed, std::uint64_t rank, std::uint64_t epoch) {
  std::uint64_t mixed = 0;
  for (const std::uint64_t part : {seed, rank, epoch}) {
    mixed += part + 0x9e3779b97f4a7c15;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
    mixed ^= mixed >> 31;
  }
  return mixed;
}

}  // namespace troupe::sgd::internal
