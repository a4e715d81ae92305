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

void Persister::Write(FileToPersist file, Done<PersistedFile> done) {
  Queue(MakeWriter(std::move(file), std::move(done)));
}

std::shared_ptr<WindowedFile> Persister::WriteWindows(FileToPersist file,
                                                      Done<PersistedFile> done) {
  std::shared_ptr<FileWriter> writer = MakeWriter(std::move(file), std::move(done));
  {
    absl::MutexLock lock(&mutex_);
    std::erase_if(windowed_, [](const auto& other) { return other.expired(); });
    windowed_.push_back(writer);
  }
  Queue(writer);
  return writer;
}

std::shared_ptr<FileWriter> Persister::MakeWriter(FileToPersist file, Done<PersistedFile> done) {
  const FileWriter::Tools tools = {.file_system = file_system_,
                                   .probe = probe_,
                                   .executor = executor_,
                                   .threads = threads_,
                                   .direct_io = direct_io_};
  return std::make_shared<FileWriter>(tools, std::move(file), std::move(done));
}

void Persister::Queue(std::shared_ptr<FileWriter> writer) {
  {
    absl::MutexLock lock(&mutex_);
    // An abandoned one ends as soon as it is begun; parked, nobody would look at it again.
    if (paused_ && !stopping_ && !writer->abandoned()) {
      waiting_.push_back(std::move(writer));
      return;
    }
  }
  Start(std::move(writer));
}

void Persister::Start(std::shared_ptr<FileWriter> writer) {
  const absl::Status submitted = executor_.Submit([writer] { writer->Begin(); });
  if (!submitted.ok()) writer->End(submitted);
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
  std::vector<std::shared_ptr<FileWriter>> dropped;
  {
    absl::MutexLock lock(&mutex_);
    auto kept = std::stable_partition(waiting_.begin(), waiting_.end(), [&](const auto& writer) {
      return writer->progress() != progress;
    });
    dropped.assign(kept, waiting_.end());
    waiting_.erase(kept, waiting_.end());
  }
  const absl::Status why = absl::AbortedError("the attempt was given up");
  for (auto& writer : dropped) writer->End(why);
  for (auto& writer : Windowed()) {
    if (writer->progress() == progress) writer->StopWaiting(why);
  }
}

std::vector<std::shared_ptr<FileWriter>> Persister::Windowed() {
  std::vector<std::shared_ptr<FileWriter>> writers;
  absl::MutexLock lock(&mutex_);
  for (const std::weak_ptr<FileWriter>& windowed : windowed_) {
    if (auto writer = windowed.lock()) writers.push_back(std::move(writer));
  }
  return writers;
}

void Persister::SetPaused(bool paused) {
  std::vector<std::shared_ptr<FileWriter>> released;
  {
    absl::MutexLock lock(&mutex_);
    paused_ = paused;
    if (!paused) released = std::exchange(waiting_, {});
  }
  for (auto& writer : released) Start(std::move(writer));
}

bool Persister::paused() const {
  absl::MutexLock lock(&mutex_);
  return paused_;
}

void Persister::Stop() {
  std::vector<std::shared_ptr<FileWriter>> waiting;
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    waiting = std::exchange(waiting_, {});
  }
  const absl::Status why = absl::UnavailableError("the node daemon is shutting down");
  for (auto& writer : waiting) writer->End(why);
  executor_.Stop();
  // No task runs any more that could begin to wait.
  for (auto& writer : Windowed()) writer->StopWaiting(why);
}

}  // namespace ckptd
