// The queue: order, counters, throttle, copies in both memory modes, streams, timings, errors.
#include "runtime/opencl/queue.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/names.h"
#include "runtime/opencl/device.h"
#include "tests/unit/catch.h"

using namespace flagos;
using namespace flagos::ocl;

namespace {

Device& dev() {
  auto d = device(0);
  REQUIRE(d.ok());
  return **d;
}

cl_mem memOf(const mou::Block* b) { return static_cast<cl_mem>(mou::slabHandle(*b)); }

const Kernel& kernel(const char* function) {
  static const char* text =
      "kernel void append(global int* a, ulong o, int v) { a[o] = a[o] * 3 + v; }\n"
      "kernel void addTo(global int* a, ulong o, int v) { a[o + get_global_id(0)] += v; }\n"
      "kernel void first_time(global float* a, ulong o) { a[o + get_global_id(0)] = 1.0f; }\n"
      "kernel void spin(global float* a, ulong o, int n) { float x = a[o]; for (int i = 0; i < n; ++i) x = x * 0.5f + 1.0f; a[o] = x; }\n"
      "typedef struct { long k[6]; } Big;\n"
      "kernel void big(global long* a, ulong o, Big b, local int* l) { l[0] = 2; long s = 0; for (int i = 0; i < 6; ++i) s += b.k[i]; a[o] = s * l[0]; }\n";
  auto k = dev().programs().kernelFromText("queue_test", text, function);
  if (!k) FAIL(k.error().text());
  return **k;
}

mou::Block* block(size_t bytes) {
  auto b = dev().pool().allocate(bytes, 0, 0);
  REQUIRE(b.ok());
  return *b;
}

Range one() {
  Range r;
  r.local[0] = 1;
  return r;
}

}  // namespace

TEST_CASE("launches run in order and are counted", "[opencl]") {
  Queue& q = dev().queue();
  mou::Block* b = block(64);
  int value = 1, expect = 1;
  REQUIRE(q.write(memOf(b), b->offset, &value, 4, true).ok());
  const uint64_t before = q.submitted();
  for (int i = 0; i < 1500; ++i) {  // three times what may be outstanding
    REQUIRE(q.launch(kernel("append"), one(), {Arg::buffer(memOf(b)), Arg::of<cl_ulong>(b->offset / 4), Arg::of<cl_int>(i)}).ok());
    expect = static_cast<int>(static_cast<unsigned>(expect) * 3u + static_cast<unsigned>(i));
  }
  CHECK(q.submitted() == before + 1500);
  const uint64_t last = q.submitted();
  REQUIRE(q.wait(last).ok());
  CHECK(q.idle());
  CHECK(q.isDone(last));
  CHECK(q.isDone(before));
  REQUIRE(q.read(&value, memOf(b), b->offset, 4, true).ok());
  CHECK(value == expect);
  dev().pool().release(b);
}

TEST_CASE("an empty range is no launch, a wait without work no call", "[opencl]") {
  Queue& q = dev().queue();
  REQUIRE(q.finish().ok());
  const uint64_t before = q.submitted();
  Range none = one();
  none.global[0] = 0;
  CHECK(q.launch(kernel("addTo"), none, {}).ok());
  CHECK(q.submitted() == before);
  CHECK(q.finish().ok());
  CHECK(q.wait(0).ok());
}

TEST_CASE("big structs and local memory are arguments", "[opencl]") {
  Queue& q = dev().queue();
  mou::Block* b = block(64);
  const long big[6] = {1, 2, 3, 4, 5, 6};
  REQUIRE(q.launch(kernel("big"), one(),
                   {Arg::buffer(memOf(b)), Arg::of<cl_ulong>(b->offset / 8), Arg::pointer(big, sizeof big), Arg::local(16)}).ok());
  long out = 0;
  REQUIRE(q.read(&out, memOf(b), b->offset, 8, true).ok());
  CHECK(out == 42);
  dev().pool().release(b);
}

TEST_CASE("a wrong launch is an error that names kernel and argument", "[opencl]") {
  Queue& q = dev().queue();
  const auto r = q.launch(kernel("append"), one(), {Arg::of<cl_int>(1), Arg::of<cl_int>(1), Arg::of<cl_int>(1)});
  REQUIRE_FALSE(r.ok());
  CHECK(r.error().what.find("npu:0, kernel append, argument") == 0);
  CHECK(q.finish().ok());
}

TEST_CASE("write, copy, fill and read agree with plain memory", "[opencl]") {
  Queue& q = dev().queue();
  std::mt19937 random(3);
  constexpr size_t n = 100000;
  mou::Block* b = block(n);
  std::vector<unsigned char> truth(n), got(n);
  for (auto& x : truth) x = static_cast<unsigned char>(random());
  REQUIRE(q.write(memOf(b), b->offset, truth.data(), n, true).ok());
  for (int i = 0; i < 300; ++i) {
    const size_t from = random() % n, to = random() % n, len = random() % (n - std::max(from, to));
    if (random() % 3) {
      REQUIRE(q.copy(memOf(b), b->offset + to, memOf(b), b->offset + from, len).ok());  // often overlapping
      std::memmove(truth.data() + to, truth.data() + from, len);
    } else {
      const size_t at = from / 4 * 4, bytes = len / 4 * 4;
      const uint32_t pattern = random();
      REQUIRE(q.fill(memOf(b), b->offset + at, bytes, &pattern, 4).ok());
      for (size_t k = 0; k < bytes; k += 4) std::memcpy(truth.data() + at + k, &pattern, 4);
    }
  }
  REQUIRE(q.read(got.data(), memOf(b), b->offset, n, true).ok());
  CHECK(got == truth);
  dev().pool().release(b);
}

TEST_CASE("another queue waits for a ticket", "[opencl]") {
  Queue &a = dev().queue(0), &b = dev().queue(1);
  CHECK(&a == &dev().queue(0));
  CHECK(b.id() == 1);
  mou::Block* m = block(64);
  const int zero = 0;
  for (int round = 0; round < 100; ++round) {
    REQUIRE(a.write(memOf(m), m->offset, &zero, 4, true).ok());
    REQUIRE(a.launch(kernel("spin"), one(), {Arg::buffer(memOf(m)), Arg::of<cl_ulong>(m->offset / 4 + 1), Arg::of<cl_int>(2000)}).ok());
    REQUIRE(a.launch(kernel("append"), one(), {Arg::buffer(memOf(m)), Arg::of<cl_ulong>(m->offset / 4), Arg::of<cl_int>(5)}).ok());
    REQUIRE(b.waitFor(a, a.submitted()).ok());
    REQUIRE(b.launch(kernel("append"), one(), {Arg::buffer(memOf(m)), Arg::of<cl_ulong>(m->offset / 4), Arg::of<cl_int>(7)}).ok());
    int value = -1;
    REQUIRE(b.finish().ok());
    REQUIRE(a.finish().ok());
    REQUIRE(b.read(&value, memOf(m), m->offset, 4, true).ok());
    REQUIRE(value == 22);
  }
  REQUIRE(dev().synchronize().ok());
  dev().pool().release(m);
}

TEST_CASE("small launches are held until somebody asks, many or large ones start by themselves", "[opencl]") {
  Queue& q = dev().queue();
  mou::Block* b = block(64);
  void* host = nullptr;
  REQUIRE(clGetMemObjectInfo(memOf(b), CL_MEM_HOST_PTR, sizeof host, &host, nullptr) == CL_SUCCESS);
  REQUIRE(host);
  auto* seen = reinterpret_cast<std::atomic<int>*>(static_cast<char*>(host) + b->offset);
  const auto add = [&](size_t items) {
    Range r = one();
    r.global[0] = items;
    return q.launch(kernel("addTo"), r, {Arg::buffer(memOf(b)), Arg::of<cl_ulong>(b->offset / 4), Arg::of<cl_int>(1)}).ok();
  };
  const auto becomes = [&](int value) {  // without a call of the queue, which would start what waits
    for (int i = 0; i < 20000 && *seen != value; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return *seen == value;
  };
  *seen = 0;
  REQUIRE(add(1));  // compiled
  REQUIRE(q.finish().ok());
  CHECK(*seen == 1);
  for (int i = 0; i < 3; ++i) REQUIRE(add(1));
  while (!q.isDone(q.submitted())) std::this_thread::yield();
  CHECK(*seen == 4);
  REQUIRE(add(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK(*seen == 4);  // held
  REQUIRE(add(8));  // more than a small one: what was held goes first
  CHECK(becomes(6));
  for (int i = 0; i < 16; ++i) REQUIRE(add(2));
  CHECK(becomes(22));
  REQUIRE(q.finish().ok());
  // While the device is busy anyhow, more are held: 32 behind two times 16.
  REQUIRE(q.launch(kernel("spin"), one(), {Arg::buffer(memOf(b)), Arg::of<cl_ulong>(b->offset / 4 + 8), Arg::of<cl_int>(100000000)}).ok());
  for (int i = 0; i < 31 + 20; ++i) REQUIRE(add(1));
  CHECK(becomes(22 + 31));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK(*seen == 22 + 31);
  for (int i = 0; i < 12; ++i) REQUIRE(add(1));
  CHECK(becomes(22 + 63));
  REQUIRE(q.finish().ok());
  *seen = 22;
  Queue& other = dev().queue(3);
  REQUIRE(add(1));
  REQUIRE(other.waitFor(q, q.submitted()).ok());  // must not wait for a command that nobody starts
  REQUIRE(other.finish().ok());
  CHECK(becomes(23));
  REQUIRE(q.finish().ok());
  dev().pool().release(b);
}

TEST_CASE("threads on several queues share kernels", "[opencl]") {
  constexpr int kThreads = 4, kEach = 300;
  std::vector<mou::Block*> blocks;
  for (int t = 0; t < kThreads; ++t) {
    blocks.push_back(block(64));
    const int zero = 0;
    REQUIRE(dev().queue().write(memOf(blocks.back()), blocks.back()->offset, &zero, 4, true).ok());
  }
  const Kernel& k = kernel("addTo");
  Device& d = dev();
  std::atomic<int> bad{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      Queue& q = d.queue(static_cast<uint32_t>(t % 2));
      for (int i = 0; i < kEach; ++i)
        if (!q.launch(k, one(), {Arg::buffer(memOf(blocks[size_t(t)])), Arg::of<cl_ulong>(blocks[size_t(t)]->offset / 4), Arg::of<cl_int>(t + 1)}).ok()) ++bad;
      if (!q.finish().ok()) ++bad;
    });
  for (auto& t : threads) t.join();
  CHECK(bad == 0);
  for (int t = 0; t < kThreads; ++t) {
    int value = 0;
    REQUIRE(dev().synchronize().ok());
    REQUIRE(dev().queue().read(&value, memOf(blocks[size_t(t)]), blocks[size_t(t)]->offset, 4, true).ok());
    CHECK(value == kEach * (t + 1));
    dev().pool().release(blocks[size_t(t)]);
  }
}

TEST_CASE("more kernels than the driver keeps loaded", "[opencl]") {
  // PoCL aborts beyond 128 unless nothing runs when it makes room.
  Queue& q = dev().queue();
  mou::Block* b = block(64);
  const int zero = 0;
  REQUIRE(q.write(memOf(b), b->offset, &zero, 4, true).ok());
  std::string text;
  constexpr int kMany = 150;
  for (int i = 0; i < kMany; ++i)
    text += "kernel void n" + std::to_string(i) + "(global int* a, ulong o) { a[o] += " + std::to_string(i) + "; }\n";
  int expect = 0;
  for (int i = 0; i < 2 * kMany; ++i) {
    auto k = dev().programs().kernelFromText("queue_test_many", text, "n" + std::to_string(i % kMany));
    REQUIRE(k.ok());
    REQUIRE(q.launch(kernel("spin"), one(), {Arg::buffer(memOf(b)), Arg::of<cl_ulong>(b->offset / 4 + 1), Arg::of<cl_int>(5000)}).ok());
    REQUIRE(q.launch(**k, one(), {Arg::buffer(memOf(b)), Arg::of<cl_ulong>(b->offset / 4)}).ok());
    expect += i % kMany;
  }
  int value = 0;
  REQUIRE(q.read(&value, memOf(b), b->offset, 4, true).ok());
  CHECK(value == expect);
  dev().pool().release(b);
}

TEST_CASE("the first launch of a kernel at a work-group size says so", "[opencl]") {
  static std::vector<bool> firsts;
  firsts.clear();
  Queue& q = dev().queue();
  mou::Block* b = block(4096);
  REQUIRE(q.finish().ok());
  setTimingSink([](const Timing& t) noexcept { firsts.push_back(t.first); });
  setTimingEnabled(true);
  const Kernel& k = kernel("first_time");
  for (const size_t local : {1u, 1u, 8u, 8u, 1u}) {
    Range range = one();
    range.global[0] = 64, range.local[0] = local;
    REQUIRE(q.launch(k, range, {Arg::buffer(memOf(b)), Arg::of<cl_ulong>(b->offset / 4)}).ok());
  }
  REQUIRE(q.finish().ok());
  setTimingEnabled(false);
  setTimingSink(nullptr);
  CHECK(firsts == std::vector<bool>{true, false, true, false, false});
  dev().pool().release(b);
}

TEST_CASE("timings arrive once, with their tag, on our clock", "[opencl]") {
  static std::atomic<uint64_t> count{0}, sum{0}, first{~uint64_t{0}}, last{0}, wrong{0};
  count = sum = last = wrong = 0;
  first = ~uint64_t{0};
  setTimingSink([](const Timing& t) noexcept {
    if (t.tag.site != 77 || t.tag.route != 5 || t.tag.correlation != 9 || t.end_ns < t.start_ns) wrong++;
    if (t.command != Command::kernel || nameText(t.name) != "spin" || t.device != 0 || t.queue != 0) wrong++;
    if (t.enqueued_ns == 0 || t.enqueued_ns > t.start_ns) wrong++;
    if (t.start_ns < last) wrong++;  // in order, never overlapping
    count++;
    sum += t.end_ns - t.start_ns;
    if (t.start_ns < first) first = t.start_ns;
    last = t.end_ns;
  });
  Queue& q = dev().queue();
  mou::Block* b = block(64);
  const float x = 1;
  REQUIRE(q.write(memOf(b), b->offset, &x, 4, true).ok());
  const Kernel& k = kernel("spin");
  auto go = [&] { return q.launch(k, one(), {Arg::buffer(memOf(b)), Arg::of<cl_ulong>(b->offset / 4), Arg::of<cl_int>(20000)}).ok(); };
  REQUIRE(go());  // compiled, and not timed
  REQUIRE(q.finish().ok());
  CHECK(count == 0);
  currentTag() = {77, 5, 9};
  const uint64_t begin = nowNs();
  setTimingEnabled(true);
  setTimingEnabled(true, TimingUser::profiler);
  for (int i = 0; i < 700; ++i) {
    if (i == 350) setTimingEnabled(false);  // the other user still wants them
    REQUIRE(go());
  }
  REQUIRE(q.finish().ok());
  const uint64_t end = nowNs();
  setTimingEnabled(false, TimingUser::profiler);
  CHECK(count == 700);
  CHECK(wrong == 0);
  CHECK(sum > 0);
  CHECK(sum <= end - begin + 1000000);
  CHECK(first + 1000000 >= begin);
  CHECK(last <= end + 1000000);
  REQUIRE(go());
  REQUIRE(q.finish().ok());
  CHECK(count == 700);
  setTimingSink(nullptr);
  currentTag() = {};
  dev().pool().release(b);
}

TEST_CASE("a mark says when the work before it was done, without waiting for it", "[opencl]") {
  Queue& q = dev().queue();
  mou::Block* b = block(64);
  const float x = 1;
  REQUIRE(q.write(memOf(b), b->offset, &x, 4, true).ok());
  const Kernel& k = kernel("spin");
  auto go = [&] { return q.launch(k, one(), {Arg::buffer(memOf(b)), Arg::of<cl_ulong>(b->offset / 4), Arg::of<cl_int>(2000000)}).ok(); };
  REQUIRE(go());
  REQUIRE(q.finish().ok());
  auto first = std::make_shared<std::atomic<uint64_t>>(0), second = std::make_shared<std::atomic<uint64_t>>(0);
  const uint64_t begin = nowNs();
  REQUIRE(q.mark(first).ok());  // idle: known at once
  CHECK(*first >= begin);
  REQUIRE(go());
  const auto ticket = q.mark(second);
  REQUIRE(ticket.ok());
  REQUIRE(q.wait(*ticket).ok());
  CHECK(*second > *first);
  CHECK(*second <= nowNs());
  dev().pool().release(b);
}
