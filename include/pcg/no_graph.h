#pragma once

#include <ATen/core/Tensor.h>
#include <pcg/host_value.h>

#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <unordered_map>
#include <utility>
#include <vector>

/// Breaks: code that stays eager inside a PiecewiseGraph.

namespace pcg {

/// True between the beginning and the end of a PiecewiseGraph on this thread,
/// in captured code and in breaks.
bool is_in_piecewise_graph();

/// Ends the graph that is being captured and begins another; no eager work in
/// between. Outside a capture, and inside a break, it does nothing.
void force_no_graph();

namespace detail {

/// Where the tensors among a break's results go.
class ResultTensors {
 public:
  virtual ~ResultTensors() = default;
  /// The tensor that stands for `result` at every replay.
  virtual at::Tensor keep(const at::Tensor& result) = 0;
  /// Takes a later result for what keep() has returned.
  virtual void update(const at::Tensor& kept, const at::Tensor& result) = 0;
  /// Throws: the results have another structure than at the capture.
  [[noreturn]] virtual void refuse(const std::string& what) = 0;
};

/// What a break does at the capture and at each replay.
struct Break {
  std::string name;
  std::vector<at::Tensor> arguments;
  std::function<void(ResultTensors&)> capture;
  std::function<void(ResultTensors&)> replay;
};

/// True in captured code: a break has to split the graph.
bool isRecording();
void recordBreak(Break step);
/// A readable name for a type of function.
std::string nameOf(const std::type_info& type);

// ---- results ----------------------------------------------------------------

template <typename T>
struct HoldsTensors : std::false_type {};
template <>
struct HoldsTensors<at::Tensor> : std::true_type {};
template <typename T>
struct HoldsTensors<std::optional<T>> : HoldsTensors<T> {};
template <typename T>
struct HoldsTensors<std::vector<T>> : HoldsTensors<T> {};
template <typename T, std::size_t N>
struct HoldsTensors<std::array<T, N>> : HoldsTensors<T> {};
template <typename K, typename V>
struct HoldsTensors<std::map<K, V>> : HoldsTensors<V> {};
template <typename K, typename V>
struct HoldsTensors<std::unordered_map<K, V>> : HoldsTensors<V> {};
template <typename A, typename B>
struct HoldsTensors<std::pair<A, B>>
    : std::disjunction<HoldsTensors<A>, HoldsTensors<B>> {};
template <typename... T>
struct HoldsTensors<std::tuple<T...>> : std::disjunction<HoldsTensors<T>...> {};

/// How a result of type R looks to the caller of a break: tensors stay tensors,
/// containers of tensors stay containers, anything else is a HostValue.
template <typename R, bool = HoldsTensors<R>::value>
struct Live {
  static_assert(!std::is_pointer_v<R>,
                "a break must not return a pointer: it says nothing of what "
                "lies behind it at a replay");
  using Type = HostValue<R>;
  static Type make(R result, ResultTensors&) { return Type(std::move(result)); }
  static void update(Type& live, R result, ResultTensors&) {
    live.set(std::move(result));
  }
};

template <>
struct Live<at::Tensor, true> {
  using Type = at::Tensor;
  static Type make(const at::Tensor& result, ResultTensors& tensors) {
    return tensors.keep(result);
  }
  static void update(Type& live, const at::Tensor& result,
                     ResultTensors& tensors) {
    tensors.update(live, result);
  }
};

template <typename T>
struct Live<std::optional<T>, true> {
  using Type = std::optional<typename Live<T>::Type>;
  static Type make(std::optional<T> result, ResultTensors& tensors) {
    if (!result)
      return std::nullopt;
    return Live<T>::make(std::move(*result), tensors);
  }
  static void update(Type& live, std::optional<T> result,
                     ResultTensors& tensors) {
    if (live.has_value() != result.has_value()) {
      tensors.refuse(live ? "a missing optional where there was a value"
                          : "a value where there was a missing optional");
    }
    if (result)
      Live<T>::update(*live, std::move(*result), tensors);
  }
};

template <typename T>
struct Live<std::vector<T>, true> {
  using Type = std::vector<typename Live<T>::Type>;
  static Type make(std::vector<T> result, ResultTensors& tensors) {
    Type live;
    live.reserve(result.size());
    for (T& element : result)
      live.push_back(Live<T>::make(std::move(element), tensors));
    return live;
  }
  static void update(Type& live, std::vector<T> result,
                     ResultTensors& tensors) {
    if (live.size() != result.size()) {
      tensors.refuse("a vector of " + std::to_string(result.size()) +
                     " elements where there were " +
                     std::to_string(live.size()));
    }
    for (std::size_t i = 0; i < live.size(); ++i)
      Live<T>::update(live[i], std::move(result[i]), tensors);
  }
};

/// Tuples, pairs and arrays.
template <typename Fixed, typename LiveFixed>
struct LiveFixedSize {
  using Type = LiveFixed;
  using Indices = std::make_index_sequence<std::tuple_size_v<Fixed>>;

  static Type make(Fixed result, ResultTensors& tensors) {
    return makeEach(result, tensors, Indices());
  }
  static void update(Type& live, Fixed result, ResultTensors& tensors) {
    updateEach(live, result, tensors, Indices());
  }

 private:
  template <std::size_t I>
  using Element = std::tuple_element_t<I, Fixed>;

  // In braces, so that elements are made in order.
  template <std::size_t... I>
  static Type makeEach(Fixed& result, ResultTensors& tensors,
                       std::index_sequence<I...>) {
    return Type{
        Live<Element<I>>::make(std::move(std::get<I>(result)), tensors)...};
  }
  template <std::size_t... I>
  static void updateEach(Type& live, Fixed& result, ResultTensors& tensors,
                         std::index_sequence<I...>) {
    (Live<Element<I>>::update(std::get<I>(live), std::move(std::get<I>(result)),
                              tensors),
     ...);
  }
};

template <typename... T>
struct Live<std::tuple<T...>, true>
    : LiveFixedSize<std::tuple<T...>, std::tuple<typename Live<T>::Type...>> {};
template <typename A, typename B>
struct Live<std::pair<A, B>, true>
    : LiveFixedSize<std::pair<A, B>,
                    std::pair<typename Live<A>::Type, typename Live<B>::Type>> {
};
template <typename T, std::size_t N>
struct Live<std::array<T, N>, true>
    : LiveFixedSize<std::array<T, N>, std::array<typename Live<T>::Type, N>> {};

template <typename Map, typename LiveMap>
struct LiveAssociative {
  using Type = LiveMap;
  using Value = typename Map::mapped_type;

  static Type make(Map result, ResultTensors& tensors) {
    Type live;
    for (auto& [key, value] : result)
      live.emplace(key, Live<Value>::make(std::move(value), tensors));
    return live;
  }
  static void update(Type& live, Map result, ResultTensors& tensors) {
    if (live.size() != result.size())
      tensors.refuse("a map with another number of keys");
    for (auto& [key, value] : live) {
      const auto it = result.find(key);
      if (it == result.end())
        tensors.refuse("a map with other keys");
      Live<Value>::update(value, std::move(it->second), tensors);
    }
  }
};

template <typename K, typename V>
struct Live<std::map<K, V>, true>
    : LiveAssociative<std::map<K, V>, std::map<K, typename Live<V>::Type>> {};

template <typename K, typename V>
struct Live<std::unordered_map<K, V>, true>
    : LiveAssociative<std::unordered_map<K, V>,
                      std::unordered_map<K, typename Live<V>::Type>> {};

// ---- arguments --------------------------------------------------------------

template <typename T>
struct IsOptional : std::false_type {};
template <typename T>
struct IsOptional<std::optional<T>> : std::true_type {};
template <typename T>
struct IsTuple : std::false_type {};
template <typename... T>
struct IsTuple<std::tuple<T...>> : std::true_type {};
template <typename A, typename B>
struct IsTuple<std::pair<A, B>> : std::true_type {};

template <typename T>
void collectTensors(const T& value, std::vector<at::Tensor>& found) {
  if constexpr (std::is_same_v<T, at::Tensor>) {
    if (value.defined())
      found.push_back(value);
  } else if constexpr (!HoldsTensors<T>::value) {
    (void)value;  // Nothing is known of it.
  } else if constexpr (IsOptional<T>::value) {
    if (value)
      collectTensors(*value, found);
  } else if constexpr (IsTuple<T>::value) {
    std::apply([&](const auto&... each) { (collectTensors(each, found), ...); },
               value);
  } else {
    for (const auto& element : value)
      collectTensors(element, found);
  }
}

template <typename T>
struct IsHostValue : std::false_type {};
template <typename T>
struct IsHostValue<HostValue<T>> : std::true_type {};

template <typename T>
struct IsView : std::false_type {};
template <typename T>
struct IsView<c10::ArrayRef<T>> : std::true_type {};
template <>
struct IsView<std::string_view> : std::true_type {};

/// A HostValue reaches the function as its value of the moment.
template <typename T>
decltype(auto) current(T& argument) {
  if constexpr (IsHostValue<std::decay_t<T>>::value) {
    return argument.value();
  } else {
    return (argument);
  }
}

template <typename Function, typename... Arguments>
decltype(auto) call(Function& function, Arguments&... arguments) {
  if constexpr (std::is_invocable_v<Function&,
                                    decltype(current(arguments))...>) {
    return std::invoke(function, current(arguments)...);
  } else {
    static_assert(std::is_invocable_v<Function&, Arguments&...>,
                  "the function of a break cannot be called with these "
                  "arguments");
    return std::invoke(function, arguments...);
  }
}

template <typename Function, typename... Arguments>
using CallResult = std::decay_t<decltype(call(std::declval<Function&>(),
                                              std::declval<Arguments&>()...))>;

// ---- calls ------------------------------------------------------------------

/// The results of a function that is only called.
class PlainTensors final : public ResultTensors {
 public:
  at::Tensor keep(const at::Tensor& result) override { return result; }
  void update(const at::Tensor&, const at::Tensor&) override {}
  [[noreturn]] void refuse(const std::string& what) override;
};

template <typename Function, typename... Arguments>
auto callPlainly(Function& function, Arguments&... arguments) {
  using Result = CallResult<Function, Arguments...>;
  if constexpr (std::is_void_v<Result>) {
    call(function, arguments...);
  } else {
    PlainTensors tensors;
    return Live<Result>::make(call(function, arguments...), tensors);
  }
}

/// One break: the function, what it is called with, and its results.
template <typename Function, typename... Arguments>
struct Call {
  using Result = CallResult<Function, Arguments...>;
  static constexpr bool kVoid = std::is_void_v<Result>;
  /// A break without a result keeps nothing; the type is never filled.
  using LiveResult =
      typename std::conditional_t<kVoid, Live<bool>, Live<Result>>::Type;

  Function function;
  std::tuple<Arguments...> arguments;
  std::optional<LiveResult> live;

  template <typename Callee>
  decltype(auto) run(Callee& callee) {
    return std::apply(
        [&](auto&... each) -> decltype(auto) { return call(callee, each...); },
        arguments);
  }

  template <typename Callee>
  void capture(Callee& callee, ResultTensors& tensors) {
    if constexpr (kVoid) {
      run(callee);
    } else {
      live.emplace(Live<Result>::make(run(callee), tensors));
    }
  }

  void replay(ResultTensors& tensors) {
    if constexpr (kVoid) {
      run(function);
    } else {
      Live<Result>::update(*live, run(function), tensors);
    }
  }
};

/// Runs a break inside a capture. `stub`, unless it is null, takes the place of
/// `function` there. The step owns copies of the function and its arguments.
template <typename Function, typename Stub, typename... Arguments>
auto callAsBreak(std::string name, Function function, Stub* stub,
                 Arguments... arguments) {
  static_assert(!std::disjunction_v<IsView<Arguments>...>,
                "a step cannot keep what a view such as at::TensorList refers "
                "to; pass the vector or string itself");
  using ThisCall = Call<Function, Arguments...>;
  auto shared = std::make_shared<ThisCall>(ThisCall{
      std::move(function), std::tuple<Arguments...>(std::move(arguments)...),
      std::nullopt});
  Break step;
  step.name = std::move(name);
  collectTensors(shared->arguments, step.arguments);
  step.capture = [shared, stub](ResultTensors& tensors) {
    if (stub != nullptr) {
      shared->capture(*stub, tensors);
    } else {
      shared->capture(shared->function, tensors);
    }
  };
  step.replay = [shared](ResultTensors& tensors) { shared->replay(tensors); };
  recordBreak(std::move(step));
  if constexpr (!ThisCall::kVoid)
    return *shared->live;
}

template <typename Function>
struct SignatureOf;
template <typename Signature>
struct SignatureOf<std::function<Signature>> {
  using Type = Signature;
};
/// Of a function pointer, or of an object with one operator().
template <typename Function>
using Signature = typename SignatureOf<decltype(std::function(
    std::declval<Function>()))>::Type;

}  // namespace detail

/// Calls `function(arguments...)`. Inside a PiecewiseGraph the call is a break:
/// the graph under way ends and is replayed, the function runs eagerly on real
/// data, becomes a step that runs again at each replay, and another graph
/// begins. Elsewhere, and inside another break, it is a plain call.
///
/// `function` is anything that std::invoke takes. The step owns copies of it
/// and of the arguments: tensors share their memory with the caller's, and a
/// HostValue arrives as its value of the moment. Wrap in std::ref what must not
/// be copied and outlives the sequence. What a function refers to in other ways
/// (a lambda's `[&]`) has to live as long as the step. Grad mode and autocast
/// are, at a replay, those of the capture.
///
/// Results, by type:
/// - tensors, and vectors, arrays, pairs, tuples, maps and optionals of them:
///   a tensor in memory of the sequence, that each replay fills again, or the
///   tensor itself where it lies in memory of an argument or of captured code.
///   A replay whose result has another shape, dtype, device or structure throws
///   std::runtime_error with the function's name and both;
/// - anything else, copyable: a HostValue.
///
/// An exception of the function passes through: at the capture, which it rolls
/// back, as at a replay. Throws CaptureError where the device refuses the graph
/// that ends, or where a result is part of a gradient tape (write a
/// torch::autograd::Function then, and break in its forward and backward).
template <typename Function, typename... Arguments>
auto no_graph(Function&& function, Arguments&&... arguments) {
  if (!detail::isRecording())
    return detail::callPlainly(function, arguments...);
  using Decayed = std::decay_t<Function>;
  return detail::callAsBreak<Decayed, Decayed, std::decay_t<Arguments>...>(
      detail::nameOf(typeid(Decayed)), std::forward<Function>(function),
      nullptr, std::forward<Arguments>(arguments)...);
}

/// How a NoGraph behaves. Every field has a usable default.
template <typename Signature>
struct NoGraphOptions {
  /// Whether calls are breaks. If not, the function is captured like any other
  /// code.
  bool enable = true;

  /// Runs in the function's place during the capture, where the function itself
  /// must not run yet. Its results tell shapes and dtypes.
  std::function<Signature> capture_stub;

  /// What reports and errors call the function; a name made from its type if
  /// empty.
  std::string name;
};

/// A function whose every call is a break.
///
///     const pcg::NoGraph log_loss([](const at::Tensor& loss) { ... });
///     log_loss(loss);  // as pcg::no_graph(function, loss)
///
/// Thread safety: calls from several threads are as safe as the function's.
template <typename Signature>
class NoGraph {
 public:
  explicit NoGraph(std::function<Signature> function,
                   NoGraphOptions<Signature> options = {})
      : function_(std::move(function)), options_(std::move(options)) {
    if (options_.name.empty())
      options_.name = detail::nameOf(function_.target_type());
  }

  template <typename... Arguments>
  auto operator()(Arguments&&... arguments) const {
    auto function = function_;
    if (!options_.enable || !detail::isRecording())
      return detail::callPlainly(function, arguments...);
    auto stub = options_.capture_stub;
    return detail::callAsBreak<std::function<Signature>,
                               std::function<Signature>,
                               std::decay_t<Arguments>...>(
        options_.name, std::move(function), stub ? &stub : nullptr,
        std::forward<Arguments>(arguments)...);
  }

 private:
  std::function<Signature> function_;
  NoGraphOptions<Signature> options_;
};

template <typename Function>
NoGraph(Function) -> NoGraph<detail::Signature<Function>>;
template <typename Function>
NoGraph(Function, NoGraphOptions<detail::Signature<Function>>)
    -> NoGraph<detail::Signature<Function>>;

}  // namespace pcg
