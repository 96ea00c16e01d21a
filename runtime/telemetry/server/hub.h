// What all connections of the server share: samples, hooks, who wants timings. Server thread only, but for publish().
#pragma once
#include <cstdlib>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/telemetry/server.h"
#include "runtime/telemetry/snapshot.h"

namespace flagos::telemetry {

class Hub {
 public:
  Hub(ServerHooks hooks, Identity identity) : hooks_(std::move(hooks)), identity_(std::move(identity)) {}

  // The newest counters; at most 2 ms old, so that viewers that are due together share one reading.
  const Sample& sample();
  const Sample& lastSample() const { return sample_; }   // the one sample() last gave
  const Identity& identity() const { return identity_; }
  // JSON-RPC methods of the runtime; null if there is none of that name.
  const std::function<Result<Json>(const Json&)>* method(const std::string& name) const;
  std::vector<std::string> features() const;
  // Each connection says once that it wants timings and once that it does not.
  void wantTiming(bool more);

  std::string snapshotMembers(const Selection&);

  // Events wait here until the server's thread hands them to the connections. Any thread.
  struct Event { uint64_t t_ns; std::string kind, members; };
  void publish(Event event);
  std::deque<Event> takeEvents(uint64_t& dropped);

 private:
  void fillUtilisation(Sample&);
  ServerHooks hooks_;
  const Identity identity_;
  Sample sample_;
  uint64_t sampled_ns_ = 0;
  int timing_wanted_ = 0;
  struct Busy { uint64_t t_ns; std::vector<uint64_t> ns; };
  std::deque<Busy> history_;           // the last second
  size_t known_fallbacks_ = 0;
  std::mutex mutex_;
  std::deque<Event> events_;
  uint64_t dropped_ = 0;
};

}  // namespace flagos::telemetry
