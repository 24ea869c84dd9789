#include "libactor/internal/worker_start.hpp"

namespace troupe::internal {

void write_worker_start(FrameWriter& out, const WorkerStart& start) {
  out.number(start.lease)
      .number(start.incarnation)
      .text(start.entry)
      .text(start.id)
      .text(start.name)
      .text(start.directory);
  const Resources& resources = start.resources;
  out.number(static_cast<std::uint64_t>(resources.cpus.parts()))
      .number(resources.gpus.has_value())
      .number(static_cast<std::uint64_t>(resources.gpus.value_or(0).parts()))
      .number(static_cast<std::uint64_t>(resources.memory_bytes))
      .number(resources.custom.size());
  for (const auto& [name, amount] : resources.custom)
    out.text(name).number(static_cast<std::uint64_t>(amount.parts()));
  out.number(static_cast<std::uint64_t>(start.threads))
      .number(start.seed)
      .number(start.devices.has_value())
      .text(start.devices.value_or(""));
  out.texts_by_name(start.environment).number(start.forward_output);
}

WorkerStart read_worker_start(FrameReader& in) {
  const auto amount = [&] { return Amount::of_parts(static_cast<std::int64_t>(in.number())); };
  WorkerStart start;
  start.lease = in.number();
  start.incarnation = in.number();
  start.entry = in.text();
  start.id = in.text();
  start.name = in.text();
  start.directory = in.text();
  start.resources.cpus = amount();
  const bool has_gpus = in.number() != 0;
  const Amount gpus = amount();
  if (has_gpus) start.resources.gpus = gpus;
  start.resources.memory_bytes = static_cast<std::int64_t>(in.number());
  for (std::size_t left = in.count(); left > 0; --left) {
    std::string name = in.text();
    start.resources.custom[std::move(name)] = amount();
  }
  start.threads = static_cast<int>(in.number());
  start.seed = in.number();
  const bool has_devices = in.number() != 0;
  std::string devices = in.text();
  if (has_devices) start.devices = std::move(devices);
  start.environment = in.texts_by_name<decltype(start.environment)>();
  start.forward_output = in.number() != 0;
  return start;
}

}  // namespace troupe::internal
