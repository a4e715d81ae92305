#include "daemon/coordinator/catalog.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/coordinator/names.h"
#include "rocksdb/db.h"
#include "rocksdb/write_batch.h"

namespace ckptd {
namespace {

absl::Status FromRocksDb(const rocksdb::Status& status, std::string_view doing) {
  if (status.ok()) return absl::OkStatus();
  const std::string message = absl::StrCat(Abseil(doing), " the catalog: ", status.ToString());
  if (status.IsCorruption()) return absl::DataLossError(message);
  if (status.IsNoSpace()) return absl::ResourceExhaustedError(message);
  return absl::InternalError(message);
}

std::string StepKey(char kind, const std::string& job, uint64_t step) {
  std::string key = absl::StrCat(std::string(1, kind), job);
  key.push_back('\0');
  for (int shift = 56; shift >= 0; shift -= 8) key.push_back(static_cast<char>(step >> shift));
  return key;
}

std::string EntryKey(const std::string& job, uint64_t step, std::string_view name) {
  return absl::StrCat(StepKey('e', job, step), Abseil(name));
}

// Names are UTF-8, which never contains 0xff: this lies behind all of a step's entries.
std::string EntriesEnd(const std::string& job, uint64_t step) {
  return StepKey('e', job, step) + "\xff";
}

template <typename Message>
absl::StatusOr<Message> Parse(const rocksdb::Slice& bytes, std::string_view what) {
  Message message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::DataLossError(absl::StrCat("the catalog's ", Abseil(what),
                                            " is damaged; remove the catalog's folder to have it "
                                            "rebuilt from the manifests"));
  }
  return message;
}

class RocksDbView : public Catalog::View {
 public:
  explicit RocksDbView(rocksdb::DB& db) : db_(db) { options_.snapshot = db_.GetSnapshot(); }
  ~RocksDbView() override { db_.ReleaseSnapshot(options_.snapshot); }

  absl::StatusOr<v1::CheckpointRecord> Checkpoint(const std::string& job,
                                                  uint64_t step) const override {
    return Get<v1::CheckpointRecord>(StepKey('c', job, step), CheckpointName(job, step));
  }
  absl::StatusOr<v1::NameIndex> Names(const std::string& job, uint64_t step) const override {
    return Get<v1::NameIndex>(StepKey('n', job, step),
                              absl::StrCat("names of ", CheckpointName(job, step)));
  }
  absl::StatusOr<std::optional<v1::CatalogEntry>> Find(const std::string& job, uint64_t step,
                                                       std::string_view name) const override {
    auto entry = Get<v1::CatalogEntry>(EntryKey(job, step, name),
                                       absl::StrCat("entry of ", CheckpointName(job, step)));
    if (absl::IsNotFound(entry.status())) return std::nullopt;
    if (!entry.ok()) return entry.status();
    return *std::move(entry);
  }

 private:
  template <typename Message>
  absl::StatusOr<Message> Get(const std::string& key, const std::string& what) const {
    rocksdb::PinnableSlice value;
    const rocksdb::Status status = db_.Get(options_, db_.DefaultColumnFamily(), key, &value);
    if (status.IsNotFound()) return absl::NotFoundError(absl::StrCat("there is no ", what));
    if (!status.ok()) return FromRocksDb(status, absl::StrCat("reading ", what, " from"));
    return Parse<Message>(value, what);
  }

  rocksdb::DB& db_;
  rocksdb::ReadOptions options_;
};

class RocksDbCatalog : public Catalog {
 public:
  explicit RocksDbCatalog(std::unique_ptr<rocksdb::DB> db) : db_(std::move(db)) {}

  absl::StatusOr<std::vector<v1::JobRecord>> Jobs() const override {
    return All<v1::JobRecord>('j', "job record");
  }
  absl::StatusOr<std::vector<v1::CheckpointRecord>> Checkpoints() const override {
    return All<v1::CheckpointRecord>('c', "checkpoint record");
  }
  std::unique_ptr<View> MakeView() const override { return std::make_unique<RocksDbView>(*db_); }

  absl::Status PutJob(const v1::JobRecord& record) override {
    rocksdb::WriteBatch batch;
    if (absl::Status status = AddJob(batch, record); !status.ok()) return status;
    return Write(batch, absl::StrCat("recording job ", record.job(), " in"));
  }

  absl::Status PutCheckpoint(const v1::JobRecord& job, const v1::CheckpointRecord& record,
                             const v1::Manifest& manifest) override {
    const std::string what =
        absl::StrCat("recording ", CheckpointName(manifest.job(), manifest.step()), " in");
    rocksdb::WriteBatch batch;
    absl::Status status = AddJob(batch, job);
    if (status.ok()) status = AddRemoval(batch, manifest.job(), manifest.step(), what);
    if (status.ok()) status = AddEntries(batch, manifest, what);
    if (!status.ok()) return status;
    status = FromRocksDb(
        batch.Put(StepKey('c', manifest.job(), manifest.step()), record.SerializeAsString()), what);
    return status.ok() ? Write(batch, what) : status;
  }

  absl::Status RemoveCheckpoint(const std::string& job, uint64_t step) override {
    const std::string what = absl::StrCat("removing ", CheckpointName(job, step), " from");
    rocksdb::WriteBatch batch;
    absl::Status status = AddRemoval(batch, job, step, what);
    return status.ok() ? Write(batch, what) : status;
  }

 private:
  static absl::Status AddJob(rocksdb::WriteBatch& batch, const v1::JobRecord& record) {
    return FromRocksDb(batch.Put(absl::StrCat("j", record.job()), record.SerializeAsString()),
                       "recording a job in");
  }

  static absl::Status AddRemoval(rocksdb::WriteBatch& batch, const std::string& job, uint64_t step,
                                 const std::string& what) {
    rocksdb::Status status = batch.Delete(StepKey('c', job, step));
    if (status.ok()) status = batch.Delete(StepKey('n', job, step));
    if (status.ok()) status = batch.DeleteRange(StepKey('e', job, step), EntriesEnd(job, step));
    return FromRocksDb(status, what);
  }

  static absl::Status AddEntries(rocksdb::WriteBatch& batch, const v1::Manifest& manifest,
                                 const std::string& what) {
    v1::NameIndex names;
    rocksdb::Status status;
    auto add = [&](const std::string& name, const v1::CatalogEntry& entry) {
      *names.add_names() = name;
      if (!status.ok()) return;
      status =
          batch.Put(EntryKey(manifest.job(), manifest.step(), name), entry.SerializeAsString());
    };
    v1::CatalogEntry entry;
    for (const v1::TensorEntry& tensor : manifest.tensors()) {
      *entry.mutable_tensor() = tensor;
      add(tensor.name(), entry);
    }
    for (const v1::PerRankEntry& per_rank : manifest.per_rank()) {
      *entry.mutable_per_rank() = per_rank;
      add(per_rank.name(), entry);
    }
    for (const v1::ValueEntry& value : manifest.values()) {
      *entry.mutable_value() = value;
      add(value.name(), entry);
    }
    std::sort(names.mutable_names()->begin(), names.mutable_names()->end());
    if (status.ok()) {
      status = batch.Put(StepKey('n', manifest.job(), manifest.step()), names.SerializeAsString());
    }
    return FromRocksDb(status, what);
  }

  absl::Status Write(rocksdb::WriteBatch& batch, const std::string& what) {
    rocksdb::WriteOptions options;
    options.sync = true;
    return FromRocksDb(db_->Write(options, &batch), what);
  }

  template <typename Message>
  absl::StatusOr<std::vector<Message>> All(char kind, std::string_view what) const {
    const std::string prefix(1, kind);
    std::vector<Message> messages;
    std::unique_ptr<rocksdb::Iterator> it(db_->NewIterator(rocksdb::ReadOptions()));
    for (it->Seek(prefix); it->Valid() && it->key().starts_with(prefix); it->Next()) {
      absl::StatusOr<Message> message = Parse<Message>(it->value(), what);
      if (!message.ok()) return message.status();
      messages.push_back(*std::move(message));
    }
    if (!it->status().ok()) return FromRocksDb(it->status(), "reading");
    return messages;
  }

  const std::unique_ptr<rocksdb::DB> db_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Catalog>> OpenCatalog(const std::string& path) {
  rocksdb::Options options;
  options.create_if_missing = true;
  options.keep_log_file_num = 4;
  options.max_open_files = 256;
  // What is written stays in memory until this much of it has come together: with RocksDB's
  // 64 MiB a coordinator would grow over thousands of saves.
  options.write_buffer_size = size_t{1} << 20;
  rocksdb::DB* db = nullptr;
  const rocksdb::Status status = rocksdb::DB::Open(options, path, &db);
  if (status.ok()) return std::make_unique<RocksDbCatalog>(std::unique_ptr<rocksdb::DB>(db));
  // RocksDB reports a held lock as an I/O error that names its LOCK file.
  if (status.IsIOError() && status.ToString().find("lock") != std::string::npos) {
    return absl::FailedPreconditionError(
        absl::StrCat("another coordinator is running on the catalog ", path,
                     "; stop it, or give this one a catalog of its own (", status.ToString(), ")"));
  }
  return FromRocksDb(status, absl::StrCat("opening ", path, ","));
}

v1::CheckpointRecord MakeCheckpointRecord(const v1::Manifest& manifest, const std::string& store,
                                          std::string_view frame) {
  v1::CheckpointRecord record;
  v1::CheckpointSummary& summary = *record.mutable_summary();
  summary.set_job(manifest.job());
  summary.set_step(manifest.step());
  *summary.mutable_attempt() = manifest.attempt();
  summary.set_committed_unix_microseconds(manifest.committed_unix_microseconds());
  summary.set_world_size(manifest.world_size());
  uint64_t size_bytes = 0;
  for (const v1::DataFile& file : manifest.files()) size_bytes += file.size_bytes();
  summary.set_size_bytes(size_bytes);
  summary.set_tensors(manifest.tensors_size() + manifest.per_rank_size());
  summary.set_files(manifest.files_size());
  summary.set_store(store);
  *summary.mutable_owner() = manifest.owner();
  if (manifest.has_parent_step()) summary.set_parent_step(manifest.parent_step());
  record.set_chunk_bytes(manifest.chunk_bytes());
  *record.mutable_files() = manifest.files();
  record.set_manifest_frame(std::string(frame));
  return record;
}

}  // namespace ckptd
