#include "daemon/server/coordinator_metrics.h"
#include "daemon/server/metrics_endpoint.h"
#include "daemon/server/node_metrics.h"
#include "tests/catch.h"
#include "tests/server/http_get.h"

namespace ckptd {
namespace {

using Catch::Matchers::Contains;

class Scrape {
 public:
  Scrape()
      : registry_(std::make_shared<prometheus::Registry>()),
        node(*registry_, log_),
        coordinator(*registry_, log_) {
    auto started = MetricsEndpoint::Start({.host = "127.0.0.1", .port = 0}, registry_);
    REQUIRE(started.ok());
    endpoint = *std::move(started);
  }
  std::string Text() const { return HttpGet(endpoint->port(), "/metrics"); }

 private:
  NullLog log_;
  std::shared_ptr<prometheus::Registry> registry_;

 public:
  NodeMetrics node;
  CoordinatorMetrics coordinator;
  std::unique_ptr<MetricsEndpoint> endpoint;
};

TEST_CASE("zeros are exported before anything has happened") {
  Scrape scrape;
  const std::string text = scrape.Text();
  CHECK_THAT(text, Contains("200 OK"));
  for (const char* histogram :
       {"ckptd_save_stall_seconds", "ckptd_snapshot_seconds", "ckptd_persist_seconds",
        "ckptd_commit_seconds", "ckptd_durable_seconds", "ckptd_restore_seconds"}) {
    CHECK_THAT(text, Contains(std::string(histogram) + "_count 0\n"));
  }
  CHECK_THAT(text, Contains("ckptd_plan_seconds_count{kind=\"save\"} 0\n"));
  CHECK_THAT(text, Contains("ckptd_save_failures_total{code=\"ABORTED\"} 0\n"));
  CHECK_THAT(text, Contains("ckptd_checksum_failures_total 0\n"));
  CHECK_THAT(text, Contains("ckptd_kept_images_changed_total 0\n"));
}

TEST_CASE("a save's phases reach the metrics endpoint in base units") {
  Scrape scrape;
  scrape.node.SnapshotFinished(0.3, 1000);
  scrape.node.PersistFinished(400, 1000);
  scrape.node.ArenaUsed(10, 20, 100);
  scrape.node.SaveFailed(absl::StatusCode::kDataLoss, v1::SAVE_PHASE_PERSIST);
  scrape.node.SaveDurable(1, 1000, absl::FromUnixSeconds(1'800'000'000));
  const std::string text = scrape.Text();
  CHECK_THAT(text, Contains("ckptd_snapshot_seconds_bucket{le=\"0.25\"} 0\n"));
  CHECK_THAT(text, Contains("ckptd_snapshot_seconds_bucket{le=\"0.5\"} 1\n"));
  CHECK_THAT(text, Contains("ckptd_persist_seconds_bucket{le=\"300\"} 0\n"));
  CHECK_THAT(text, Contains("ckptd_persist_seconds_bucket{le=\"+Inf\"} 1\n"));
  CHECK_THAT(text, Contains("ckptd_persist_bytes_total 1000\n"));
  CHECK_THAT(text, Contains("ckptd_arena_used_bytes 10\n"));
  CHECK_THAT(text, Contains("ckptd_arena_kept_bytes 20\n"));
  CHECK_THAT(text, Contains("ckptd_save_failures_total{code=\"DATA_LOSS\"} 1\n"));
}

TEST_CASE("the last success of a job is a timestamp, and is gone with its last checkpoint") {
  Scrape scrape;
  scrape.coordinator.JobState("gpt", 40, absl::FromUnixSeconds(1'000'000), 3);
  CHECK_THAT(scrape.Text(), Contains("ckptd_last_success_timestamp_seconds{job=\"gpt\"} 1000000"));
  CHECK_THAT(scrape.Text(), Contains("ckptd_last_success_step{job=\"gpt\"} 40\n"));
  scrape.coordinator.JobState("gpt", 40, absl::FromUnixSeconds(1'000'000), 0);
  CHECK_THAT(scrape.Text(), !Contains("job=\"gpt\""));
}

TEST_CASE("the number of jobs with a series of their own is bounded, the newest stay") {
  prometheus::Registry registry;
  LastSuccessGauges gauges(registry, 2);
  gauges.Set("old", 10, absl::FromUnixSeconds(1));
  gauges.Set("new", 30, absl::FromUnixSeconds(3));
  gauges.Set("middle", 20, absl::FromUnixSeconds(2));
  const std::vector<prometheus::MetricFamily> families = registry.Collect();
  REQUIRE(families.size() == 2);
  for (const prometheus::MetricFamily& family : families) {
    std::vector<std::string> jobs;
    for (const auto& metric : family.metric) jobs.push_back(metric.label.at(0).value);
    std::sort(jobs.begin(), jobs.end());
    CHECK(jobs == std::vector<std::string>{"middle", "new"});
  }
}

TEST_CASE("a degraded way is told once") {
  Scrape scrape;
  CHECK_THAT(scrape.Text(), Contains("ckptd_fallback_in_use{what=\"direct_io\"} 0\n"));
  scrape.node.FallbackInUse("direct_io");
  scrape.node.FallbackInUse("direct_io");
  CHECK_THAT(scrape.Text(), Contains("ckptd_fallback_in_use{what=\"direct_io\"} 1\n") &&
                                Contains("ckptd_fallback_in_use{what=\"io_uring\"} 0\n"));
}

TEST_CASE("a metrics port that is taken is an error that says what to do") {
  Scrape scrape;
  auto second = MetricsEndpoint::Start(
      {.host = "127.0.0.1", .port = static_cast<uint16_t>(scrape.endpoint->port())},
      std::make_shared<prometheus::Registry>());
  CHECK(absl::IsUnavailable(second.status()));
  CHECK_THAT(std::string(second.status().message()), Contains("--metrics-listen"));
}

}  // namespace
}  // namespace ckptd
