#include "sgd/internal/gradient_buckets.hpp"

#include "libactor/clock.hpp"
#include "sgd/internal/bucket_plan.hpp"
#include "sgd/internal/refuse.hpp"
#include "sgd/internal/same_model.hpp"
#include "sgd/internal/words.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <utility>

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/torch.h>

// Gradients lie in one tensor a type and device, the `gradients` of an Arena, bucket after bucket;
// each parameter's `.grad` is a slice of it. What travels is the Arena's `wire`, the same tensor
// unless it is compressed. In `wire` a bucket's gradients are followed by its marks, which are
// averaged with them and tell all ranks the same:
//
//   for each member   > 0: some rank has used it
//   for each member   > 0: some rank has missed it, without leave
//   for each rank     > 0: that rank has missed some
namespace troupe::sgd::internal {
namespace {

constexpr std::int64_t kLineBytes = 64;  // buckets begin at such addresses

const char* name_of(Average average) {
  return average == Average::by_sample ? "by_sample" : "by_rank";
}

const char* name_of(Compression compression) {
  switch (compression) {
    case Compression::none: break;
    case Compression::fp16: return "fp16";
    case Compression::bf16: return "bf16";
  }
  return "none";
}

std::string describe(const DdpOptions& options) {
  return std::string("average ") + name_of(options.average) + ", find_unused_parameters " +
         (options.find_unused_parameters ? "on" : "off") + ", broadcast_buffers " +
         (options.broadcast_buffers ? "on" : "off") + ", bucket_bytes " +
         std::to_string(options.bucket_bytes) + ", first_bucket_bytes " +
         std::to_string(options.first_bucket_bytes) + ", compression " +
         name_of(options.compression);
}

/// The type in which gradients of `type` travel.
torch::ScalarType wire_type(torch::ScalarType type, Compression compression) {
  if (compression == Compression::none || (type != torch::kFloat32 && type != torch::kFloat64))
    return type;
  return compression == Compression::fp16 ? torch::kFloat16 : torch::kBFloat16;
}

bool is_exchangeable(torch::ScalarType type) {
  return type == torch::kFloat32 || type == torch::kFloat64 || type == torch::kFloat16 ||
         type == torch::kBFloat16;
}

/// "'a', 'b' and 5 more".
std::string name_some(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kShown); ++i)
    text += (i == 0 ? "'" : ", '") + names[i] + "'";
  if (names.size() > kShown) text += " and " + std::to_string(names.size() - kShown) + " more";
  return text;
}

std::int64_t ns(Clock::Time::duration time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
}

}  // namespace

struct GradientBuckets::Impl {
  struct Arena {
    torch::Tensor gradients = {};
    torch::Tensor wire = {};
  };
  struct Parameter {
    std::string name = {};
    torch::Tensor tensor = {};
    int arena = 0;
    torch::Tensor slot = {};  // the place of its gradient
    std::size_t bucket = 0;
    std::shared_ptr<torch::autograd::Node> accumulator = {};  // its hook lives no longer than this
    std::uintptr_t hook = 0;
    bool reached = false;  // by a pass, since the last exchange
    bool used = false;     // and with a gradient
    bool arrived = false;  // in this pass

    /// By memory: `Module::zero_grad` makes `.grad` another tensor of the same memory.
    bool in_slot() const {
      const torch::Tensor& gradient = tensor.grad();
      return gradient.defined() && gradient.layout() == torch::kStrided &&
             gradient.data_ptr() == slot.data_ptr() && gradient.strides() == slot.strides();
    }
  };
  struct Bucket {
    std::vector<std::size_t> members = {};
    torch::Tensor gradients = {};
    torch::Tensor wire = {};  // gradients and marks
    std::size_t waits_for = 0;
    Exchange::Ticket ticket = {};
  };
  /// A backward pass, from its first gradient here to the end of its callbacks; also when it ends
  /// with an error, since only the engine owns it.
  struct Pass {
    bool sync = true;
    double weight = 1;
    bool zeros = false;  // this rank has nothing to give, and counts as in PyTorch's DDP
    bool shadow = false;
    const void* graph = nullptr;  // which backward pass it is, for the engine
  };

  Impl(std::string model_name, torch::nn::Module& a_model, Collectives& all, DdpOptions opt);
  ~Impl();

  std::vector<std::size_t> registration_order() const;
  void make_arenas();
  void make_buckets(std::span<const std::size_t> order);
  void add_hooks();

  void arrive(Parameter& parameter, bool has_gradient);
  std::shared_ptr<Pass> pass_of_engine();
  void begin(const Pass& pass);
  void take_gradient(Parameter& parameter);
  void start_full_buckets();
  void start(Bucket& bucket);
  void start_rest();
  void finish();
  void share_order();
  void rebuild();
  double weight_of(bool shadow) const;

  const std::string name;
  const std::string here;  // "model 'net': ", for sentences
  torch::nn::Module& model;
  Collectives& collectives;
  const DdpOptions options;
  SystemClock clock;

  std::vector<Parameter> parameters = {};
  std::vector<NamedTensor> frozen = {};  // at construction
  std::vector<Arena> arenas = {};
  std::vector<Bucket> buckets = {};
  std::uint32_t channel = 0;

  double weight = 1;
  bool sync = true;

  std::mutex mutex = {};  // a GPU's hooks run on a thread of the engine
  std::weak_ptr<Pass> engine_pass = {};
  Pass pass = {};                       // the one that is exchanged now
  std::vector<std::size_t> order = {};  // in which its gradients have come
  std::size_t next_bucket = 0;
  bool exchanging = false;
  Clock::Time exchange_began = {};

  torch::Tensor shared_order = {};  // rank 0's
  std::optional<Exchange::Ticket> order_ticket = {};
  bool may_rebuild = false;
  Stats stats = {};
};

// --- construction ---------------------------------------------------------------------------

GradientBuckets::Impl::Impl(std::string model_name, torch::nn::Module& a_model, Collectives& all,
                            DdpOptions opt)
    : name(std::move(model_name)),
      here("model '" + name + "': "),
      model(a_model),
      collectives(all),
      options(opt),
      may_rebuild(!opt.find_unused_parameters) {
  check_same_model(name, model, describe(options), collectives);
  std::vector<torch::Tensor> all_tensors = buffers_of(model);
  for (auto& [own_name, tensor] : parameters_of(model)) {
    all_tensors.push_back(tensor);
    if (!tensor.requires_grad())
      frozen.push_back({own_name, tensor});
    else if (!is_exchangeable(tensor.scalar_type()))
      refuse(here + "parameter '" + own_name + "' is of type " +
             c10::toString(tensor.scalar_type()) +
             "; gradients of float32, float64, float16 and bfloat16 can be averaged");
    else
      parameters.push_back({.name = own_name, .tensor = tensor});
  }
  if (parameters.empty())
    refuse(here + "no parameter is trainable, so there is nothing to train over several ranks");
  broadcast_tensors(all_tensors, collectives);
  channel = collectives.open_channel("the gradients of '" + name + "'");
  shared_order = collectives.allocate(static_cast<std::int64_t>(parameters.size()), torch::kFloat64,
                                      torch::kCPU);
  make_arenas();
  auto reversed = registration_order();
  std::ranges::reverse(reversed);
  make_buckets(reversed);
  add_hooks();
}

GradientBuckets::Impl::~Impl() {
  const torch::NoGradGuard no_grad;
  for (auto& parameter : parameters) {
    if (parameter.accumulator) parameter.accumulator->del_post_hook(parameter.hook);
    // After a failure another rank may still write to the memory of the exchange.
    if (parameter.in_slot()) parameter.tensor.mutable_grad() = parameter.slot.clone();
  }
}

std::vector<std::size_t> GradientBuckets::Impl::registration_order() const {
  std::vector<std::size_t> indices(parameters.size());
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

void GradientBuckets::Impl::make_arenas() {
  std::map<std::pair<torch::ScalarType, std::string>, int> ids;
  std::vector<std::vector<const Parameter*>> members;
  for (auto& parameter : parameters) {
    const auto kind = std::pair(parameter.tensor.scalar_type(), parameter.tensor.device().str());
    parameter.arena = ids.try_emplace(kind, static_cast<int>(ids.size())).first->second;
    members.resize(ids.size());
    members[static_cast<std::size_t>(parameter.arena)].push_back(&parameter);
  }
  for (const auto& of_kind : members) {
    // Room for the worst case: a bucket for each parameter, with its marks and a gap.
    std::int64_t size = 0;
    for (const auto* parameter : of_kind)
      size += parameter->tensor.numel() + 2 + collectives.world_size() + kLineBytes;
    const torch::Tensor& like = of_kind[0]->tensor;
    const auto type = wire_type(like.scalar_type(), options.compression);
    Arena arena;
    arena.wire = collectives.allocate(size, type, like.device());
    arena.gradients = type == like.scalar_type()
                          ? arena.wire
                          : torch::zeros({size}, like.options().requires_grad(false));
    arenas.push_back(arena);
  }
}

void GradientBuckets::Impl::make_buckets(std::span<const std::size_t> order_of_arrival) {
  const torch::NoGradGuard no_grad;
  std::vector<Gradient> gradients;
  std::vector<torch::Tensor> kept;  // what lies in the slots that there are now
  for (const auto& p : parameters) {
    gradients.push_back({static_cast<std::int64_t>(p.tensor.nbytes()), p.arena});
    kept.push_back(p.slot.defined() && p.in_slot() ? p.slot.clone() : torch::Tensor());
  }
  buckets.clear();
  std::vector<std::int64_t> ends(arenas.size(), 0);
  for (auto& members : plan_buckets(gradients, order_of_arrival, options.first_bucket_bytes,
                                    options.bucket_bytes)) {
    const auto arena_index = static_cast<std::size_t>(parameters[members[0]].arena);
    const Arena& arena = arenas[arena_index];
    const std::int64_t begin = ends[arena_index];
    std::int64_t end = begin;
    for (const std::size_t index : members) {
      Parameter& p = parameters[index];
      const torch::Tensor& t = p.tensor;
      const std::int64_t offset = arena.gradients.storage_offset() + end;
      // Strides as autograd wants them. Detached, or `zero_grad` would refuse a view.
      p.slot = (t.is_non_overlapping_and_dense()
                    ? arena.gradients.as_strided(t.sizes(), t.strides(), offset)
                    : arena.gradients.narrow(0, end, t.numel()).view(t.sizes()))
                   .detach();
      p.bucket = buckets.size();
      end += t.numel();
      if (!kept[index].defined()) continue;
      p.slot.copy_(kept[index]);
      p.tensor.mutable_grad() = p.slot;
    }
    const std::int64_t marks =
        2 * static_cast<std::int64_t>(members.size()) + collectives.world_size();
    Bucket bucket;
    bucket.members = std::move(members);
    bucket.gradients = arena.gradients.narrow(0, begin, end - begin);
    bucket.wire = arena.wire.narrow(0, begin, end - begin + marks);
    const std::int64_t line = kLineBytes / arena.wire.element_size();
    ends[arena_index] = (end + marks + line - 1) / line * line;
    buckets.push_back(std::move(bucket));
  }
}

void GradientBuckets::Impl::add_hooks() {
  using torch::autograd::variable_list;
  for (auto& parameter : parameters) {
    parameter.accumulator = torch::autograd::impl::grad_accumulator(parameter.tensor);
    parameter.hook = parameter.accumulator->add_post_hook(
        std::make_unique<torch::autograd::utils::LambdaPostHook>(
            [this, &parameter](const variable_list& outputs, const variable_list& inputs) {
              arrive(parameter, inputs[0].defined());
              return outputs;
            }));
  }
}

// --- a pass ---------------------------------------------------------------------------------

/// A pass has put its gradient into the parameter's `.grad`.
void GradientBuckets::Impl::arrive(Parameter& parameter, bool has_gradient) {
  const std::lock_guard lock(mutex);
  if (torch::GradMode::is_enabled())
    refuse(here + "parameter '" + parameter.name +
           "' is reached by backward(create_graph = true), whose gradients can't be averaged; take "
           "torch::autograd::grad for derivatives of gradients");
  if (has_gradient && parameter.tensor.grad().layout() != torch::kStrided)
    refuse(here + "parameter '" + parameter.name +
           "' has a sparse gradient, which can't be averaged; make its embedding with sparse = "
           "false");
  const auto current = pass_of_engine();
  parameter.reached = true;
  parameter.used = parameter.used || has_gradient;
  if (!current->sync) return;
  parameter.arrived = true;
  take_gradient(parameter);
  order.push_back(static_cast<std::size_t>(&parameter - parameters.data()));
  --buckets[parameter.bucket].waits_for;
  start_full_buckets();
}

std::shared_ptr<GradientBuckets::Impl::Pass> GradientBuckets::Impl::pass_of_engine() {
  const void* graph = torch::autograd::get_current_graph_task_nodes_in_graph();
  if (auto current = engine_pass.lock()) {
    if (current->graph != graph)
      refuse(here +
             "a backward pass within another one can't be averaged, when both reach the "
             "model");
    return current;
  }
  auto begun =
      std::make_shared<Pass>(Pass{.sync = sync,
                                  .weight = weight_of(false),
                                  .zeros = options.average == Average::by_rank && weight == 0,
                                  .graph = graph});
  if (sync) begin(*begun);
  engine_pass = begun;
  // In two steps, since another model may have callbacks of its own in this pass, in another order
  // than on other ranks: all is started before anybody waits.
  auto& engine = torch::autograd::Engine::get_default_engine();
  engine.queue_callback([this, begun, &engine] {
    if (!begun->sync) {
      engine_pass.reset();
      return;
    }
    start_rest();
    engine.queue_callback([this, begun] {
      engine_pass.reset();
      finish();
    });
  });
  return begun;
}

double GradientBuckets::Impl::weight_of(bool shadow) const {
  if (options.average == Average::by_rank) return 1;
  const bool nothing = std::ranges::none_of(parameters, &Parameter::reached);
  return shadow && nothing ? 0 : weight;
}

void GradientBuckets::Impl::begin(const Pass& begun) {
  if (exchanging)
    refuse(here +
           "the backward pass before ended with an error while gradients were exchanged: the "
           "group of ranks must be made anew");
  for (const auto& [own_name, tensor] : frozen)
    if (tensor.requires_grad())
      refuse(here + "parameter '" + own_name +
             "' was frozen when the model was registered and is trainable now; register the model "
             "with all parameters trainable, and freeze them afterwards");
  if (order_ticket) rebuild();
  pass = begun;
  order.clear();
  next_bucket = 0;
  for (auto& parameter : parameters) parameter.arrived = false;
  for (auto& bucket : buckets) bucket.waits_for = bucket.members.size();
}

/// Into its slot, if it does not lie there.
void GradientBuckets::Impl::take_gradient(Parameter& parameter) {
  auto& gradient = parameter.tensor.mutable_grad();
  if (!gradient.defined()) {
    parameter.slot.zero_();
  } else if (!parameter.in_slot()) {
    parameter.slot.copy_(gradient);
    gradient = parameter.slot;
  }
}

/// In the order of their indices, which is the same on all ranks.
void GradientBuckets::Impl::start_full_buckets() {
  while (next_bucket < buckets.size() && buckets[next_bucket].waits_for == 0)
    start(buckets[next_bucket++]);
}

void GradientBuckets::Impl::start(Bucket& bucket) {
  if (pass.zeros) bucket.gradients.zero_();
  const std::size_t count = bucket.members.size();
  std::vector<float> marks(2 * count + static_cast<std::size_t>(collectives.world_size()), 0.F);
  for (std::size_t i = 0; i < count; ++i) {
    const Parameter& member = parameters[bucket.members[i]];
    const bool missing = !member.reached && !pass.shadow && member.tensor.requires_grad();
    if (member.used && !pass.zeros) marks[i] = 1;
    if (!missing) continue;
    marks[count + i] = 1;
    marks[2 * count + static_cast<std::size_t>(collectives.rank())] = 1;
  }
  const std::int64_t size = bucket.gradients.numel();
  if (bucket.gradients.scalar_type() != bucket.wire.scalar_type())
    bucket.wire.narrow(0, 0, size).copy_(bucket.gradients);
  bucket.wire.narrow(0, size, static_cast<std::int64_t>(marks.size())).copy_(torch::tensor(marks));
  if (!exchanging) exchange_began = clock.now();
  exchanging = true;
  bucket.ticket = collectives.start_average(channel, bucket.wire, pass.weight);
}

/// What this pass has not reached.
void GradientBuckets::Impl::start_rest() {
  const torch::NoGradGuard no_grad;
  for (auto& parameter : parameters)
    if (!parameter.arrived) take_gradient(parameter);
  for (auto& bucket : buckets) bucket.waits_for = 0;
  start_full_buckets();
}

void GradientBuckets::Impl::finish() {
  const torch::NoGradGuard no_grad;
  const auto began = clock.now();
  for (const auto& bucket : buckets) collectives.wait(bucket.ticket);
  exchanging = false;
  ++stats.passes;
  stats.waited_ns += ns(clock.now() - began);
  stats.exchange_ns += ns(clock.now() - exchange_began);

  std::vector<std::string> missed;
  std::vector<int> missing_ranks;
  for (auto& bucket : buckets) {
    const std::int64_t size = bucket.gradients.numel();
    if (bucket.gradients.scalar_type() != bucket.wire.scalar_type())
      bucket.gradients.copy_(bucket.wire.narrow(0, 0, size));
    const torch::Tensor marks =
        bucket.wire.narrow(0, size, bucket.wire.numel() - size).to(torch::kCPU, torch::kFloat64);
    const double* mark = marks.data_ptr<double>();
    const std::size_t count = bucket.members.size();
    for (std::size_t i = 0; i < count; ++i) {
      Parameter& member = parameters[bucket.members[i]];
      const bool has_gradient = mark[i] > 0 || member.slot.any().item<bool>();
      member.tensor.mutable_grad() = has_gradient ? member.slot : torch::Tensor();
      member.reached = member.used = false;
      if (mark[count + i] > 0) missed.push_back(member.name);
    }
    for (int rank = 0; rank < collectives.world_size(); ++rank)
      if (mark[2 * count + static_cast<std::size_t>(rank)] > 0 &&
          std::ranges::find(missing_ranks, rank) == missing_ranks.end())
        missing_ranks.push_back(rank);
  }
  if (!missed.empty() && !options.find_unused_parameters) {
    std::ranges::sort(missing_ranks);
    refuse(here + (missed.size() == 1 ? "parameter " : "parameters ") + name_some(missed) +
           " got no gradient in this backward pass on " + name_ranks(missing_ranks) +
           "; freeze what takes no part, or set find_unused_parameters in the ddp options");
  }
  if (may_rebuild) share_order();
}

// --- buckets in rank 0's order --------------------------------------------------------------

/// An average of which rank 0 has all the weight.
void GradientBuckets::Impl::share_order() {
  may_rebuild = false;
  for (const std::size_t index : registration_order())
    if (std::ranges::find(order, index) == order.end()) order.push_back(index);
  const std::vector<double> places(order.begin(), order.end());
  shared_order.copy_(torch::tensor(places, torch::kFloat64));
  order_ticket = collectives.start_average(channel, shared_order, collectives.rank() == 0 ? 1 : 0);
}

void GradientBuckets::Impl::rebuild() {
  collectives.wait(*order_ticket);  // all have started it: nobody is late by a pass
  order_ticket.reset();
  const double* places = shared_order.data_ptr<double>();
  std::vector<std::size_t> order_of_rank_0;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    order_of_rank_0.push_back(static_cast<std::size_t>(places[i]));
  make_buckets(order_of_rank_0);
}

// --- the class ------------------------------------------------------------------------------

GradientBuckets::GradientBuckets(std::string model_name, torch::nn::Module& model,
                                 Collectives& collectives, DdpOptions options) {
  if (collectives.world_size() > 1)
    impl_ = std::make_unique<Impl>(std::move(model_name), model, collectives, options);
}

GradientBuckets::~GradientBuckets() = default;

void GradientBuckets::set_weight(double samples) {
  if (!std::isfinite(samples) || samples < 0)
    refuse("the weight of a rank's gradients must be a number of samples, not " +
           std::to_string(samples));
  if (impl_) impl_->weight = samples;
}

void GradientBuckets::set_sync(bool sync) {
  if (impl_) impl_->sync = sync;
}

void GradientBuckets::shadow() {
  if (!impl_) return;
  const torch::NoGradGuard no_grad;
  impl_->begin({.weight = impl_->weight_of(true), .shadow = true});
  impl_->start_rest();
  impl_->finish();
}

void GradientBuckets::broadcast_buffers() {
  if (impl_) broadcast_tensors(buffers_of(impl_->model), impl_->collectives);
}

const GradientBuckets::Stats& GradientBuckets::stats() const {
  static const Stats none;
  return impl_ ? impl_->stats : none;
}

std::vector<std::int64_t> GradientBuckets::bucket_bytes() const {
  std::vector<std::int64_t> bytes;
  if (impl_)
    for (const auto& bucket : impl_->buckets)
      bytes.push_back(static_cast<std::int64_t>(bucket.gradients.nbytes()));
  return bytes;
}

}  // namespace troupe::sgd::internal
