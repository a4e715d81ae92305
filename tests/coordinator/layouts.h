// Short ways to write layouts in tests.
#ifndef CKPTD_TESTS_COORDINATOR_LAYOUTS_H_
#define CKPTD_TESTS_COORDINATOR_LAYOUTS_H_

#include <string>
#include <vector>

#include "ckptd/v1/node.pb.h"

namespace ckptd {

using Numbers = std::vector<uint64_t>;

inline v1::Shard MakeShard(const std::string& name, const Numbers& shape, const Numbers& offsets,
                           const Numbers& lengths, v1::DataType type = v1::DATA_TYPE_F32,
                           const std::string& alias_of = "") {
  v1::Shard shard;
  shard.set_name(name);
  shard.set_data_type(type);
  shard.mutable_shape()->Add(shape.begin(), shape.end());
  shard.mutable_offsets()->Add(offsets.begin(), offsets.end());
  shard.mutable_lengths()->Add(lengths.begin(), lengths.end());
  shard.set_alias_of(alias_of);
  return shard;
}

inline v1::Shard WholeShard(const std::string& name, const Numbers& shape,
                            v1::DataType type = v1::DATA_TYPE_F32,
                            const std::string& alias_of = "") {
  return MakeShard(name, shape, Numbers(shape.size(), 0), shape, type, alias_of);
}

inline v1::Layout MakeLayout(const std::vector<v1::Shard>& shards,
                             const std::vector<std::string>& values = {}) {
  v1::Layout layout;
  layout.mutable_shards()->Add(shards.begin(), shards.end());
  layout.mutable_values()->Add(values.begin(), values.end());
  return layout;
}

}  // namespace ckptd

#endif  // CKPTD_TESTS_COORDINATOR_LAYOUTS_H_
