#include "daemon/coordinator/alias_resolver.h"

#include <algorithm>
#include <optional>
#include <set>

namespace ckptd {
namespace {

constexpr uint32_t kNone = UINT32_MAX;

bool RankHoldsBox(const StateIndex& index, uint32_t entry, uint32_t position, const Box& box) {
  const auto shards = index.ShardsOfEntry(entry);
  auto it = std::lower_bound(
      shards.begin(), shards.end(), position,
      [](const StateIndex::ShardRef& ref, uint32_t value) { return ref.rank < value; });
  for (; it != shards.end() && it->rank == position; ++it) {
    if (index.BoxOfShard(*it) == box) return true;
  }
  return false;
}

// The tensor that all shards of `entry` say they share memory with, if they may.
uint32_t DirectAlias(const StateIndex& index, uint32_t entry) {
  const auto shards = index.ShardsOfEntry(entry);
  if (shards.empty()) return kNone;
  const std::string_view name = index.AliasOfShard(shards.front());
  if (name.empty()) return kNone;
  const std::optional<uint32_t> target = index.Find(name);
  if (!target.has_value() || *target == entry) return kNone;
  const StateIndex::Entry& mine = index.entries()[entry];
  const StateIndex::Entry& other = index.entries()[*target];
  if (other.kind != NameKind::kSharded || other.data_type != mine.data_type ||
      other.shape != mine.shape) {
    return kNone;
  }
  const bool all = std::all_of(shards.begin(), shards.end(), [&](const auto& ref) {
    return index.AliasOfShard(ref) == name &&
           RankHoldsBox(index, *target, ref.rank, index.BoxOfShard(ref));
  });
  return all ? *target : kNone;
}

}  // namespace

std::vector<uint32_t> ResolveAliases(const StateIndex& index) {
  std::vector<uint32_t> direct(index.entries().size(), kNone);
  for (uint32_t entry = 0; entry < direct.size(); ++entry) {
    if (index.entries()[entry].kind == NameKind::kSharded) {
      direct[entry] = DirectAlias(index, entry);
    }
  }
  std::vector<uint32_t> resolved = direct;
  for (uint32_t entry = 0; entry < direct.size(); ++entry) {
    std::set<uint32_t> visited = {entry};
    while (resolved[entry] != kNone && direct[resolved[entry]] != kNone) {
      const uint32_t next = direct[resolved[entry]];
      if (!visited.insert(resolved[entry]).second) {
        resolved[entry] = kNone;
        break;
      }
      resolved[entry] = next;
    }
    if (resolved[entry] == entry) resolved[entry] = kNone;
  }
  return resolved;
}

}  // namespace ckptd
