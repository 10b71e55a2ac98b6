package peer

import (
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/polylet/polylet/services/podsync/internal/storage/volume"
)

// The condition of a volume was an alpha part of the CSI spec until 1.12, which drivers
// of the time of Kubernetes 1.36 speak. The newer spec has taken it out and keeps its
// numbers free, so it is read from what the message holds beside.
// Source: https://github.com/container-storage-interface/spec/blob/v1.9.0/spec.md
const (
	// canSayCondition is the ability VOLUME_CONDITION.
	canSayCondition = csi.NodeServiceCapability_RPC_Type(4)
	// fieldCondition is in NodeGetVolumeStatsResponse; the others are in VolumeCondition.
	fieldCondition protowire.Number = 2
	fieldAbnormal  protowire.Number = 1
	fieldMessage   protowire.Number = 2
)

// mostOfAMessage is how much of a driver's words is kept, in bytes.
const mostOfAMessage = 1024

// conditionIn reads the condition among the fields of an answer that the spec does not
// name any more. What is not there, or makes no sense, is a volume that is well.
func conditionIn(unknown []byte) *volume.Condition {
	out := &volume.Condition{}
	eachField(unknown, func(field protowire.Number, kind protowire.Type, value []byte) {
		if field != fieldCondition || kind != protowire.BytesType {
			return
		}
		inner, _ := protowire.ConsumeBytes(value)
		eachField(inner, func(field protowire.Number, kind protowire.Type, value []byte) {
			switch {
			case field == fieldAbnormal && kind == protowire.VarintType:
				set, _ := protowire.ConsumeVarint(value)
				out.Abnormal = set != 0
			case field == fieldMessage && kind == protowire.BytesType:
				text, _ := protowire.ConsumeBytes(value)
				out.Message = strings.ToValidUTF8(string(text[:min(len(text), mostOfAMessage)]), "")
			}
		})
	})
	return out
}

// eachField goes through a message until its end, or until it makes no sense.
func eachField(message []byte, look func(protowire.Number, protowire.Type, []byte)) {
	for len(message) > 0 {
		field, kind, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			return
		}
		size := protowire.ConsumeFieldValue(field, kind, message[tag:])
		if size < 0 {
			return
		}
		look(field, kind, message[tag:tag+size])
		message = message[tag+size:]
	}
}
