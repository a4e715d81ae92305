// How our metrics are made: all series that can be known are made at start, so
// that zeros export; base units; no rank, step or path in a label.
#ifndef CKPTD_DAEMON_SERVER_METRIC_FAMILIES_H_
#define CKPTD_DAEMON_SERVER_METRIC_FAMILIES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"

namespace ckptd {

// Buckets from 5 ms to 300 s. Thread-safe, as all of prometheus-cpp's metrics.
prometheus::Histogram& AddSecondsHistogram(prometheus::Registry& registry, const std::string& name,
                                           const std::string& help,
                                           const prometheus::Labels& labels = {});
prometheus::Counter& AddCounter(prometheus::Registry& registry, const std::string& name,
                                const std::string& help, const prometheus::Labels& labels = {});
prometheus::Gauge& AddGauge(prometheus::Registry& registry, const std::string& name,
                            const std::string& help, const prometheus::Labels& labels = {});

// "INVALID_ARGUMENT"; "UNKNOWN" for what is no code of Abseil's.
std::string CodeName(absl::StatusCode code);

// Failures counted by status code, one series per code that exists. Thread-safe.
class FailureCounter {
 public:
  FailureCounter(prometheus::Registry& registry, const std::string& name, const std::string& help);
  void Count(const absl::Status& failure);

 private:
  static constexpr size_t kCodes = static_cast<size_t>(absl::StatusCode::kUnauthenticated) + 1;
  std::array<prometheus::Counter*, kCodes> by_code_ = {};
};

// Each job's last success: when, and which step. For the `limit` jobs that succeeded last:
// users name jobs, and a scraper must not drown in them. Thread-safe.
class LastSuccessGauges {
 public:
  LastSuccessGauges(prometheus::Registry& registry, size_t limit);
  void Set(const std::string& job, uint64_t step, absl::Time when) ABSL_LOCKS_EXCLUDED(mutex_);
  void Remove(const std::string& job) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Entry {
    absl::Time when;
    prometheus::Gauge* timestamp;
    prometheus::Gauge* step;
  };
  using Jobs = std::map<std::string, Entry>;
  void Remove(Jobs::iterator job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RemoveOldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t limit_;
  prometheus::Family<prometheus::Gauge>& timestamps_;
  prometheus::Family<prometheus::Gauge>& steps_;
  absl::Mutex mutex_;
  Jobs jobs_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ckptd

#endif  // CKPTD_DAEMON_SERVER_METRIC_FAMILIES_H_
