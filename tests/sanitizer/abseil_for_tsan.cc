// Tells ThreadSanitizer what Abseil's locks and reference counts order. Debian's Abseil is built
// without it, so that a lock taken there is invisible and every guarded access looks like a race.
// These definitions stand before the library's (ours in the program come first, for gRPC too), call
// it, and add the acquire or release that it leaves out.
//
// Linked into the programs of a build with CKPTD_SANITIZE=thread only.
#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "absl/status/status.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"

extern "C" void AnnotateIgnoreReadsBegin(const char* file, int line);
extern "C" void AnnotateIgnoreReadsEnd(const char* file, int line);
extern "C" void AnnotateIgnoreWritesBegin(const char* file, int line);
extern "C" void AnnotateIgnoreWritesEnd(const char* file, int line);

namespace {

#define CKPTD_STRING_OF(name) #name
#define CKPTD_STRING(name) CKPTD_STRING_OF(name)
// As <absl/base/options.h> of the installed Abseil has it; Debian's always has one.
constexpr char kNamespace[] = CKPTD_STRING(ABSL_OPTION_INLINE_NAMESPACE_NAME);

constexpr char kDuration[] = "NS0_8DurationE";
constexpr char kTime[] = "NS0_4TimeE";
constexpr char kCondition[] = "RKNS0_9ConditionE";

// The library's own function: its mangled name within absl's inline namespace.
template <typename Signature>
Signature* Original(const std::string& class_and_method, const std::string& arguments,
                    const char* qualifier = "") {
  const std::string name = std::string("_ZN") + qualifier + "4absl" +
                           std::to_string(std::strlen(kNamespace)) + kNamespace + class_and_method +
                           "E" + arguments;
  void* function = dlsym(RTLD_NEXT, name.c_str());
  if (function == nullptr) {
    std::fprintf(stderr, "abseil_for_tsan.cc: Abseil has no %s\n", name.c_str());
    std::abort();
  }
  return reinterpret_cast<Signature*>(function);
}

// Whoever gives up a lock evaluates the conditions that others wait for, after our
// release and still under the lock: those reads are no races.
class IgnoreConditionReads {
 public:
  IgnoreConditionReads() { AnnotateIgnoreReadsBegin(__FILE__, __LINE__); }
  ~IgnoreConditionReads() { AnnotateIgnoreReadsEnd(__FILE__, __LINE__); }
};

}  // namespace

namespace absl {
ABSL_NAMESPACE_BEGIN

void Mutex::Lock() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  static auto* const original = Original<void(Mutex*)>("5Mutex4Lock", "v");
  original(this);
  __tsan_acquire(this);
}

bool Mutex::TryLock() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  static auto* const original = Original<bool(Mutex*)>("5Mutex7TryLock", "v");
  const bool locked = original(this);
  if (locked) __tsan_acquire(this);
  return locked;
}

void Mutex::Unlock() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  static auto* const original = Original<void(Mutex*)>("5Mutex6Unlock", "v");
  __tsan_release(this);
  IgnoreConditionReads ignore;
  original(this);
}

void Mutex::ReaderLock() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  static auto* const original = Original<void(Mutex*)>("5Mutex10ReaderLock", "v");
  original(this);
  __tsan_acquire(this);
}

void Mutex::ReaderUnlock() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  static auto* const original = Original<void(Mutex*)>("5Mutex12ReaderUnlock", "v");
  __tsan_release(this);
  IgnoreConditionReads ignore;
  original(this);
}

void Mutex::LockWhen(const Condition& condition) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  static auto* const original =
      Original<void(Mutex*, const Condition&)>("5Mutex8LockWhen", kCondition);
  {
    IgnoreConditionReads ignore;
    original(this, condition);
  }
  __tsan_acquire(this);
}

void Mutex::Await(const Condition& condition) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  static auto* const original =
      Original<void(Mutex*, const Condition&)>("5Mutex5Await", kCondition);
  __tsan_release(this);
  {
    IgnoreConditionReads ignore;
    original(this, condition);
  }
  __tsan_acquire(this);
}

bool Mutex::AwaitWithTimeout(const Condition& condition,
                             Duration timeout) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  static auto* const original = Original<bool(Mutex*, const Condition&, Duration)>(
      "5Mutex16AwaitWithTimeout", std::string(kCondition) + kDuration);
  __tsan_release(this);
  bool met = false;
  {
    IgnoreConditionReads ignore;
    met = original(this, condition, timeout);
  }
  __tsan_acquire(this);
  return met;
}

bool Mutex::AwaitWithDeadline(const Condition& condition,
                              Time deadline) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  static auto* const original = Original<bool(Mutex*, const Condition&, Time)>(
      "5Mutex17AwaitWithDeadline", std::string(kCondition) + kTime);
  __tsan_release(this);
  bool met = false;
  {
    IgnoreConditionReads ignore;
    met = original(this, condition, deadline);
  }
  __tsan_acquire(this);
  return met;
}

void CondVar::Wait(Mutex* mutex) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  static auto* const original = Original<void(CondVar*, Mutex*)>("7CondVar4Wait", "PNS0_5MutexE");
  __tsan_release(mutex);
  {
    IgnoreConditionReads ignore;
    original(this, mutex);
  }
  __tsan_acquire(mutex);
}

bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  static auto* const original = Original<bool(CondVar*, Mutex*, Duration)>(
      "7CondVar15WaitWithTimeout", std::string("PNS0_5MutexE") + kDuration);
  __tsan_release(mutex);
  bool timed_out = false;
  {
    IgnoreConditionReads ignore;
    timed_out = original(this, mutex, timeout);
  }
  __tsan_acquire(mutex);
  return timed_out;
}

bool CondVar::WaitWithDeadline(Mutex* mutex, Time deadline) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  static auto* const original = Original<bool(CondVar*, Mutex*, Time)>(
      "7CondVar16WaitWithDeadline", std::string("PNS0_5MutexE") + kTime);
  __tsan_release(mutex);
  bool timed_out = false;
  {
    IgnoreConditionReads ignore;
    timed_out = original(this, mutex, deadline);
  }
  __tsan_acquire(mutex);
  return timed_out;
}

bool BlockingCounter::DecrementCount() {
  static auto* const original =
      Original<bool(BlockingCounter*)>("15BlockingCounter14DecrementCount", "v");
  __tsan_release(this);
  return original(this);
}

void BlockingCounter::Wait() {
  static auto* const original = Original<void(BlockingCounter*)>("15BlockingCounter4Wait", "v");
  original(this);
  __tsan_acquire(this);
}

void Notification::Notify() {
  static auto* const original = Original<void(Notification*)>("12Notification6Notify", "v");
  __tsan_release(this);
  original(this);
}

void Notification::WaitForNotification() const {
  static auto* const original =
      Original<void(const Notification*)>("12Notification19WaitForNotification", "v", "K");
  original(this);
  __tsan_acquire(const_cast<Notification*>(this));
}

bool Notification::WaitForNotificationWithTimeout(Duration timeout) const {
  static auto* const original = Original<bool(const Notification*, Duration)>(
      "12Notification30WaitForNotificationWithTimeout", kDuration, "K");
  const bool notified = original(this, timeout);
  if (notified) __tsan_acquire(const_cast<Notification*>(this));
  return notified;
}

// The owner whose count was the last deletes what all of them have read.
void Status::UnrefNonInlined(uintptr_t representation) {
  static auto* const original = Original<void(uintptr_t)>("6Status15UnrefNonInlined", "m");
  AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  original(representation);
  AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
}

ABSL_NAMESPACE_END
}  // namespace absl
