#include "daemon/server/metric_families.h"

#include <algorithm>

namespace ckptd {

prometheus::Histogram& AddSecondsHistogram(prometheus::Registry& registry, const std::string& name,
                                           const std::string& help,
                                           const prometheus::Labels& labels) {
  static const prometheus::Histogram::BucketBoundaries kBuckets = {
      0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300};
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add(labels,
                                                                                   kBuckets);
}

prometheus::Counter& AddCounter(prometheus::Registry& registry, const std::string& name,
                                const std::string& help, const prometheus::Labels& labels) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add(labels);
}

prometheus::Gauge& AddGauge(prometheus::Registry& registry, const std::string& name,
                            const std::string& help, const prometheus::Labels& labels) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add(labels);
}

std::string CodeName(absl::StatusCode code) { return absl::StatusCodeToString(code); }

FailureCounter::FailureCounter(prometheus::Registry& registry, const std::string& name,
                               const std::string& help) {
  for (size_t code = 1; code < kCodes; ++code) {
    by_code_[code] = &AddCounter(registry, name, help,
                                 {{"code", CodeName(static_cast<absl::StatusCode>(code))}});
  }
}

void FailureCounter::Count(const absl::Status& failure) {
  if (failure.ok()) return;
  const size_t code = static_cast<size_t>(failure.code());
  by_code_[code < kCodes ? code : static_cast<size_t>(absl::StatusCode::kUnknown)]->Increment();
}

JobTimestampGauge::JobTimestampGauge(prometheus::Registry& registry, const std::string& name,
                                     const std::string& help, size_t limit)
    : limit_(limit), family_(prometheus::BuildGauge().Name(name).Help(help).Register(registry)) {}

void JobTimestampGauge::Set(const std::string& job, absl::Time value) {
  absl::MutexLock lock(&mutex_);
  auto found = jobs_.find(job);
  if (found == jobs_.end()) {
    found = jobs_.emplace(job, Entry{value, &family_.Add({{"job", job}})}).first;
  }
  found->second.value = value;
  found->second.gauge->Set(absl::ToDoubleSeconds(value - absl::UnixEpoch()));
  if (jobs_.size() > limit_) RemoveOldest();
}

void JobTimestampGauge::Remove(const std::string& job) {
  absl::MutexLock lock(&mutex_);
  auto found = jobs_.find(job);
  if (found == jobs_.end()) return;
  family_.Remove(found->second.gauge);
  jobs_.erase(found);
}

void JobTimestampGauge::RemoveOldest() {
  auto oldest = std::min_element(jobs_.begin(), jobs_.end(), [](const auto& a, const auto& b) {
    return a.second.value < b.second.value;
  });
  family_.Remove(oldest->second.gauge);
  jobs_.erase(oldest);
}

}  // namespace ckptd
