#include "libactor/internal/placement.hpp"

#include "libactor/assert.hpp"

#include <algorithm>
#include <array>

namespace troupe::internal {
namespace {

constexpr const char* kMemory = "memory";

/// All that is a plain number, by name; never 0. cpus and custom in ten-thousandths, memory in
/// bytes.
std::map<std::string, std::int64_t> amounts_of(const Resources& resources) {
  std::map<std::string, std::int64_t> amounts;
  if (resources.cpus != Amount()) amounts["cpus"] = resources.cpus.parts();
  if (resources.memory_bytes != 0) amounts[kMemory] = resources.memory_bytes;
  for (const auto& [name, amount] : resources.custom)
    if (amount != Amount()) amounts[name] = amount.parts();
  return amounts;
}

std::int64_t value_or_0(const std::map<std::string, std::int64_t>& amounts,
                        const std::string& name) {
  const auto found = amounts.find(name);
  return found == amounts.end() ? 0 : found->second;
}

Resources resources_of(const std::map<std::string, std::int64_t>& amounts, Amount gpus) {
  Resources resources{.cpus = 0, .gpus = gpus};
  for (const auto& [name, amount] : amounts) {
    if (name == "cpus")
      resources.cpus = Amount::of_parts(amount);
    else if (name == kMemory)
      resources.memory_bytes = amount;
    else
      resources.custom[name] = Amount::of_parts(amount);
  }
  return resources;
}

std::string amount_text(const std::string& name, std::int64_t amount) {
  return name == kMemory ? bytes_text(amount) : Amount::of_parts(amount).text();
}

/// What to do about a request that is larger than any machine.
std::string way_out(const std::string& name) {
  if (name == "cpus" || name == "gpus")
    return "; ask for less, or pretend to have more by --troupe-" + name;
  if (name == kMemory) return "; ask for less";
  return "; check its name, or ask for less";
}

bool wants_devices(const Resources& wanted) { return wanted.gpus && *wanted.gpus != Amount(); }

/// What is taken of each device that is given: 0.5 of one, or all of several.
Amount share_of_each(const Resources& wanted) { return std::min(*wanted.gpus, Amount(1)); }

std::size_t device_count(const Resources& wanted) {
  return static_cast<std::size_t>(std::max<std::int64_t>(1, wanted.gpus->parts() / Amount::kScale));
}

}  // namespace

NodeLedger::NodeLedger(const Resources& total)
    : total_(amounts_of(total)),
      free_(total_),
      free_devices_(total.gpus ? total.gpus->parts() / Amount::kScale : 0, Amount(1)) {}

std::optional<std::vector<int>> NodeLedger::fit(const Resources& wanted) const {
  for (const auto& [name, amount] : amounts_of(wanted))
    if (value_or_0(free_, name) < amount) return std::nullopt;
  std::vector<int> devices;
  if (!wants_devices(wanted)) return devices;
  for (std::size_t i = 0; i < free_devices_.size(); ++i)
    if (free_devices_[i] >= share_of_each(wanted)) devices.push_back(static_cast<int>(i));
  if (devices.size() < device_count(wanted)) return std::nullopt;
  // The fullest that still fit, so that whole ones stay whole.
  std::stable_sort(devices.begin(), devices.end(),
                   [this](int a, int b) { return free_devices_[a] < free_devices_[b]; });
  devices.resize(device_count(wanted));
  return devices;
}

void NodeLedger::take(const Resources& wanted, const std::vector<int>& devices) {
  for (const auto& [name, amount] : amounts_of(wanted)) {
    free_[name] -= amount;
    TROUPE_ASSERT(free_[name] >= 0, name, free_[name]);
  }
  for (int device : devices) {
    free_devices_[device] = free_devices_[device] - share_of_each(wanted);
    TROUPE_ASSERT(free_devices_[device] >= Amount(), device, free_devices_[device].parts());
  }
}

void NodeLedger::give_back(const Resources& wanted, const std::vector<int>& devices) {
  for (const auto& [name, amount] : amounts_of(wanted)) {
    free_[name] += amount;
    TROUPE_ASSERT(free_[name] <= total_[name], name, free_[name]);
  }
  for (int device : devices) {
    free_devices_[device] = free_devices_[device] + share_of_each(wanted);
    TROUPE_ASSERT(free_devices_[device] <= Amount(1), device, free_devices_[device].parts());
  }
}

NodeLedger NodeLedger::emptied() const { return NodeLedger(total()); }

double NodeLedger::shortage(const Resources& wanted) const {
  double missing = 0;
  for (const auto& [name, amount] : amounts_of(wanted))
    missing += static_cast<double>(std::max<std::int64_t>(0, amount - value_or_0(free_, name))) /
               static_cast<double>(amount);
  if (!wants_devices(wanted)) return missing;
  const auto fitting = static_cast<std::size_t>(
      std::count_if(free_devices_.begin(), free_devices_.end(),
                    [&wanted](Amount device) { return device >= share_of_each(wanted); }));
  const std::size_t count = device_count(wanted);
  if (fitting < count) missing += static_cast<double>(count - fitting) / static_cast<double>(count);
  return missing;
}

std::string NodeLedger::what_is_short(const Resources& wanted) const {
  for (const auto& [name, amount] : amounts_of(wanted))
    if (const std::int64_t is_free = value_or_0(free_, name); is_free < amount)
      return name + "=" + amount_text(name, amount) + ": " + amount_text(name, is_free) + " of " +
             amount_text(name, value_or_0(total_, name)) + " free";
  if (fit(wanted)) return {};
  const std::string gpus = "gpus=" + wanted.gpus->text();
  if (*wanted.gpus < Amount(1)) return gpus + ": no device has that much free";
  const auto whole = std::count(free_devices_.begin(), free_devices_.end(), Amount(1));
  return gpus + ": " + std::to_string(whole) + " of " + std::to_string(free_devices_.size()) +
         " devices free";
}

Resources NodeLedger::total() const {
  return resources_of(total_, static_cast<int>(free_devices_.size()));
}

Resources NodeLedger::free() const {
  Amount gpus;
  for (Amount device : free_devices_) gpus = gpus + device;
  return resources_of(free_, gpus);
}

Result<void> Placement::add_node(NodeId id, Resources total) {
  if (auto checked = total.check(); !checked)
    return with_context(checked.error(), "machine " + id.text());
  if (total.gpus && total.gpus->parts() % Amount::kScale != 0)
    return make_error(Errc::bad_request, "machine " + id.text() + " has gpus=" +
                                             total.gpus->text() + "; devices come whole");
  for (const Node& node : nodes_)
    if (node.id == id) return make_error(Errc::bad_request, "machine " + id.text() + " is known");
  nodes_.push_back({std::move(id), NodeLedger(total)});
  return {};
}

Result<void> Placement::request(RequestId id, Resources wanted, Clock::Time now) {
  if (auto checked = wanted.check(); !checked) return checked;
  const bool waits = std::any_of(queue_.begin(), queue_.end(),
                                 [&id](const Waiting& waiting) { return waiting.id == id; });
  if (waits || held_.count(id) != 0)
    return make_error(Errc::bad_request, "there is a request " + id.text() + " already");
  queue_.push_back({std::move(id), std::move(wanted), now});
  return {};
}

std::vector<Grant> Placement::pump() {
  std::vector<Grant> grants;
  std::deque<Waiting> still_waiting;
  bool behind_oldest = false;
  for (Waiting& waiting : queue_) {
    if (auto place = find_place(waiting.wanted, behind_oldest)) {
      nodes_[place->node].ledger.take(waiting.wanted, place->devices);
      grants.push_back({waiting.id, nodes_[place->node].id, waiting.wanted, place->devices});
      held_[waiting.id] = {std::move(*place), std::move(waiting.wanted)};
      continue;
    }
    if (!behind_oldest) behind_oldest = set_aside_for(waiting);
    still_waiting.push_back(std::move(waiting));
  }
  queue_ = std::move(still_waiting);
  if (!behind_oldest) reservation_.reset();
  return grants;
}

bool Placement::release(const RequestId& id) {
  const auto held = held_.find(id);
  if (held == held_.end()) return false;
  const auto& [place, resources] = held->second;
  nodes_[place.node].ledger.give_back(resources, place.devices);
  held_.erase(held);
  return true;
}

bool Placement::cancel(const RequestId& id) {
  if (reservation_ && reservation_->oldest.id == id) reservation_.reset();
  return std::erase_if(queue_, [&id](const Waiting& waiting) { return waiting.id == id; }) != 0;
}

std::vector<Placement::Pending> Placement::pending() const {
  std::vector<Pending> result;
  for (const Waiting& waiting : queue_) {
    const auto never = impossible(waiting.wanted);
    result.push_back({waiting.id, waiting.wanted, waiting.since, never.has_value(),
                      never ? *never : why_waiting(waiting)});
  }
  return result;
}

std::optional<std::string> Placement::impossible(const Resources& wanted) const {
  if (nodes_.empty() || nearest_node(wanted)) return std::nullopt;
  const std::string most = nodes_.size() == 1 ? "this machine has " : "the most that one has is ";
  for (const auto& [name, amount] : amounts_of(wanted)) {
    std::int64_t largest = 0;
    for (const Node& node : nodes_)
      largest = std::max(largest, value_or_0(amounts_of(node.ledger.total()), name));
    if (largest < amount)
      return "no machine has " + name + "=" + amount_text(name, amount) + ": " + most +
             amount_text(name, largest) + way_out(name);
  }
  Amount most_gpus;
  for (const Node& node : nodes_) most_gpus = std::max(most_gpus, *node.ledger.total().gpus);
  if (wanted.gpus && *wanted.gpus > most_gpus)
    return "no machine has gpus=" + wanted.gpus->text() + ": " + most + most_gpus.text() +
           way_out("gpus");
  return "no machine has all of " + wanted.text() +
         ", although each of it is somewhere; ask for less";
}

std::vector<Placement::NodeState> Placement::nodes() const {
  std::vector<NodeState> states;
  for (const Node& node : nodes_)
    states.push_back({node.id, node.ledger.total(), node.ledger.free()});
  return states;
}

std::optional<Placement::Place> Placement::find_place(const Resources& wanted,
                                                      bool behind_oldest) const {
  std::optional<Place> found;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    auto devices = nodes_[i].ledger.fit(wanted);
    if (!devices) continue;
    Place place{i, std::move(*devices)};
    if (behind_oldest && delays_the_oldest(place, wanted)) continue;
    if (wants_devices(wanted) || *nodes_[i].ledger.total().gpus == Amount()) return place;
    if (!found) found = std::move(place);  // has GPUs that this one would waste: only if it must be
  }
  return found;
}

bool Placement::set_aside_for(const Waiting& waiting) {
  const auto node = nearest_node(waiting.wanted);
  if (!node) return false;
  // A machine once chosen stays: were it chosen anew each time, small work could fill one by one.
  if (!reservation_ || reservation_->oldest.id != waiting.id) reservation_ = {waiting, *node};
  return true;
}

bool Placement::delays_the_oldest(const Place& place, const Resources& wanted) const {
  if (!reservation_ || reservation_->node != place.node) return false;
  const Resources& oldest = reservation_->oldest.wanted;
  NodeLedger after = nodes_[place.node].ledger;
  after.take(wanted, place.devices);
  // Of each thing that both need, the oldest must find enough afterwards.
  const auto taken = amounts_of(wanted);
  Resources common = oldest;
  if (taken.count("cpus") == 0) common.cpus = 0;
  if (taken.count(kMemory) == 0) common.memory_bytes = 0;
  std::erase_if(common.custom, [&taken](const auto& item) { return taken.count(item.first) == 0; });
  if (!wants_devices(wanted)) common.gpus.reset();
  return !after.fit(common);
}

std::optional<std::size_t> Placement::nearest_node(const Resources& wanted) const {
  std::optional<std::size_t> nearest;
  double least = 0;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (!nodes_[i].ledger.emptied().fit(wanted)) continue;
    const double missing = nodes_[i].ledger.shortage(wanted);
    if (nearest && missing >= least) continue;
    nearest = i;
    least = missing;
  }
  return nearest;
}

std::string Placement::why_waiting(const Waiting& waiting) const {
  if (nodes_.empty()) return "needs " + waiting.wanted.text() + ": no machine has joined yet";
  const std::size_t node = *nearest_node(waiting.wanted);
  const std::string missing = nodes_[node].ledger.what_is_short(waiting.wanted);
  if (!missing.empty()) return "needs " + missing + " on " + node_name(node);
  if (reservation_ && reservation_->oldest.id != waiting.id)
    return "waits behind " + reservation_->oldest.id.text() + ", which is older and needs " +
           reservation_->oldest.wanted.text();
  return "is about to start";
}

std::string Placement::node_name(std::size_t node) const {
  return nodes_.size() == 1 ? "this machine" : "machine " + nodes_[node].id.text();
}

}  // namespace troupe::internal
