package meta

import (
	"encoding/binary"
	"math/bits"
)

// A bloomData is a group's place in the bitmaps that an Apache broker with
// enableCalcFilterBitMap keeps of each message. ringmq keeps none; the place is
// written because an Apache broker takes no filter data without it.
type bloomData struct {
	BitNum int32   `json:"bitNum"`
	BitPos []int32 `json:"bitPos"`
}

// Apache's bitmap under its defaults of expectConsumerNumUseFilter (32) and
// maxErrorRateOfBloomFilter (20 %).
const (
	bloomBits   = 112
	bloomHashes = 3
)

// bloomOf is Apache's BloomFilter#generate for a group's subscription of a topic.
func bloomOf(group, topic string) bloomData {
	h := murmur3([]byte(group + "#" + topic))
	d := bloomData{BitNum: bloomBits}
	for i := int32(1); i <= bloomHashes; i++ {
		n := int32(h) + i*int32(h>>32)
		if n < 0 {
			n = ^n
		}
		d.BitPos = append(d.BitPos, n%bloomBits)
	}
	return d
}

// murmur3 is the first half of MurmurHash3_x64_128 with seed 0.
func murmur3(b []byte) uint64 {
	const c1, c2 = 0x87c37b91114253d5, 0x4cf5ad432745937f
	length := uint64(len(b))
	var h1, h2 uint64
	for ; len(b) >= 16; b = b[16:] {
		h1 ^= bits.RotateLeft64(binary.LittleEndian.Uint64(b)*c1, 31) * c2
		h1 = (bits.RotateLeft64(h1, 27)+h2)*5 + 0x52dce729
		h2 ^= bits.RotateLeft64(binary.LittleEndian.Uint64(b[8:])*c2, 33) * c1
		h2 = (bits.RotateLeft64(h2, 31)+h1)*5 + 0x38495ab5
	}
	var tail [16]byte // zeros change nothing
	copy(tail[:], b)
	h2 ^= bits.RotateLeft64(binary.LittleEndian.Uint64(tail[8:])*c2, 33) * c1
	h1 ^= bits.RotateLeft64(binary.LittleEndian.Uint64(tail[:])*c1, 31) * c2
	h1 ^= length
	h2 ^= length
	h1 += h2
	h2 += h1
	return murmurMix(h1) + murmurMix(h2)
}

func murmurMix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
