// The abstract interpreter behind analyse(): runs the module, follows calls, and records where devices are used.
//
// Single-threaded, one use. Split over files by subject: exec.cpp (statements), eval.cpp (expressions), call.cpp
// (functions, classes), builtins.cpp (Python's library), torch_calls.cpp and tensor_methods.cpp (PyTorch), sites.cpp.
#pragma once
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "lsp/python/analysis.h"
#include "lsp/python/events.h"
#include "lsp/python/modules.h"

namespace flagos::lsp {

struct Arg { std::string name; Value value; const Node* node = nullptr; };  // name "": positional
struct Args {
  std::vector<Arg> list;
  bool unknown_rest = false;               // *args or **kwargs that could not be followed
  std::vector<Value> stars;                // of them, those whose elements are known
  size_t positional() const;
  const Arg* at(size_t i) const;           // i-th positional
  const Arg* keyword(std::string_view name) const;
  const Arg* get(size_t i, std::string_view name) const;  // keyword, else positional
};

struct LoopPaths { size_t mark; std::vector<Delta> breaks, continues; };

struct Frame {
  const SourceUnit* unit = nullptr;
  const Node* def = nullptr;               // null: module
  ObjectId scope = 0;
  size_t mark = 0;                         // journal at entry
  size_t loops = 0;                        // loops around the call that made it
  std::vector<Value> returns;
  std::vector<Delta> exits;
  std::vector<Value> yields;
  std::vector<LoopPaths> open_loops;
  const Node* statement = nullptr;
  bool dead = false, at_end = false;       // at_end: the function's last statement returned
  std::vector<SlotName> globals;
  Value self, defining_class;              // for super()
};

struct SiteRecord { Site site; Value devices; bool generic = false; };

class Interp {
 public:
  Interp(std::shared_ptr<const SourceUnit> unit, Workspace& workspace, const AnalysisOptions& options);
  // `with_programs`: also run the workspace's programs that use this file, so that its functions get their arguments.
  void run(bool with_programs);
  bool hasSites() const { return !sites_.empty(); }
  bool abandoned() const { return abandoned_; }
  size_t steps() const { return steps_ + module_steps_; }
  bool hasPrograms();
  ~Interp();
  Interp(const Interp&) = delete;
  Interp& operator=(const Interp&) = delete;
  void collect(Analysis& out);

  // ---- for findings ----
  void listen(uint16_t kinds, std::function<void(Interp&, const CallEvent&)> fn);
  std::vector<std::function<void(Interp&)>> finishers;   // run once, when everything has been followed
  void report(Finding f, const SourceUnit* unit);
  // A fact about an object (0: the machine) that follows the branches of the program like any attribute.
  Value state(ObjectId object, const std::string& slot) const { return heap_.get(object, slot); }
  void setState(ObjectId object, const std::string& slot, Value v) { heap_.set(object, slot, std::move(v)); }
  std::vector<std::string> slotsOf(ObjectId object) const;
  Value classOf(const Value& instance) const { return heap_.at(instance->object).cls; }
  bool isModule(const Value& v);
  Value moduleDevice(const Value& instance, int depth = 0);
  std::optional<double> moduleBytes(const Value& instance);
  const AnalysisOptions& options() const { return options_; }
  Value defaultPlace() { bool decided = false; return defaultDevice(decided); }
  bool runningUncalled() const { return uncalled_; }   // a function that nothing in the file calls
  const SourceUnit* mainUnit() const { return unit_.get(); }
  // Devices that are known for certain for a value's placement: empty if anything about it is not.
  std::vector<std::string> certainDevices(const Value& tensor);
  bool onAccelerator(const Value& v);      // certainly a tensor on something that is not the CPU

 private:
  // exec.cpp
  void execBlock(const std::vector<Node*>& block);
  void exec(const Node* n);
  void execIf(const Node* n);
  void execLoop(const Node* n);
  void execTry(const Node* n);
  void execWith(const Node* n);
  void execImport(const Node* n);
  void execFromImport(const Node* n);
  void assign(const Node* target, Value v, const Node* statement);
  void bindName(SlotName name, Value v);
  void tellAssign(const Node* statement, const Value& v);
  void markUsed(const Node* n);            // the machine's devices are looked at or used here
  void branch(const std::vector<std::function<void()>>& paths);
  void discard(const std::function<void()>& path);
  Value importModule(const std::string& dotted, const Node* n);
  ObjectId runModule(const std::shared_ptr<const SourceUnit>& unit, ObjectId scope, bool program);
  ObjectId moduleScope(const std::shared_ptr<const SourceUnit>& unit);
  void ensureLoaded(ObjectId scope);       // runs a module that was imported, but not used yet
  void runPrograms();                      // the workspace's programs that call into this file
  Value resolved(Value v);                 // follows `forward`
  Value moduleSlot(const Value& module, const std::string& name);   // null: not there
  void use(LoadedModule& m, bool effects = true);
  Value definition(const Node* n);
  Value classDefinition(const Node* n);

  // eval.cpp
 public:
  Value eval(const Node* n);
 private:
  Value evalInner(const Node* n);
  Value evalName(const Node* n);
  Value lookup(SlotName name);
  Value evalString(const Node* n);
  Value evalCompare(const Node* n);
  Value evalBinary(const Node* n);
  Value binaryOn(const Node* n, const Value& a, const Value& b);
  Value evalSubscript(const Node* n);
  Value evalComp(const Node* n);
  Value evalConditional(const Node* n);
  Value attribute(const Value& base, SlotName name, const Node* n);
  Value attributeOf(const Value& base, SlotName name, const Node* n);
  Value elementOf(const Value& v);         // what iterating gives
  Value partOf(const Value& sequence, const Node* slice);   // builtins.cpp
  std::vector<Value> unpack(const Value& v, size_t n);
  Value concat(const Value& a, const Value& b, const Node* n);
  Value asText(const Value& v, const Node* n);

  // call.cpp
  Value evalCall(const Node* n);
  Args evalArgs(const Node* n);
  void addStar(Args& args, const Value& v);
  void addDoubleStar(Args& args, const Value& v);
 public:
  Value call(const Value& callee, Args args, const Node* n);
 private:
  Value callOne(const Value& callee, Args& args, const Node* n);
  Value callFunction(const Value& fn, const Args& args, const Node* n, const Value& self = nullptr);
  // silent.cpp
  bool carriesNothing(const Value& v, bool calls, int looks = 0) const;
  bool leadsBack(const Value& v, int looks = 0) const;
  size_t stepsIn(const Node* def) const { const auto it = followed_.find(def); return it == followed_.end() ? 0 : it->second.steps; }
  bool worthFollowing(const Value& fn, const Args& args, const Value& self) const;
  void wasFollowed(const Node* def, size_t steps, bool news, size_t mark, uint64_t serial, const Value& result);
  Value notFollowed(const Node* def, const Args& args, const Value& self);
  Value callBound(const Value& fn, Args& args, const Node* n);
  Value instantiate(const Value& cls, const Args& args, const Node* n);
  Value callInstance(const Value& instance, Args& args, const Node* n);
  Value superValue();
  Value classAttribute(const Value& cls, SlotName name, Value* owner = nullptr);
  bool derivesFrom(const Value& cls, const std::function<bool(const std::string&)>& external_base);
  void runUncalled();
  void runUncalledMethods();

  // builtins.cpp
  Value callExternal(const std::string& name, Args& args, const Node* n);
  std::optional<Value> callBuiltin(const std::string& name, Args& args, const Node* n);
  std::optional<Value> callLibrary(const std::string& name, Args& args, const Node* n);
  std::optional<Value> callParser(const Value& parser, const std::string& method, Args& args, const Node* n);
  std::optional<Value> callDict(const Value& dict, const std::string& method, Args& args, const Node* n);
  std::optional<Value> callText(const Value& text, const std::string& method, Args& args, const Node* n);
  std::optional<Value> callList(const Value& list, const std::string& method, Args& args, const Node* n);
  Value environment(const Value& key, const Value& fallback, const Node* n);

  // torch_calls.cpp
  std::optional<Value> callTorch(const std::string& name, Args& args, const Node* n);
  std::optional<Value> callDeviceModule(const std::string& type, const std::string& rest, Args& args, const Node* n);
  Value makeDevice(Args& args, const Node* n);
  Value factory(const std::string& name, Args& args, const Node* n);
  Value layer(const std::string& name, Args& args, const Node* n);
  void fillContainer(const Value& container, const std::string& cls, const Args& args);
  void addParts(const Value& container, const Value& part, bool several);   // append, extend
  int64_t passesOf(const Value& over) const;   // of a loop that is not exact
  bool loopsAreExact() const;              // every loop around is run pass by pass
  std::optional<double> moduleBytes(const Value& instance, int depth, std::set<uint32_t>& seen);
  bool startsProcess(const std::string& name, const Args& args, const Node* n);
  Value mappedDevices(const Arg& given, const Node* n);
  std::optional<Value> callEcosystem(const std::string& name, Args& args, const Node* n);
  Value tensorFrom(Args& args, std::string_view why);
  std::optional<Value> externalAttribute(const std::string& name);

  // shapes.cpp
  Value shaped(const Value& result, const Value& receiver, const Args& args, std::string_view what, const Node* n);
  // `why` not empty: why the calls are not known. `object`: the layer, so that two equal layers of one line count twice.
  void noteOps(const Node* n, std::vector<OpCall> calls, const Value& device, uint32_t object = 0, std::string why = {}, double copied = 0);
  void noteCopy(const Node* n, const Value& from, const Value& to, std::optional<double> bytes);

  // libraries.cpp
  Value libraryObject(const std::string& call, Args& args);
  Value libraryDevice(const Value& object);
  Value annotated(const Node* annotation);
  std::optional<Value> libraryAttribute(const std::string& name);
  std::optional<Value> libraryMethod(const Value& object, const std::string& method, Args& args, const Node* n);
  Value onDevice(const Value& v, const Value& device);

  // tensor_methods.cpp
  Value callTensor(const Value& tensor, const std::string& method, Args& args, const Node* n);
  Value tensorAttribute(const Value& tensor, std::string_view name);
  std::optional<Value> callModuleMethod(const Value& instance, const std::string& method, Args& args, const Node* n);
  std::optional<Value> callOnUnknown(const Value& receiver, const std::string& method, Args& args, const Node* n);
  Value moveTarget(Args& args, const Node* n, bool& is_device, bool receiver_known);
  void moveModule(const Value& instance, const Value& device, int depth = 0);
  void castModule(const Value& instance, DType dtype, int depth = 0);
  bool moduleAssumed(const Value& instance, int depth = 0);   // its size follows from a default that can be changed

  // subscripts.cpp
  std::optional<int64_t> sliceLength(const Node* slice, int64_t size);
  std::optional<std::vector<int64_t>> subscriptShape(const std::vector<int64_t>& whole, const Node* n, const Args& keys);

  // traits.cpp: what findings ask of tensors
  Value withTraits(const Value& result, const Value& receiver, const Args& args, std::string_view what);
  Value lateCopy(const Value& result, const Value& from, const Args& args, const Node* n);
  Value condition(const Node* n);          // eval, and tell that its truth is asked for
  void guarded(const Node* n, const std::function<void()>& path);

  // sites.cpp
 public:
  // The alternatives as devices: strings and integers become devices, "npu" the current one.
  Value asDevice(const Value& v, const Node* n);
  void record(const Node* n, std::string call, std::string kind, const Value& device, std::optional<double> bytes = {},
              std::string bytes_how = {}, bool assumed = false, uint32_t object = 0);
  void note(const Node* n, std::string text);
  void emit(const Node* n, std::string_view call, const Value& receiver, const Args& args) { emit(E::call, n, call, receiver, args); }
  void emit(E kind, const Node* n, std::string_view call, const Value& receiver, const Args& args);
  bool leftOut() const { return gave_up_ || !why_.empty(); }   // calls were not followed that may have changed things
  bool wants(E kind) const { return (wanted_ & static_cast<uint16_t>(kind)) != 0 && quiet_ == 0; }
  Origin here(const Node* n, std::string because = "written here") const;
  std::string textOf(const Node* n, size_t max = 60) const;
  const SourceUnit* unit() const { return frame().unit; }
 private:
  Value currentDevice(const std::string& type, const Origin& fallback);
  Value defaultDevice(bool& decided);
  // A device, or what may become one, with the reason why it is here; `because` is only asked where it is needed.
  template <typename F> Value rename(const Value& v, int line, F&& because);
  Value rename(const Value& v, const std::string& because, int line) { return rename(v, line, [&] { return because; }); }
  Value renamed(const Value& x, std::string because, int line) const;
  Value boundTo(const Value& v, std::string_view name, const Node* n);
  Frame& frame() { return *frames_.back(); }
  const Frame& frame() const { return *frames_.back(); }
  void sourceOfDefault(const Node* n, const Value& v, std::string name);
  bool usesTorch();                        // the file imports torch

  std::shared_ptr<const SourceUnit> unit_;
  Workspace& workspace_;
  AnalysisOptions options_;
  ModuleStore& store_;
  Heap& heap_;
  LoadedModule* loading_ = nullptr;        // set: this one runs a module for the store
  int load_depth_ = 0;
  std::vector<Frame*> frames_;
  std::vector<Listener> listeners_;
  uint16_t wanted_ = 0;                    // kinds that some listener wants
  std::vector<LoopInfo> loops_;
  std::vector<Guard> guards_;
  int no_grad_ = 0;
  bool uncalled_ = false;
  std::vector<Value> contexts_;            // with torch.device(...)
  std::map<const SourceUnit*, ObjectId> own_;                // units that are run for this analysis alone
  std::set<std::string> between_;                            // files between a program and this one: run for it alone
  bool in_program_ = false;
  std::set<const LoadedModule*> used_, applied_;
  std::set<const LoadedModule*> typed_;    // imported below TYPE_CHECKING and nowhere else
  std::vector<LoadedModule*> used_in_order_;
  std::vector<std::shared_ptr<const SourceUnit>> kept_;      // units of programs
  std::unordered_map<const Node*, int> called_;
  std::set<const Node*> reaches_out_;      // functions of other files that changed something that was there before their call
  struct Followed {
    int runs = 0;                          // since one found something new
    size_t steps = 0;
    bool loud = false;                     // must be followed again
    std::map<std::pair<ObjectId, SlotName>, Value> writes;   // to objects that were there before the call, with their classes
  };
  std::unordered_map<const Node*, Followed> followed_;
  size_t news_ = 0;                        // sites, their devices, notes, operators and findings of the file so far
  std::vector<Value> functions_;           // every function and lambda of this file, in order
  std::vector<Value> classes_;
  std::map<const Node*, std::vector<Value>> instances_;   // by class
  std::map<const Node*, SiteRecord> sites_;
  struct WeakSource { const Node* node; std::string name; Value device; int line; };
  std::vector<WeakSource> weak_sources_;   // defaults like "cpu": sources only if a device site gets them
  std::optional<bool> uses_torch_;
  std::map<std::pair<uint32_t, std::string>, Finding> findings_;
  std::map<uint32_t, Note> notes_;
  std::vector<OpUse> ops_;
  struct OpSeen { size_t index; std::vector<std::set<std::string>> passes; };   // of each function around it
  std::map<std::string, OpSeen> op_seen_;
  bool spent();                            // the budget of steps or time ran out
  size_t steps_ = 0, module_steps_ = 0;    // its own; of modules that were run for it
  uint64_t deadline_ = 0;
  int depth_ = 0;                          // nested evaluations
  int quiet_ = 0;                          // > 0: a way that is not taken: findings are not reported (sites are)
  int typing_ = 0;                         // > 0: imports below `if TYPE_CHECKING:`
  bool gave_up_ = false, abandoned_ = false;
  std::string why_;                        // gave up, or left out some calls: the reason
};

template <typename F> Value Interp::rename(const Value& v, int line, F&& because) {
  return map(v, [&](const Value& x) -> Value {
    const bool carries = x->kind == V::string || x->kind == V::device || x->kind == V::runtime || x->kind == V::integer;
    if (!carries || (x->origin.unit && !x->origin.fresh)) return x;
    return renamed(x, x->kind == V::runtime ? std::string() : because(), line);
  });
}

}  // namespace flagos::lsp
