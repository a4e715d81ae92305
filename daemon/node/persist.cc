#include "daemon/node/persist.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/node/file_writer.h"

namespace ckptd {
namespace {

constexpr size_t kFileQueueLimit = 1 << 16;

}  // namespace

Persister::Persister(FileSystem& file_system, NodeProbe& probe, int threads, bool direct_io)
    : file_system_(file_system),
      probe_(probe),
      threads_(threads),
      direct_io_(direct_io),
      executor_("ckptd-persist", threads, kFileQueueLimit) {}

Persister::~Persister() { Stop(); }

std::shared_ptr<OpenFile> Persister::Open(FileToPersist file, Done<PersistedFile> done) {
  const FileWriter::Tools tools = {.file_system = file_system_,
                                   .probe = probe_,
                                   .executor = executor_,
                                   .paused = paused_,
                                   .threads = threads_,
                                   .direct_io = direct_io_};
  auto writer = std::make_shared<FileWriter>(tools, std::move(file), std::move(done));
  {
    absl::MutexLock lock(&mutex_);
    std::erase_if(open_, [](const auto& other) { return other.expired(); });
    open_.push_back(writer);
  }
  writer->Start();
  return writer;
}

void Persister::Remove(const std::string& store_path, const std::string& job,
                       const std::vector<std::string>& relative_paths) {
  if (relative_paths.empty()) return;
  const absl::Status submitted = executor_.Submit([this, store_path, job, relative_paths] {
    for (const std::string& relative : relative_paths) {
      // What can't be removed now is collected later by age.
      file_system_.Remove(absl::StrCat(store_path, "/", job, "/", relative)).IgnoreError();
    }
  });
  submitted.IgnoreError();  // shutting down: collected later by age
}

void Persister::Abandon(const std::shared_ptr<PersistProgress>& progress) {
  progress->abandoned = true;
  const absl::Status why = absl::AbortedError("the attempt was given up");
  for (auto& writer : OpenWriters()) {
    if (writer->progress() == progress) writer->StopWaiting(why);
  }
}

std::vector<std::shared_ptr<FileWriter>> Persister::OpenWriters() {
  std::vector<std::shared_ptr<FileWriter>> writers;
  absl::MutexLock lock(&mutex_);
  for (const std::weak_ptr<FileWriter>& open : open_) {
    if (auto writer = open.lock()) writers.push_back(std::move(writer));
  }
  return writers;
}

void Persister::SetPaused(bool paused) {
  paused_ = paused;
  if (paused) return;
  for (auto& writer : OpenWriters()) writer->Resume();
}

void Persister::Stop() {
  const absl::Status why = absl::UnavailableError("the node daemon is shutting down");
  executor_.Stop();
  // No task runs any more that could begin to wait.
  for (auto& writer : OpenWriters()) writer->StopWaiting(why);
}

}  // namespace ckptd
