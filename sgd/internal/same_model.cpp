#include "sgd/internal/same_model.hpp"

#include "sgd/internal/refuse.hpp"
#include "sgd/internal/words.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include <torch/torch.h>

namespace troupe::sgd::internal {
namespace {

/// A module in words, one line a parameter or buffer, in the order of registration.
struct Description {
  std::vector<std::string> lines = {};
  std::int64_t trainable = 0;
};

Description describe(const torch::nn::Module& model, const std::string& options) {
  Description description;
  std::map<const c10::TensorImpl*, std::string> names;
  const auto add = [&](const char* what, const std::string& name, const torch::Tensor& tensor) {
    std::string line = std::string(what) + " '" + name + "' (";
    const auto [first, is_new] = names.try_emplace(tensor.unsafeGetTensorImpl(), name);
    if (!is_new) {
      description.lines.push_back(line + "the same as '" + first->second + "')");
      return;
    }
    line += std::string(c10::toString(tensor.scalar_type())) + " " + c10::str(tensor.sizes());
    if (!tensor.is_contiguous()) line += " with strides " + c10::str(tensor.strides());
    if (*what == 'p') {
      line += tensor.requires_grad() ? ", trainable" : ", frozen";
      description.trainable += tensor.requires_grad() ? 1 : 0;
    }
    description.lines.push_back(line + ")");
  };
  for (const auto& entry : model.named_parameters())
    if (entry.value().defined()) add("parameter", entry.key(), entry.value());
  for (const auto& entry : model.named_buffers())
    if (entry.value().defined()) add("buffer", entry.key(), entry.value());
  description.lines.push_back("the options " + options);
  return description;
}

std::string join_lines(const std::vector<std::string>& lines) {
  std::string text;
  for (const auto& line : lines) text += line + "\n";
  return text;
}

std::vector<std::string> split_lines(std::string_view text) {
  std::vector<std::string> lines;
  for (std::size_t end = 0; (end = text.find('\n')) != std::string_view::npos;
       text.remove_prefix(end + 1))
    lines.emplace_back(text.substr(0, end));
  return lines;
}

/// Each rank's text, on all ranks; `size` is the longest one's.
std::vector<std::string> gather_texts(const std::string& text, std::int64_t size,
                                      Collectives& collectives) {
  torch::Tensor mine = torch::zeros({size}, torch::kUInt8);
  std::memcpy(mine.data_ptr(), text.data(), text.size());
  const torch::Tensor all = collectives.all_gather(mine).contiguous();
  std::vector<std::string> texts;
  for (std::int64_t rank = 0; rank < all.size(0); ++rank)
    texts.emplace_back(reinterpret_cast<const char*>(all.data_ptr<std::uint8_t>()) + rank * size);
  return texts;
}

/// "x on rank 0; y on ranks 1 and 2": the ranks that have the same together.
std::string by_rank(const std::vector<std::string>& values) {
  std::vector<std::pair<std::string, std::vector<int>>> groups;
  for (std::size_t rank = 0; rank < values.size(); ++rank) {
    auto group = std::ranges::find(groups, values[rank], [](const auto& g) { return g.first; });
    if (group == groups.end()) group = groups.insert(group, {values[rank], {}});
    group->second.push_back(static_cast<int>(rank));
  }
  std::string text;
  for (const auto& [value, ranks] : groups)
    text += (text.empty() ? "" : "; ") + value + " on " + name_ranks(ranks);
  return text;
}

}  // namespace

void check_same_model(const std::string& model_name, const torch::nn::Module& model,
                      const std::string& options, Collectives& collectives) {
  const Description mine = describe(model, options);
  const std::string text = "model '" + model_name + "'\n" + join_lines(mine.lines);
  const auto hash = static_cast<std::int64_t>(std::hash<std::string>{}(text));
  const torch::Tensor sums = collectives.all_gather(
      torch::tensor({hash, static_cast<std::int64_t>(text.size()), mine.trainable}));
  if (sums.eq(sums[0]).all().item<bool>()) return;

  const auto size = sums.select(1, 1).max().item<std::int64_t>() + 1;  // a NUL ends each
  std::vector<std::vector<std::string>> texts;
  for (const auto& one : gather_texts(text, size, collectives)) texts.push_back(split_lines(one));
  std::size_t line = 0;  // the first that differs
  const auto at = [&line](const auto& lines) {
    return line < lines.size() ? lines[line] : std::string("nothing more");
  };
  const auto same = [&] {
    return std::ranges::all_of(texts, [&](const auto& l) { return at(l) == at(texts[0]); });
  };
  while (same()) ++line;
  std::vector<std::string> values;
  for (const auto& lines : texts) values.push_back(at(lines));
  std::string sentence = texts[0][0] + " is not the same on all ranks: " + by_rank(values);
  std::vector<std::string> counts;
  for (std::int64_t rank = 0; rank < sums.size(0); ++rank)
    counts.push_back(std::to_string(sums[rank][2].item<std::int64_t>()));
  if (std::ranges::any_of(counts, [&](const auto& count) { return count != counts[0]; }))
    sentence += " (trainable parameters: " + by_rank(counts) + ")";
  refuse(sentence);
}

void check_same_parts(const std::string& parts, Collectives& collectives) {
  const auto hash = static_cast<std::int64_t>(std::hash<std::string>{}(parts));
  const torch::Tensor sums =
      collectives.all_gather(torch::tensor({hash, static_cast<std::int64_t>(parts.size())}));
  if (sums.eq(sums[0]).all().item<bool>()) return;
  const auto size = sums.select(1, 1).max().item<std::int64_t>() + 1;  // a NUL ends each
  refuse("setup must register the same on all ranks: " +
         by_rank(gather_texts(parts, size, collectives)));
}

void broadcast_tensors(std::span<const torch::Tensor> tensors, Collectives& collectives) {
  const torch::NoGradGuard no_grad;
  std::map<std::pair<torch::ScalarType, std::string>, std::vector<torch::Tensor>> kinds;
  for (const auto& tensor : tensors)
    if (tensor.numel() > 0) kinds[{tensor.scalar_type(), tensor.device().str()}].push_back(tensor);
  for (const auto& [kind, members] : kinds) {
    std::vector<torch::Tensor> flats;
    for (const auto& member : members) flats.push_back(member.detach().reshape({-1}));
    torch::Tensor all = torch::cat(flats);
    collectives.broadcast(all, 0);
    if (collectives.rank() == 0) continue;
    std::int64_t begin = 0;
    for (torch::Tensor member : members) {
      member.copy_(all.narrow(0, begin, member.numel()).view(member.sizes()));
      begin += member.numel();
    }
  }
}

std::vector<torch::Tensor> buffers_of(const torch::nn::Module& model) {
  std::vector<torch::Tensor> buffers;
  std::set<const c10::TensorImpl*> seen;
  for (const auto& buffer : model.buffers())
    if (buffer.defined() && seen.insert(buffer.unsafeGetTensorImpl()).second)
      buffers.push_back(buffer);
  return buffers;
}

std::vector<NamedTensor> parameters_of(const torch::nn::Module& model) {
  std::vector<NamedTensor> parameters;
  std::set<const c10::TensorImpl*> seen;
  for (const auto& entry : model.named_parameters())
    if (entry.value().defined() && seen.insert(entry.value().unsafeGetTensorImpl()).second)
      parameters.push_back({entry.key(), entry.value()});
  return parameters;
}

}  // namespace troupe::sgd::internal
