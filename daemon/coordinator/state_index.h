// All ranks' layouts of one job, merged and indexed: which tensors there are,
// and who holds which boxes of them. The base of save plans and of commits.
//
// Pure: values in, values out. Immutable once made; safe to read from any thread.
// Memory: about 16 bytes per shard and 16 per dimension of it; names, shapes and
// types are kept once per tensor.
#ifndef CKPTD_DAEMON_COORDINATOR_STATE_INDEX_H_
#define CKPTD_DAEMON_COORDINATOR_STATE_INDEX_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "storage/layout/box.h"
#include "storage/layout/data_type.h"

namespace ckptd {

// One rank's layout as it came: a serialized v1::Layout.
struct SerializedLayout {
  uint32_t rank = 0;
  std::string_view bytes;
};

enum class NameKind : uint8_t { kSharded, kSmallTensor, kValue };

class StateIndex {
 public:
  // A name of the state. Ids are the same for any order of the ranks.
  struct Entry {
    std::string name;
    NameKind kind = NameKind::kSharded;
    DataType data_type = DataType::kUnspecified;  // none of a value
    Extents shape;
    uint32_t first_rank = 0;  // the lowest that has it
  };
  struct ShardRef {
    uint32_t rank = 0;   // a position in ranks(), not a rank number
    uint32_t shard = 0;  // index into that rank's Layout.shards
  };

  // INVALID_ARGUMENT, naming rank and entry, for what no layout may contain;
  // listing all names about which ranks disagree (shape, dtype, or what kind of
  // thing it is) with the ranks.
  static absl::StatusOr<StateIndex> Create(std::vector<SerializedLayout> layouts);
  StateIndex() = default;  // of no ranks

  // Ascending rank numbers; everything below counts positions in it.
  const std::vector<uint32_t>& ranks() const { return ranks_; }
  std::optional<uint32_t> PositionOf(uint32_t rank) const;

  const std::vector<Entry>& entries() const { return entries_; }
  std::optional<uint32_t> Find(std::string_view name) const;

  uint32_t shard_count(uint32_t position) const;
  uint32_t EntryOfShard(ShardRef ref) const { return shard(ref).entry; }
  Box BoxOfShard(ShardRef ref) const;
  // The name that this shard says it shares memory with; empty: none.
  std::string_view AliasOfShard(ShardRef ref) const;

  // Who holds boxes of an entry of kind kSharded, by position, then shard.
  std::span<const ShardRef> ShardsOfEntry(uint32_t entry) const;
  // The entries of kinds kSmallTensor and kValue that this rank gave.
  std::span<const uint32_t> SmallOfRank(uint32_t position) const;
  // The name that the i-th of these says it shares memory with; empty: none.
  std::string_view AliasOfSmall(uint32_t position, size_t i) const;

 private:
  class Builder;
  struct Shard {
    uint32_t entry = 0;
    uint32_t alias = 0;       // index into aliases_; 0: none
    uint64_t extents_at = 0;  // offsets, then lengths, in extents_
  };

  const Shard& shard(ShardRef ref) const { return shards_[first_shard_[ref.rank] + ref.shard]; }

  std::vector<uint32_t> ranks_;
  std::vector<Entry> entries_;
  absl::flat_hash_map<std::string, uint32_t> ids_;
  std::vector<Shard> shards_;          // by position, then shard
  std::vector<uint64_t> first_shard_;  // by position; one more at the end
  std::vector<int64_t> extents_;
  std::vector<std::string> aliases_ = {""};
  std::vector<ShardRef> by_entry_;        // grouped by entry
  std::vector<uint64_t> first_of_entry_;  // by entry; one more at the end
  std::vector<uint32_t> small_;           // by position
  std::vector<uint32_t> small_alias_;     // of small_: index into aliases_
  std::vector<uint64_t> first_small_;     // by position; one more at the end
};

}  // namespace ckptd

#endif  // CKPTD_DAEMON_COORDINATOR_STATE_INDEX_H_
