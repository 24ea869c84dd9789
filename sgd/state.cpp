#include "sgd/state.hpp"

#include "sgd/internal/blob_name.hpp"
#include "sgd/internal/dtype.hpp"

#include "sgd/internal/refuse.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <torch/torch.h>

// A module `net` becomes
//   net             "module"
//   net/fc1.weight  tensor; or the text "other.weight" when it is that parameter under a second
//   name
// an optimizer `opt`
//   opt             "optimizer Adam"
//   opt/groups      number of groups
//   opt/0/size      number of parameters of group 0
//   opt/0/lr        option of group 0
//   opt/0/2/step    state of the third parameter of group 0; no such blobs before its first step
namespace troupe::sgd {
namespace {

using internal::blob_name;

using internal::dtype_of;
using internal::dtypes;

using internal::refuse;

std::string describe(DType dtype, c10::IntArrayRef shape) {
  for (const auto& [type, ours] : dtypes())
    if (ours == dtype) return std::string(c10::toString(type)) + " " + c10::str(shape);
  return "bytes without a type";
}

std::vector<std::int64_t> shape_of(const CheckpointEntry& entry) {
  return {entry.shape.begin(), entry.shape.end()};
}

/// The memory of a contiguous tensor on the CPU.
std::span<std::byte> bytes_of(const torch::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

std::string where(const CheckpointReader& in, const std::string& name) {
  return "checkpoint " + in.folder().string() + ": '" + name + "' ";
}

// --- one tensor -----------------------------------------------------------------------------

void save_tensor(CheckpointWriter& out, const std::string& name, const torch::Tensor& tensor) {
  if (!tensor.defined()) refuse("tensor '" + name + "' can't be saved: it is undefined");
  const DType dtype = dtype_of(tensor.scalar_type());
  if (tensor.layout() != torch::kStrided || dtype == DType::none)
    refuse("tensor '" + name + "' can't be saved: it is sparse, quantized or of type " +
           c10::toString(tensor.scalar_type()));
  const torch::Tensor plain =
      tensor.detach().to(torch::kCPU).resolve_conj().resolve_neg().contiguous();
  out.tensor(name, dtype, plain.sizes(), bytes_of(plain));
}

const CheckpointEntry& find(const CheckpointReader& in, const std::string& name) {
  const CheckpointEntry* entry = in.find(name);
  if (entry == nullptr) refuse(where(in, name) + "is missing");
  return *entry;
}

/// Throws unless the blob fits the tensor.
void check_tensor(const CheckpointReader& in, const std::string& name,
                  const torch::Tensor& tensor) {
  const CheckpointEntry& entry = find(in, name);
  const auto shape = shape_of(entry);
  if (entry.dtype != dtype_of(tensor.scalar_type()) || tensor.sizes() != shape)
    refuse(where(in, name) + "is " + describe(entry.dtype, shape) + ", but " +
           describe(dtype_of(tensor.scalar_type()), tensor.sizes()) + " is needed");
}

/// Fills a tensor that `check_tensor` has passed.
void read_tensor(const CheckpointReader& in, const std::string& name, torch::Tensor tensor) {
  const torch::NoGradGuard no_grad;
  const bool direct =
      tensor.is_cpu() && tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
  if (direct) {
    unwrap(in.read(name, bytes_of(tensor)));
    tensor.unsafeGetTensorImpl()->bump_version();  // as any write in place
    return;
  }
  const auto options = torch::TensorOptions().dtype(tensor.scalar_type());
  const torch::Tensor copy = torch::empty(tensor.sizes(), options);
  unwrap(in.read(name, bytes_of(copy)));
  tensor.copy_(copy);
}

bool has_below(const CheckpointReader& in, const std::string& name) {
  const auto& entries = in.entries();  // sorted by name
  const auto at = std::lower_bound(entries.begin(), entries.end(), name + "/",
                                   [](const auto& e, const std::string& n) { return e.name < n; });
  return at != entries.end() && at->name.starts_with(name + "/");
}

void check_kind(const CheckpointReader& in, const std::string& name, const std::string& kind) {
  const CheckpointEntry& entry = find(in, name);
  const std::string found = entry.dtype == DType::none ? in.text(name) : "tensor";
  if (found != kind)
    refuse(where(in, name) + "is of kind \"" + found + "\", but \"" + kind + "\" is needed");
}

/// Every blob below `name` must be wanted.
void check_no_more(const CheckpointReader& in, const std::string& name,
                   const std::set<std::string>& wanted, std::string_view what) {
  for (const auto& entry : in.entries())
    if (entry.name.starts_with(name + "/") && !wanted.contains(entry.name))
      refuse(where(in, entry.name) + "has no place in the " + std::string(what));
}

// --- modules --------------------------------------------------------------------------------

/// A parameter or buffer, and the name that it was first met under.
struct Named {
  std::string name;
  torch::Tensor tensor;
  std::string tied_to;  ///< empty: met for the first time
};

std::vector<Named> tensors_of(const torch::nn::Module& module) {
  std::vector<Named> all;
  std::map<const void*, std::string> met;
  const auto add = [&](const auto& dictionary) {
    for (const auto& item : dictionary) {
      if (!item.value().defined()) continue;
      const auto [at, first] = met.emplace(item.value().unsafeGetTensorImpl(), item.key());
      all.push_back({item.key(), item.value(), first ? "" : at->second});
    }
  };
  add(module.named_parameters());
  add(module.named_buffers());
  return all;
}

// --- optimizers -----------------------------------------------------------------------------

// What an optimizer consists of: each function names every option, or every part of the state of
// one parameter, and hands out a reference to it.

void each(torch::optim::SGDOptions& o, auto&& visit) {
  visit("lr", o.lr());
  visit("momentum", o.momentum());
  visit("dampening", o.dampening());
  visit("weight_decay", o.weight_decay());
  visit("nesterov", o.nesterov());
}
void each(torch::optim::SGDParamState& s, auto&& visit) {
  visit("momentum_buffer", s.momentum_buffer());
}

template <class AdamOptions>
void each_adam(AdamOptions& o, auto&& visit) {
  visit("lr", o.lr());
  visit("beta1", std::get<0>(o.betas()));
  visit("beta2", std::get<1>(o.betas()));
  visit("eps", o.eps());
  visit("weight_decay", o.weight_decay());
  visit("amsgrad", o.amsgrad());
}
template <class AdamState>
void each_adam_state(AdamState& s, auto&& visit) {
  visit("step", s.step());
  visit("exp_avg", s.exp_avg());
  visit("exp_avg_sq", s.exp_avg_sq());
  visit("max_exp_avg_sq", s.max_exp_avg_sq());
}
void each(torch::optim::AdamOptions& o, auto&& visit) { each_adam(o, visit); }
void each(torch::optim::AdamWOptions& o, auto&& visit) { each_adam(o, visit); }
void each(torch::optim::AdamParamState& s, auto&& visit) { each_adam_state(s, visit); }
void each(torch::optim::AdamWParamState& s, auto&& visit) { each_adam_state(s, visit); }

void each(torch::optim::RMSpropOptions& o, auto&& visit) {
  visit("lr", o.lr());
  visit("alpha", o.alpha());
  visit("eps", o.eps());
  visit("weight_decay", o.weight_decay());
  visit("momentum", o.momentum());
  visit("centered", o.centered());
}
void each(torch::optim::RMSpropParamState& s, auto&& visit) {
  visit("step", s.step());
  visit("square_avg", s.square_avg());
  visit("momentum_buffer", s.momentum_buffer());
  visit("grad_avg", s.grad_avg());
}

void each(torch::optim::AdagradOptions& o, auto&& visit) {
  visit("lr", o.lr());
  visit("lr_decay", o.lr_decay());
  visit("weight_decay", o.weight_decay());
  visit("initial_accumulator_value", o.initial_accumulator_value());
  visit("eps", o.eps());
}
void each(torch::optim::AdagradParamState& s, auto&& visit) {
  visit("step", s.step());
  visit("sum", s.sum());
}

using Group = torch::optim::OptimizerParamGroup;
using States = std::decay_t<decltype(std::declval<torch::optim::Optimizer&>().state())>;

std::string key_of(const torch::Tensor& parameter) {
  return c10::guts::to_string(parameter.unsafeGetTensorImpl());
}

/// Writes what `each` hands out.
struct Saver {
  CheckpointWriter& out;
  std::string prefix;

  void operator()(const char* name, double value) const {
    out.number(blob_name(prefix, name), value);
  }
  void operator()(const char* name, bool value) const {
    out.integer(blob_name(prefix, name), value);
  }
  void operator()(const char* name, std::int64_t value) const {
    out.integer(blob_name(prefix, name), value);
  }
  void operator()(const char* name, const torch::Tensor& value) const {
    if (value.defined()) save_tensor(out, blob_name(prefix, name), value);
  }
};

/// Fills what `each` hands out, and notes the names.
struct Loader {
  const CheckpointReader& in;
  std::string prefix;
  std::set<std::string>& wanted;
  torch::Tensor parameter = {};  ///< whose state it is

  std::string want(const char* name) const { return *wanted.insert(blob_name(prefix, name)).first; }

  void operator()(const char* name, double& value) const { value = in.number(want(name)); }
  void operator()(const char* name, bool& value) const { value = in.integer(want(name)) != 0; }
  void operator()(const char* name, std::int64_t& value) const { value = in.integer(want(name)); }
  void operator()(const char* name, torch::Tensor& value) const {
    const std::string full = want(name);
    if (!in.has(full)) return;  // undefined when it was saved
    torch::Tensor loaded = load_tensor(in, full);
    if (loaded.sizes() != parameter.sizes())
      refuse(where(in, full) + "has the shape " + c10::str(loaded.sizes()) +
             ", but its parameter has " + c10::str(parameter.sizes()));
    value = loaded.to(parameter.device());
  }
};

template <class Options, class State>
void save_groups(CheckpointWriter& out, const std::string& name, const std::vector<Group>& groups,
                 const States& states) {
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const std::string group = blob_name(name, std::to_string(g));
    const auto& parameters = groups[g].params();
    out.integer(blob_name(group, "size"), static_cast<std::int64_t>(parameters.size()));
    auto options = static_cast<const Options&>(groups[g].options());
    each(options, Saver{out, group});
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const auto found = states.find(key_of(parameters[i]));
      if (found == states.end()) continue;
      auto state = static_cast<const State&>(*found->second);  // shares its tensors
      each(state, Saver{out, blob_name(group, std::to_string(i))});
    }
  }
}

template <class Options, class State>
void load_groups(const CheckpointReader& in, const std::string& name, std::vector<Group>& groups,
                 States& states) {
  std::set<std::string> wanted{blob_name(name, "groups")};
  std::vector<Options> all_options;
  States new_states;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const std::string group = blob_name(name, std::to_string(g));
    const auto& parameters = groups[g].params();
    const std::string size_name = *wanted.insert(blob_name(group, "size")).first;
    const std::int64_t size = in.integer(size_name);
    if (size != static_cast<std::int64_t>(parameters.size()))
      refuse(where(in, size_name) + "is " + std::to_string(size) + ", but the group has " +
             std::to_string(parameters.size()) + " parameters");
    Options& options = all_options.emplace_back(static_cast<const Options&>(groups[g].options()));
    each(options, Loader{in, group, wanted});
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const std::string prefix = blob_name(group, std::to_string(i));
      if (!has_below(in, prefix)) continue;
      auto state = std::make_unique<State>();
      each(*state, Loader{in, prefix, wanted, parameters[i]});
      new_states[key_of(parameters[i])] = std::move(state);
    }
  }
  check_no_more(in, name, wanted, "optimizer");
  for (std::size_t g = 0; g < groups.size(); ++g)
    static_cast<Options&>(groups[g].options()) = all_options[g];
  states = std::move(new_states);
}

/// Calls `body.operator()<Options, State>()` for the kind of the optimizer.
void for_kind(const std::string& kind, auto&& body) {
  using namespace torch::optim;
  if (kind == "optimizer SGD") return body.template operator()<SGDOptions, SGDParamState>();
  if (kind == "optimizer Adam") return body.template operator()<AdamOptions, AdamParamState>();
  if (kind == "optimizer AdamW") return body.template operator()<AdamWOptions, AdamWParamState>();
  if (kind == "optimizer RMSprop")
    return body.template operator()<RMSpropOptions, RMSpropParamState>();
  return body.template operator()<AdagradOptions, AdagradParamState>();
}

std::string kind_of(const torch::optim::Optimizer& optimizer) {
  using namespace torch::optim;
  if (dynamic_cast<const SGD*>(&optimizer) != nullptr) return "optimizer SGD";
  if (dynamic_cast<const Adam*>(&optimizer) != nullptr) return "optimizer Adam";
  if (dynamic_cast<const AdamW*>(&optimizer) != nullptr) return "optimizer AdamW";
  if (dynamic_cast<const RMSprop*>(&optimizer) != nullptr) return "optimizer RMSprop";
  if (dynamic_cast<const Adagrad*>(&optimizer) != nullptr) return "optimizer Adagrad";
  refuse("this optimizer can't be saved or loaded; SGD, Adam, AdamW, RMSprop and Adagrad can");
}

}  // namespace

void save(CheckpointWriter& out, std::string_view name, const torch::Tensor& tensor) {
  save_tensor(out, std::string(name), tensor);
}

void load(const CheckpointReader& in, std::string_view name, torch::Tensor& tensor) {
  check_tensor(in, std::string(name), tensor);
  read_tensor(in, std::string(name), tensor);
}

torch::Tensor load_tensor(const CheckpointReader& in, std::string_view name) {
  const CheckpointEntry& entry = find(in, std::string(name));
  for (const auto& [type, dtype] : dtypes()) {
    if (dtype != entry.dtype) continue;
    const torch::Tensor tensor = torch::empty(shape_of(entry), torch::TensorOptions(type));
    read_tensor(in, entry.name, tensor);
    return tensor;
  }
  refuse(where(in, entry.name) + "is no tensor");
}

void save(CheckpointWriter& out, std::string_view name, const torch::nn::Module& module) {
  out.text(name, "module");
  for (const auto& [own_name, tensor, tied_to] : tensors_of(module)) {
    if (tied_to.empty())
      save_tensor(out, blob_name(name, own_name), tensor);
    else
      out.text(blob_name(name, own_name), tied_to);
  }
}

void load(const CheckpointReader& in, std::string_view name, torch::nn::Module& module) {
  const std::string prefix(name);
  check_kind(in, prefix, "module");
  const auto tensors = tensors_of(module);
  std::set<std::string> wanted;
  for (const auto& [own_name, tensor, tied_to] : tensors) {
    const std::string full = *wanted.insert(blob_name(prefix, own_name)).first;
    const bool tied = find(in, full).dtype == DType::none;
    if (tied != !tied_to.empty() || (tied && in.text(full) != tied_to))
      refuse(where(in, full) +
             (tied ? "is the same tensor as '" + in.text(full) + "'"
                   : std::string("is a tensor of its own")) +
             ", but not so in the module");
    if (!tied) check_tensor(in, full, tensor);
  }
  check_no_more(in, prefix, wanted, "module");
  for (const auto& [own_name, tensor, tied_to] : tensors)
    if (tied_to.empty()) read_tensor(in, blob_name(prefix, own_name), tensor);
}

void save(CheckpointWriter& out, std::string_view name, const torch::optim::Optimizer& optimizer) {
  const std::string kind = kind_of(optimizer);
  out.text(name, kind);
  const auto& groups = optimizer.param_groups();
  out.integer(blob_name(name, "groups"), static_cast<std::int64_t>(groups.size()));
  for_kind(kind, [&]<class Options, class State>() {
    save_groups<Options, State>(out, std::string(name), groups, optimizer.state());
  });
}

void load(const CheckpointReader& in, std::string_view name, torch::optim::Optimizer& optimizer) {
  const std::string kind = kind_of(optimizer);
  check_kind(in, std::string(name), kind);
  auto& groups = optimizer.param_groups();
  const std::int64_t count = in.integer(blob_name(name, "groups"));
  if (count != static_cast<std::int64_t>(groups.size()))
    refuse(where(in, blob_name(name, "groups")) + "is " + std::to_string(count) +
           ", but the optimizer has " + std::to_string(groups.size()) + " groups of parameters");
  for_kind(kind, [&]<class Options, class State>() {
    load_groups<Options, State>(in, std::string(name), groups, optimizer.state());
  });
}

}  // namespace troupe::sgd
