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

LastSuccessGauges::LastSuccessGauges(prometheus::Registry& registry, size_t limit)
    : limit_(limit),
      timestamps_(prometheus::BuildGauge()
                      .Name("ckptd_last_success_timestamp_seconds")
                      .Help("When the job's newest checkpoint was committed, Unix time.")
                      .Register(registry)),
      steps_(prometheus::BuildGauge()
                 .Name("ckptd_last_success_step")
                 .Help("The step of the job's newest checkpoint.")
                 .Register(registry)) {}

void LastSuccessGauges::Set(const std::string& job, uint64_t step, absl::Time when) {
  absl::MutexLock lock(&mutex_);
  auto found = jobs_.find(job);
  if (found == jobs_.end()) {
    const prometheus::Labels labels = {{"job", job}};
    found = jobs_.emplace(job, Entry{when, &timestamps_.Add(labels), &steps_.Add(labels)}).first;
  }
  found->second.when = when;
  found->second.timestamp->Set(absl::ToDoubleSeconds(when - absl::UnixEpoch()));
  found->second.step->Set(static_cast<double>(step));
  if (jobs_.size() > limit_) RemoveOldest();
}

void LastSuccessGauges::Remove(const std::string& job) {
  absl::MutexLock lock(&mutex_);
  if (auto found = jobs_.find(job); found != jobs_.end()) Remove(found);
}

void LastSuccessGauges::Remove(Jobs::iterator job) {
  timestamps_.Remove(job->second.timestamp);
  steps_.Remove(job->second.step);
  jobs_.erase(job);
}

void LastSuccessGauges::RemoveOldest() {
  Remove(std::min_element(jobs_.begin(), jobs_.end(), [](const auto& a, const auto& b) {
    return a.second.when < b.second.when;
  }));
}

}  // namespace ckptd
