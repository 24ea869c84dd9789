#pragma once

#include "sgd/training_operator.hpp"

#include <memory>
#include <string_view>
#include <type_traits>
#include <typeinfo>

/// Functions that a trainer runs on its operators, by name: a pointer means nothing in another
/// process. As the table of entries: written before `main`, never after.
namespace troupe::sgd::internal {

/// How a process makes an operator of the user's type.
using MakeOperator = std::unique_ptr<TrainingOperator> (*)();

using OperatorFunction = tune::Metrics (*)(TrainingOperator&);

bool add_function(const char* name, OperatorFunction function);
/// Throws `Exception` when this program has none of that name.
OperatorFunction find_function(std::string_view name);

/// F(Op&) or F(), giving Metrics or nothing.
template <auto F, class Op>
tune::Metrics call_function(TrainingOperator& op) {
  const auto call = [&]() -> decltype(auto) {
    if constexpr (std::is_invocable_v<decltype(F), Op&>)
      return F(static_cast<Op&>(op));
    else
      return F();
  };
  if constexpr (std::is_void_v<decltype(call())>) {
    call();
    return {};
  } else {
    return call();
  }
}

template <auto F, class Op>
struct FunctionRegistration {
  static const bool done;
};
template <auto F, class Op>
const bool FunctionRegistration<F, Op>::done =
    add_function(typeid(FunctionRegistration<F, Op>).name(), &call_function<F, Op>);

/// The name of F for operators of type Op, in every process of this program.
template <auto F, class Op>
const char* function_name() {
  (void)FunctionRegistration<F, Op>::done;
  return typeid(FunctionRegistration<F, Op>).name();
}

}  // namespace troupe::sgd::internal
